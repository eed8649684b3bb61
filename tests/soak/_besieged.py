"""Four honest node processes under attack by a fifth member: what they say, and what may befall one of their stores."""

import shutil
import signal
import sqlite3
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedchain.chain.certificate import certify
from fedchain.chain.exceptions import NotFound, StoreError
from fedchain.chain.genesis import Genesis
from fedchain.chain.post import Post, PostKey
from fedchain.chain.storage.database import DATABASE
from fedchain.chain.storage.rows import FINALS, to_row
from fedchain.chain.storage.sqlite import Store
from fedchain.chain.vote import VoteKind, sign_vote
from fedchain.crypto.address import address
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PrivateKey
from fedchain.files.layout import CHAIN_FOLDER, GENESIS_FILE, KEY_FILE
from fedchain.learning.config import LearningConfig
from fedchain.node.config import NodeConfigError
from fedchain.node.founding.consensus import Consensus
from fedchain.node.operating.local_node import LocalNode
from fedchain.node.operating.status import ask
from fedchain.node.operating.testnet import found_testnet
from tests.soak._processes import rss_mb

MEMBERS = 5


class Net:
    """The federation, and what its nodes say of it."""

    def __init__(self, folder: Path, *, has_parts: bool) -> None:
        # Payloads do not travel inside of posts: they have to be fetched.
        consensus: dict[str, Any] = {"phase_timeout_s": 2.0, "inline_kib_max": 0}
        if has_parts:
            config = LearningConfig(method="tests.support.learning.relay:Relay", partition="iid", clients=MEMBERS)
            consensus["aggregator"] = "fixed"
        else:
            settings = {"hyperparameters": {"local_steps": 1}, "partition": "iid", "clients": MEMBERS}
            config = LearningConfig(method="dfpl", dataset="digits", **settings)  # type: ignore[arg-type]
        everybody = found_testnet(folder, config, Consensus(rounds=0, mining_s=0.5, mining_attempts=200, **consensus))
        self.nodes, self.attacker = everybody[:-1], everybody[-1]
        self.genesis = Genesis.decode((folder / GENESIS_FILE).read_bytes())
        self.key = PrivateKey.load(self.attacker.folder / "key.pem")
        self.heads: dict[int, set[str]] = {}
        """Heads that were seen at each height."""

    def look(self) -> list[int]:
        """Heights of the nodes."""
        for node in self.nodes:
            node.look()
            if node.status:
                self.heads.setdefault(node.status["height"], set()).add(node.status["head"])
        return [node.status.get("height", 0) for node in self.nodes]

    def divided(self) -> list[int]:
        """Heights at which nodes have different heads."""
        return [height for height, heads in self.heads.items() if len(heads) > 1]

    def banned(self) -> dict[str, int]:
        """By how many honest nodes each address is banned."""
        found: dict[str, int] = {}
        for node in self.nodes:
            for ban in (_ask(node, {"ask": "bans"}) or {}).get("bans", ()):
                found[ban["address"]] = found.get(ban["address"], 0) + 1
        return found

    def forgive(self) -> None:
        """Let the attacker connect again."""
        for node in self.nodes:
            _ask(node, {"ask": "unban", "address": address(self.key.public_key)})

    def memory_mb(self) -> list[float]:
        """Memory of each node that runs, in MB."""
        return [rss_mb(node.process.pid) for node in self.nodes if node.process is not None]

    def speaks_first(self, joiner: LocalNode) -> None:
        """Let the attacker alone speak to a node: the other honest ones stand still."""
        for node in self.nodes:
            if node is not joiner and node.process is not None:
                node.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let everybody speak again."""
        for node in self.nodes:
            if node.process is not None:
                node.process.send_signal(signal.SIGCONT)

    def judge(self) -> "Judged":
        """Find honest members that the chain convicts, and their posts beside final ones; the nodes are stopped."""
        convicted, posted, own = set[bytes](), dict[PostKey, Hash](), list[Post]()
        for node in self.nodes:
            with Store.open(node.folder / CHAIN_FOLDER, read_only=True) as store:
                head = store.head()
                assert head is not None
                for height in range(store.base(), head.block.header.height + 1):
                    record = store.final(height)
                    assert record is not None
                    convicted |= {crime.culprit for crime in record[0].evidence}
                    posted |= {post.key: post.hash for post in record[0].transactions}
                own += store.posts(0)
        twice = sum(posted.get(post.key, post.hash) != post.hash for post in own)
        return Judged(frozenset(convicted - {self.key.public_key}), twice)


@dataclass(frozen=True, slots=True)
class Judged:
    """Wrongs that honest members did."""

    convicted: frozenset[bytes]
    """Those that the chain proves a crime of."""
    posted_twice: int
    """Their posts beside another one of theirs that is final."""


def lose_chain(net: Net, node: LocalNode) -> None:
    """The folder of a node's chain is lost; key and journal are whole."""
    shutil.rmtree(node.folder / CHAIN_FOLDER)


def store_polka(net: Net, node: LocalNode) -> None:
    """The head of a node's store is proved by prevotes of a quorum, which decide nothing."""
    with Store.open(node.folder / CHAIN_FOLDER, read_only=True) as store:
        head = store.head()
    assert head is not None
    place, block_hash = head.block.header.height, head.block.hash
    keys = [PrivateKey.load(member.folder / KEY_FILE) for member in net.nodes]
    votes = (sign_vote(key, net.genesis.chain_id, (place, 0, VoteKind.PREVOTE), block_hash) for key in keys)
    wrong = replace(head, certificate=certify(votes))
    with closing(sqlite3.connect(node.folder / CHAIN_FOLDER / DATABASE)) as connection, connection:
        FINALS.insert(connection, to_row(wrong)[1], replace=True)


def base_of(node: LocalNode) -> int:
    """The height from which on a node holds the whole chain; 0: it holds none."""
    with suppress(NotFound, StoreError), Store.open(node.folder / CHAIN_FOLDER, read_only=True) as store:
        return store.base() if store.height() else 0
    return 0


def _ask(node: LocalNode, request: Mapping[str, str]) -> dict[str, list[dict[str, str]]] | None:
    with suppress(NodeConfigError):
        return ask(node.folder, request)
    return None
