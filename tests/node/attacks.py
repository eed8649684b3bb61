"""A node in a federation whose keys the test holds, so that the test can say anything in anyone's name."""

from collections.abc import Hashable, Iterable

from fedchain.chain.block import Block
from fedchain.chain.genesis import Genesis
from fedchain.chain.knowledge import Rules
from fedchain.chain.transaction import Transaction
from fedchain.chain.vote import Vote
from fedchain.crypto.hashing import Hash, sha256
from fedchain.network.messages import BlockMessage, Message, PostMessage, VoteMessage
from fedchain.node.core.effects import Blame, Effect, Publish, Refuse, Send
from fedchain.node.core.events import Tick
from fedchain.node.core.node import Node
from tests.chain.builders import CREATED_MS, ChainBuilder, keys
from tests.node.driver import Peer


class Scene:
    """One node (``keys(…)[number]``), a builder of the chain around it, and a clock.

    Attributes:
        victim: the node under test with its storage.
        chain: builds valid blocks, posts and votes.
        now_ms: the victim's clock.
        sender: the peer that everything comes from unless said otherwise.
    """

    def __init__(self, genesis: Genesis, number: int = 0, rules: Rules | None = None) -> None:
        self.genesis = genesis
        self.chain = ChainBuilder(genesis, rules)
        self.victim = Peer(number, keys(number + 1)[number], genesis, self.chain.rules)
        self.now_ms = CREATED_MS
        self.sender = keys(20)[19].public_key

    @property
    def node(self) -> Node:
        """The node under test."""
        return self.victim.node

    def receive(self, message: Message, sender: bytes | None = None) -> list[Effect]:
        """Let the victim receive a message."""
        return self.victim.receive(sender or self.sender, message, self.now_ms)

    def tick(self, seconds: float = 0) -> list[Effect]:
        """Let time pass, and then tick."""
        self.now_ms += round(1_000 * seconds)
        return self.victim.handle(Tick(), self.now_ms)

    def post(self, post: Transaction) -> list[Effect]:
        """Let the victim receive a post with its payload."""
        return self.receive(PostMessage(post, self.chain.contents[post.payload_hash]))

    def block(self, block: Block, *, payloads: bool = True) -> list[Effect]:
        """Let the victim receive a block at the block's own time, by default after the posts in it."""
        self.now_ms = max(self.now_ms, block.header.timestamp_ms)
        if payloads:
            for post in block.transactions:
                self.post(post)
        return self.receive(BlockMessage(block))

    def votes(self, block: Block) -> list[Effect]:
        """Let the victim receive all votes for a block."""
        return [effect for vote in self.chain.votes(block.hash) for effect in self.receive(VoteMessage(vote))]

    def accept(self, count: int = 1) -> list[Block]:
        """Build blocks and let the victim take and accept them."""
        blocks = []
        for _ in range(count):
            blocks.append(self.chain.extend(self.node.head.block_hash))
            self.block(blocks[-1])
            self.votes(blocks[-1])
            assert self.node.head.block_hash == blocks[-1].hash
        return blocks

    def digest(self) -> Hash:
        """A hash over what the node says it holds."""
        return sha256(repr(self.snapshot()).encode())

    def snapshot(self) -> Hashable:
        """Head, tree, mempool and knowledge."""
        node, head = self.node, self.node.head
        steps = [(head.round, phase) for phase in range(3)] + [(head.round + 1, phase) for phase in range(3)]
        posts = [(step, sorted(node.mempool.posts(step).items())) for step in steps]
        children = node.tree.children(head.block_hash)
        votes = [sorted(node.tree.votes(block)) for block in (head.block_hash, *children)]
        return repr((head, len(node.tree), children, votes, len(node.mempool), posts, node.knowledge()))


def errors(effects: Iterable[Effect]) -> list[str]:
    """Names of the errors that messages were refused with."""
    return [type(effect.error).__name__ for effect in effects if isinstance(effect, Refuse | Blame)]


def sent(effects: Iterable[Effect]) -> list[Message]:
    """Messages to single peers."""
    return [effect.message for effect in effects if isinstance(effect, Send)]


def published(effects: Iterable[Effect]) -> list[Message]:
    """Messages to everyone."""
    return [effect.message for effect in effects if isinstance(effect, Publish)]


def own_votes(effects: Iterable[Effect]) -> list[Vote]:
    """Votes that were published."""
    return [message.vote for message in published(effects) if isinstance(message, VoteMessage)]
