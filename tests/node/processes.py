"""Real node processes on loopback, for tests and campaigns: looked at, killed, and held to what they promised."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from fedchain.chain.block import Block
from fedchain.chain.encoding import encode
from fedchain.chain.storage.sqlite import Store
from fedchain.chain.storage.store import Record
from fedchain.chain.transaction import PostKey, Transaction
from fedchain.chain.vote import Vote
from fedchain.node.run import CHAIN_FOLDER
from fedchain.node.testnet import LocalNode
from tests.node.shell import workers_of


def look(node: LocalNode) -> dict[str, object]:
    """A node's newest status; empty before its first."""
    node.look()
    return node.status


def height(node: LocalNode) -> int:
    """Height of a node's head; 0 before its first status."""
    number = look(node).get("height", 0)
    assert isinstance(number, int)
    return number


def kill(node: LocalNode) -> list[int]:
    """End a node at once, and say which workers it had."""
    assert node.process is not None
    workers = workers_of(node.process.pid, "train") + workers_of(node.process.pid, "mine")
    node.process.kill()
    node.process.wait()
    node.status = {}
    return workers


def log_of(node: LocalNode) -> str:
    """All that a node has printed."""
    return (node.folder / "node.log").read_text(encoding="utf-8")


@dataclass(slots=True)
class Promises:
    """What members signed: an honest one signs one post for a phase and votes for a block once, whatever happens."""

    posts: dict[PostKey, set[bytes]] = field(default_factory=dict)
    votes: dict[tuple[bytes, bytes], set[bytes]] = field(default_factory=dict)
    """By voter and block."""

    def add(self, records: Iterable[Record]) -> None:
        """Note what ``records`` hold, the posts and votes inside of blocks included."""
        for record in records:
            inside = (*record.transactions, *record.votes) if isinstance(record, Block) else (record,)
            for item in inside:
                if isinstance(item, Transaction):
                    self.posts.setdefault(item.key, set()).add(encode(item.to_record()))
                elif isinstance(item, Vote):
                    self.votes.setdefault((item.voter, item.block_hash), set()).add(encode(item.to_record()))

    def add_store(self, node: LocalNode) -> None:
        """Note what a node has stored."""
        with Store.open(node.folder / CHAIN_FOLDER, read_only=True) as store:
            self.add(store.records())

    def broken(self) -> int:
        """Posts and votes of which there are two."""
        return sum(len(different) > 1 for different in (*self.posts.values(), *self.votes.values()))
