"""Real node processes on loopback, for tests and campaigns: looked at, killed, and held to what they promised."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.chain.encoding import encode
from fedchain.chain.post import Post, PostKey
from fedchain.chain.storage.sqlite import Store
from fedchain.chain.vote import Slot, Vote
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.files.layout import CHAIN_FOLDER
from fedchain.node.operating.local_node import LocalNode
from tests.support.node.shell import workers_of


def look(node: LocalNode) -> dict[str, object]:
    """A node's newest status; empty before its first. It must not have ended by itself."""
    node.look()
    assert not node.ended, f"node {node.number} {node.ended}"
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
    """Members' signed statements: an honest one signs one post for a phase and one vote in a slot, whatever happens."""

    posts: dict[PostKey, set[bytes]] = field(default_factory=dict)
    votes: dict[tuple[PublicKey, Slot], set[bytes]] = field(default_factory=dict)
    blocks: dict[PublicKey, set[Hash]] = field(default_factory=dict)
    """By miner."""

    def add(self, statements: Iterable[Post | Vote | Block | Certificate]) -> None:
        """Note what members signed, the posts and votes inside of blocks and certificates included."""
        for item in statements:
            match item:
                case Post():
                    self.posts.setdefault(item.key, set()).add(encode(item.to_record()))
                case Vote():
                    self.votes.setdefault((item.voter, item.slot), set()).add(encode(item.to_record()))
                case Certificate():
                    self.add(item.votes)
                case Block():
                    self.blocks.setdefault(item.header.miner, set()).add(item.hash)
                    self.add(item.transactions)
                    self.add(() if item.certificate is None else item.certificate.votes)

    def add_store(self, node: LocalNode) -> None:
        """Note what a node has stored: its own statements, and all that stands in its chain."""
        with Store.open(node.folder / CHAIN_FOLDER, read_only=True) as store:
            self.add(store.posts(0))
            head = store.head()
            for number in range(store.base(), 0 if head is None else head.block.header.height + 1):
                found = store.final(number)
                assert found is not None, f"{node.folder} lacks height {number}"
                self.add(found)
            for number in range(1, 2 if head is None else head.block.header.height + 2):
                self.add(store.votes(number))
            self.add(store.own_candidates())

    def broken(self) -> int:
        """Posts and votes of which there are two."""
        return sum(len(different) > 1 for different in (*self.posts.values(), *self.votes.values()))

    def missing_in(self, stored: "Promises", member: PublicKey) -> list[str]:
        """Statements of ``member`` here that ``stored``, its own store, does not hold."""
        posts = [
            f"post {key[:2]}"
            for key, said in self.posts.items()
            if key[2] == member and said - stored.posts.get(key, set())
        ]
        votes = [
            f"vote {slot}"
            for (voter, slot), said in self.votes.items()
            if voter == member and said - stored.votes.get((voter, slot), set())
        ]
        blocks = self.blocks.get(member, set()) - stored.blocks.get(member, set())
        return [*posts, *votes, *(f"block {item.hex()[:16]}" for item in blocks)]
