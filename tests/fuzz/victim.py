"""The whole path: bytes, message, signature, state. A node with a chain meets sequences of damaged messages.

An input is a canonical list of steps for a fresh node at height 2: a byte string is a message that it receives, an
integer lets so many milliseconds pass and ticks. Every input therefore tells its whole story.
"""

from functools import cache

from fedchain.chain.block import Block
from fedchain.chain.encoding import decode, encode
from fedchain.chain.exceptions import Invalid, InvalidEncoding, Refused, Unready
from fedchain.chain.storage.store import Content, Record, load_tree
from fedchain.network.messages import (
    MESSAGE_SIZE_MAX,
    BlockMessage,
    Chunk,
    GetBlocks,
    GetContent,
    GetPosts,
    GetVotes,
    Message,
    PostMessage,
    Status,
    VoteMessage,
    decode_message,
    encode_message,
)
from fedchain.network.verdict import verdict
from fedchain.node.core.checks import Verification
from fedchain.node.core.effects import Blame, Effect, Persist, Publish, Refuse, Send
from fedchain.node.core.events import MessageReceived, PeerConnected, Tick
from fedchain.node.core.node import Node
from tests.chain.builders import TRAINING_MS, ChainBuilder, SumRules, genesis, keys
from tests.fuzz.engine import Session, Target
from tests.node.attacks import Scene

STEPS_MAX = 24
HEIGHT = 2
"""Blocks that the victim has accepted before the first step."""

TICK_MAX_MS = 120_000
SENDER = keys(20)[19].public_key


@cache
def _chain() -> tuple[ChainBuilder, tuple[Block, ...]]:
    """Three members; two accepted blocks, two blocks to come, and another block beside the third."""
    builder = ChainBuilder(genesis(3))
    blocks = builder.extend_many(HEIGHT + 2)
    fork = builder.extend(blocks[HEIGHT - 1].hash, payload_of=50)
    return builder, (*blocks, fork)


@cache
def messages() -> tuple[Message, ...]:
    """All that honest members may say to the victim, and questions of every kind."""
    builder, blocks = _chain()
    found: list[Message] = []
    for block in blocks[HEIGHT:]:
        for post in block.transactions:
            payload = builder.contents[post.payload_hash]
            found += [PostMessage(post, payload), PostMessage(post, None), Chunk(post.payload_hash, 0, payload)]
            found += [GetContent(post.payload_hash, 0), Chunk(post.payload_hash, 0, b"")]
        found.append(BlockMessage(block))
        found += [VoteMessage(vote) for vote in builder.votes(block.hash)]
    for block in blocks:
        candidates = tuple((other.hash, b"\7") for other in blocks[HEIGHT:])
        found += [Status(block.hash, block.header.height, b"\7", candidates), GetVotes(block.hash, b"\7")]
        found += [GetBlocks((builder.genesis.chain_id,), block.hash), GetPosts(block.header.round, 0, b"\7")]
        found.append(GetContent(block.header.knowledge_root, 3))
    return tuple(found)


@cache
def _valid() -> frozenset[bytes]:
    return frozenset(encode_message(message) for message in messages())


class Victim(Scene):
    """A node that can be put back to where it started."""

    def __init__(self) -> None:
        builder, blocks = _chain()
        super().__init__(builder.genesis)
        self.begun_ms = blocks[HEIGHT].header.timestamp_ms - TRAINING_MS
        self._verification = Verification(builder.genesis, SumRules())  # its caches make the next run cheaper
        self._accepted: list[Record] = [*blocks[:HEIGHT], *(v for b in blocks[:HEIGHT] for v in builder.votes(b.hash))]
        needed = {post.payload_hash for block in blocks[:HEIGHT] for post in block.transactions}
        needed |= {block.header.knowledge_root for block in blocks[:HEIGHT]}
        self._held = {item: builder.contents[item] for item in needed}
        self.restart()
        assert self.node.head.height == HEIGHT

    def restart(self) -> None:
        """A fresh node from what it had stored at the beginning."""
        self.now_ms = self.begun_ms
        self.records, self.contents = list(self._accepted), dict(self._held)
        self.victim.node = Node(self.genesis, keys(1)[0], self._verification, self.records, self.contents.get)
        self.node.handle(PeerConnected(SENDER), self.now_ms)

    def run(self, data: bytes) -> str:
        """Take the steps of an input; how each ended."""
        self.restart()
        try:
            steps = decode(data, 2**16)
        except InvalidEncoding as error:
            return f"no steps: {error.rule}"
        if not isinstance(steps, list):
            return "no steps"
        endings = [self._step(step) for step in steps[:STEPS_MAX]]
        stored = load_tree(self.genesis, self.records).head
        assert stored.block_hash == self.node.head.block_hash, "what was persisted gives another head"
        return f"{self.node.head.height}: {', '.join(dict.fromkeys(endings))}"

    def _step(self, step: object) -> str:
        if isinstance(step, int):
            self.now_ms += step % TICK_MAX_MS
            self._carry_out(self.node.handle(Tick(), self.now_ms))
            return "tick"
        if not isinstance(step, bytes):
            return "nothing"
        try:
            message = decode_message(step)
        except InvalidEncoding as error:
            return error.rule
        assert encode_message(message) == step, "taken but not canonical"
        return self._receive(step, message)

    def _receive(self, data: bytes, message: Message) -> str:
        head, before = self.node.head.block_hash, self.digest()
        effects = self.node.handle(MessageReceived(SENDER, message), self.now_ms)
        self._carry_out(effects)
        if data not in _valid():
            assert self.node.head.block_hash == head, f"a damaged {type(message).__name__} moved the head"
            assert not any(isinstance(item, Persist) for item in effects), "something of a damaged message is stored"
        refused = [effect.error for effect in effects if isinstance(effect, Refuse)]
        assert len(refused) <= 1, f"{len(refused)} refusals of one message"
        if any(isinstance(error, Invalid) for error in refused):
            assert self.digest() == before, "an invalid message changed the node"
        return f"{type(message).__name__} {refused[0].rule if refused else 'taken'}"

    def _carry_out(self, effects: list[Effect]) -> None:
        """Store, and check that what is said can be said."""
        for effect in effects:
            match effect:
                case Persist(records):
                    self.records += [item for item in records if not isinstance(item, Content)]
                    self.contents |= {item.hash: item.data for item in records if isinstance(item, Content)}
                case Publish(message) | Send(_, message):
                    said = encode_message(message)
                    assert len(said) <= MESSAGE_SIZE_MAX, f"{len(said)} bytes sent"
                    assert decode_message(said) == message, "what is sent is not what is received"
                case Refuse(_, error) | Blame(_, error):
                    assert type(error) not in (Refused, Invalid, Unready), f"{error!r} does not say whose fault it is"
                    assert str(error).startswith(f"{error.rule}: "), "the error does not name its rule"
                    assert verdict(error).value in ("ignore", "reject")


def _stories() -> list[bytes]:
    """Valid sequences: in order, votes first, payloads fetched, two heights, a fork, questions."""
    builder, blocks = _chain()
    third, fourth, fork = blocks[HEIGHT : HEIGHT + 3]
    said = {
        block.hash: (
            [encode_message(PostMessage(post, builder.contents[post.payload_hash])) for post in block.transactions],
            [encode_message(BlockMessage(block))],
            [encode_message(VoteMessage(vote)) for vote in builder.votes(block.hash)],
        )
        for block in (third, fourth, fork)
    }
    span = third.header.timestamp_ms - blocks[HEIGHT - 1].header.timestamp_ms
    posts, block, votes = said[third.hash]
    bare = [encode_message(PostMessage(post, None)) for post in third.transactions]
    chunks = [
        encode_message(Chunk(post.payload_hash, 0, builder.contents[post.payload_hash])) for post in third.transactions
    ]
    after = [item for part in said[fourth.hash] for item in part]
    beside = [item for part in said[fork.hash] for item in part]
    stories: list[list[bytes | int]] = [
        [*posts, span, *block, *votes],
        [span, *votes, *block, *posts, *chunks],
        [*bare, *chunks, span, *block, *votes, 1_000],
        [span, *block, *chunks, *votes],
        [span, *posts, *block, *votes, span, *after],
        [span, span, *said[fourth.hash][1], *posts, *block, *votes, *after],
        [span, *beside, *posts, *block, *votes],
        [61_000, *posts[:1], 61_000, *block, *votes, *posts[1:], *chunks],
    ]
    stories += [[encode_message(message), 1_000] for message in messages()]
    return [encode(story) for story in stories]


def _open() -> Session:
    return Session(_stories(), Victim().run)


NODE = Target("node", _open, allocated_base=2**22, weight=6)
