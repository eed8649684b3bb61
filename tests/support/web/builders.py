"""Folders with chains for tests of the web explorer: a chain that learns prototypes, and one that lies."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedchain.chain.block import Block
from fedchain.chain.genesis import Genesis
from fedchain.chain.storage.sqlite import Store
from fedchain.chain.storage.store import Contents
from fedchain.crypto.hashing import sha256
from fedchain.learning.application import Application
from fedchain.learning.config import LearningConfig
from fedchain.learning.models.shapes import infos_of
from fedchain.learning.payload.codec import encode
from fedchain.node.founding.task import found_federation, rules_of
from tests.support.chain.builders import CREATED_MS, EASY_BITS, ChainBuilder, keys, post
from tests.support.chain.explored import write

SCRIPT = "<script>alert('name')</script>"
"""A name that a federation may have, for all that its members know."""

PEERS = 4


def document(name: str = SCRIPT, **overrides: Any) -> Genesis:
    """A federation that learns class prototypes of digits."""
    config = LearningConfig(clients=PEERS)
    members = [key.public_key for key in keys(PEERS)]
    consensus = {"rounds": 6, "initial_bits": EASY_BITS, "proof_function": "sha256d"} | overrides
    return found_federation(config, Application(config), members, name=name, created_ms=CREATED_MS, **consensus)


def learning_chain(genesis: Genesis, rounds: int) -> ChainBuilder:
    """So many rounds; in the third the last member did not post."""
    rng = np.random.default_rng(0)
    info = infos_of(LearningConfig(clients=PEERS))[0]
    builder = ChainBuilder(genesis, rules_of(genesis))
    base = rng.normal(size=(info.classes, info.embedding_size))
    for number in range(1, rounds + 1):
        members = genesis.members[: PEERS - (number == 3)]
        posts = []
        for place, _ in sorted(enumerate(members), key=lambda item: item[1]):
            labels = np.arange(place, place + 4)
            rows = base[labels] + rng.normal(size=(4, info.embedding_size)) / number
            payload = encode({"labels": labels, "counts": np.full(4, 9), "prototypes": rows.astype(np.float32)})
            builder.contents[sha256(payload)] = payload
            posts.append(post(keys(PEERS)[place], genesis, number, payload))
        builder.extend(posts=posts)
    return builder


def write_run(folder: Path, chain: ChainBuilder, accuracies: Sequence[float] = ()) -> Path:
    """A run's folder: the chain, and what was measured in each round."""
    with Store.create(folder / "chain", chain.genesis) as store:
        write(store, chain)
    rows = (
        {"round": number, "taa": taa, "test_accuracy": taa / 2, "training_s": 1.0, "voting_s": 0.5}
        for number, taa in enumerate(accuracies, 1)
    )
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def lying_block(chain: ChainBuilder) -> Block:
    """A block that all voted for although its posts leave other knowledge, as a quorum of liars makes it."""
    block = chain.extend()
    chain.tip = block.header.parent_hash
    false = chain.remake(block, knowledge_root=sha256(b"what no posts leave behind"))
    return chain.keep(false)


def append(folder: Path, chain: ChainBuilder, block: Block) -> None:
    """A node writes its next final block while others read."""
    with Store.open(folder / "chain") as store:
        store.append([chain.final(block), Contents(chain.contents)])
