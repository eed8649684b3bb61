"""Chains for the explorer to show: long ones, and such with large knowledge. They are built once and kept."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fedchain.chain.exceptions import StoreMismatch
from fedchain.chain.explorer.explorer import Explorer
from fedchain.chain.genesis import Genesis
from fedchain.chain.state import decode_state
from fedchain.chain.storage.database import DATABASE
from fedchain.chain.storage.sqlite import Store
from fedchain.chain.storage.store import Contents
from fedchain.crypto.hashing import sha256
from fedchain.learning.application import Application
from fedchain.learning.config import LearningConfig
from fedchain.learning.models.parameters import parameter_spec
from fedchain.learning.models.shapes import infos_of
from fedchain.learning.payload.codec import encode
from fedchain.node.founding.task import found_federation, rules_of
from tests.support.chain.builders import CREATED_MS, EASY_BITS, ChainBuilder, keys, post

MEMBERS = 10
"""Number of members in chains of class prototypes."""

BLOCKS_AT_ONCE = 50
"""Blocks that are written at once."""

Payloads = Callable[[int, int], bytes]
"""The payload of a member, by its place, in a round."""


def long_chain(folder: Path, blocks: int) -> Path:
    """Class prototypes of small digits, of members who all post to every block."""
    config = LearningConfig(clients=MEMBERS)
    return _extended(folder / "long", config, _prototypes(config, 10), blocks)


def wide_chain(folder: Path, blocks: int) -> Path:
    """Class prototypes of ten classes and 512 dimensions, as ResNet-18 has them."""
    config = LearningConfig(clients=MEMBERS, dataset="cifar10", model="resnet18")
    return _extended(folder / "wide", config, _prototypes(config, 10), blocks)


def model_chain(folder: Path, blocks: int) -> Path:
    """Whole models of 3 MB, which four members average."""
    config = LearningConfig(clients=4, method="fedavg", dataset="cifar10", model="resnet18-plain-16")
    return _extended(folder / "model", config, _models(config), blocks, keeps_posts=False)


def _extended(
    folder: Path, config: LearningConfig, payloads: Payloads, blocks: int, *, keeps_posts: bool = True
) -> Path:
    """The folder with a valid chain of so many blocks: what is there already is gone on from."""
    members = [key.public_key for key in keys(config.clients)]
    consensus = {"rounds": 0, "initial_bits": EASY_BITS, "proof_function": "sha256d"}
    genesis = found_federation(
        config, Application(config), members, name=folder.name, created_ms=CREATED_MS, **consensus
    )
    with _opened(folder, genesis) as store:
        chain = _gone_on(store, genesis)
        for last in range(chain.state.height + 1, blocks + 1, BLOCKS_AT_ONCE):
            added = []
            for _ in range(last, min(last + BLOCKS_AT_ONCE, blocks + 1)):
                number, posts = chain.state.round, []
                for place, _ in sorted(enumerate(members), key=lambda item: item[1]):
                    payload = payloads(place, number)
                    chain.contents[sha256(payload)] = payload
                    posts.append(post(keys(config.clients)[place], genesis, number, payload))
                added.append(chain.extend(posts=posts))
            kept = None if keeps_posts else {block.header.knowledge_root for block in added}
            contents = {key: data for key, data in chain.contents.items() if kept is None or key in kept}
            store.append([*map(chain.final, added), Contents(contents)])
            _forget(chain)
    return folder


def _opened(folder: Path, genesis: Genesis) -> Store:
    if (folder / "chain" / DATABASE).exists():
        try:
            return Store.open(folder / "chain", genesis)
        except StoreMismatch:  # of an older version
            shutil.rmtree(folder)
    return Store.create(folder / "chain", genesis)


def _gone_on(store: Store, genesis: Genesis) -> ChainBuilder:
    """A builder that stands at the head of what is stored."""
    chain, head = ChainBuilder(genesis, rules_of(genesis)), store.head()
    if head is not None:
        knowledge = store.content(head.block.header.knowledge_root)
        assert knowledge is not None
        before, chain.tip = head.block.header.parent_hash, head.block.hash
        chain.blocks = {chain.tip: head.block}
        chain.states = {before: decode_state(genesis, head.state), chain.tip: Explorer(store).state}
        chain.contents = {head.block.header.knowledge_root: knowledge}
    return chain


def _forget(chain: ChainBuilder) -> None:
    """Hold the last block alone in memory."""
    tip = chain.blocks[chain.tip]
    before = tip.header.parent_hash
    chain.blocks = {tip.hash: tip}
    chain.states = {before: chain.states[before], tip.hash: chain.states[tip.hash]}
    chain.contents = {tip.header.knowledge_root: chain.contents[tip.header.knowledge_root]}


def _prototypes(config: LearningConfig, classes: int) -> Payloads:
    """Prototypes of four classes each, which move a little from round to round."""
    info = infos_of(config)[0]
    base = np.random.default_rng(0).normal(size=(classes, info.embedding_size))

    def payload(place: int, number: int) -> bytes:
        rng = np.random.default_rng([place, number])
        labels = np.arange(place % (classes - 3), place % (classes - 3) + 4)
        rows = base[labels] + rng.normal(size=(4, info.embedding_size)) / 4
        return encode({"labels": labels, "counts": np.full(4, 9), "prototypes": rows.astype(np.float32)})

    return payload


def _models(config: LearningConfig) -> Payloads:
    """Models whose parameters move a little from round to round."""
    spec = parameter_spec(infos_of(config)[0])
    base = {item.name: np.abs(np.random.default_rng(0).normal(size=item.shape)) for item in spec}

    def payload(place: int, number: int) -> bytes:
        rng = np.random.default_rng([place, number])
        model = {name: (rows + rng.random() / 10).astype(np.float32) for name, rows in base.items()}
        return encode(model | {"examples": np.array([9])})

    return payload
