"""The whole path: bytes, message, signature, state. A node with a chain meets sequences of damaged messages.

An input is a canonical list of steps for a fresh node at height 2: a byte string is a message that it receives, an
integer lets so many milliseconds pass and ticks. Every input therefore tells its whole story.
"""

from functools import cache
from itertools import product

from fedchain.chain.block import Block
from fedchain.chain.encoding import decode, encode
from fedchain.chain.exceptions import Invalid, InvalidEncoding, Refused, Unready
from fedchain.chain.storage.store import Contents, Final, MemoryStore
from fedchain.chain.vote import Vote, VoteKind, sign_vote
from fedchain.network.messages import (
    MESSAGE_SIZE_MAX,
    CandidateMessage,
    CertificateMessage,
    Chunk,
    EvidenceMessage,
    FinalMessage,
    GetCandidate,
    GetCertificate,
    GetContent,
    GetFinal,
    GetPayloads,
    GetPosts,
    GetVotes,
    HeldVotes,
    Message,
    Payloads,
    PostMessage,
    SessionMessage,
    Status,
    VoteMessage,
    decode_message,
    encode_message,
)
from fedchain.network.session import NOBODY, sign_session
from fedchain.network.verdict import verdict
from fedchain.node.core.effects import Blame, Effect, Persist, Publish, Refuse, Send
from fedchain.node.core.events import MessageReceived, PeersConnected, Tick
from fedchain.node.core.node import Node
from fedchain.node.core.voting.journal import Journal
from tests.fuzz.engine import Session, Target
from tests.support.chain.builders import CREATED_MS, ChainBuilder, SumRules, double_vote, genesis, keys
from tests.support.node.driver import Peer

STEPS_MAX = 24
HEIGHT = 2
"""Final blocks that the victim has before the first step."""

TICK_MAX_MS = 120_000
SENDER = keys(3)[2].public_key


@cache
def _chain() -> tuple[ChainBuilder, tuple[Block, ...]]:
    """Three members; two final blocks, two blocks to come, and another block beside the third."""
    builder = ChainBuilder(genesis(3))
    blocks = builder.extend_many(HEIGHT + 2)
    other = builder.extend(blocks[HEIGHT - 1].hash, payload_of=50)
    return builder, (*blocks, other)


@cache
def messages() -> tuple[Message, ...]:
    """All that others may say to the victim, and questions of every kind."""
    builder, blocks = _chain()
    found: list[Message] = []
    for block in blocks[HEIGHT:]:
        for post in block.transactions:
            payload = builder.contents[post.payload_hash]
            found += [PostMessage(post, payload), PostMessage(post, None), Chunk(post.payload_hash, 0, payload)]
            found += [GetContent(post.payload_hash, 0), Chunk(post.payload_hash, 0, b"")]
        found += [CandidateMessage(block), FinalMessage(block, builder.certificate(block.hash))]
        found += [VoteMessage(vote) for vote in _votes(block)]
        found += [GetCandidate(block.hash), GetCertificate(block.header.height, 0, block.hash)]
        found.append(CertificateMessage(builder.certificate(block.hash)))
    for block in blocks:
        height = block.header.height
        held = (HeldVotes(VoteKind.PREVOTE, 0, b"\7"),)
        candidates = tuple(other.hash for other in blocks[HEIGHT:])
        found += [Status(height, block.hash, b"\7", candidates, held, (0, block.hash)), GetFinal(height, 3)]
        payloads = tuple(builder.contents[post.payload_hash] for post in block.transactions)
        found += [GetPayloads(height), Payloads(height, payloads)]
        found += [GetVotes(height, VoteKind.PREVOTE, 0, b"\7"), GetPosts(block.header.round, 0, b"\7")]
        found += [GetContent(block.header.knowledge_root, 3), GetContent(block.header.state_root, 0)]
    found.append(EvidenceMessage(double_vote(keys(3)[1], builder.genesis, HEIGHT + 1)))
    chain_id, numbers = builder.genesis.chain_id, (bytes(range(16)), bytes(range(16, 32)))
    for key, heard in product(keys(3), (NOBODY, numbers[1])):
        session = sign_session(key, chain_id, numbers[0], heard=heard, height=HEIGHT, sequence=len(heard))
        found.append(SessionMessage(session))
    return tuple(found)


def _votes(block: Block) -> list[Vote]:
    """Prevotes of the others for a block, and precommits of all."""
    builder, _ = _chain()
    prevotes = [
        sign_vote(key, builder.genesis.chain_id, (block.header.height, 0, VoteKind.PREVOTE), block.hash)
        for key in keys(3)[1:]
    ]
    return [*prevotes, *builder.certificate(block.hash).votes]


@cache
def _valid() -> frozenset[bytes]:
    return frozenset(encode_message(message) for message in messages())


class Victim:
    """A node that can be put back to where it started."""

    def __init__(self) -> None:
        builder, blocks = _chain()
        self._peer = Peer(0, keys(1)[0], builder.genesis, SumRules())
        self._finals = [builder.final(block) for block in blocks[:HEIGHT]]
        needed = {post.payload_hash for block in blocks[:HEIGHT] for post in block.transactions}
        needed |= {block.header.knowledge_root for block in blocks[:HEIGHT]}
        self._contents = Contents({item: builder.contents[item] for item in sorted(needed)})
        self.now_ms = CREATED_MS
        self.restart()
        assert self.node.head.height == HEIGHT

    @property
    def node(self) -> Node:
        """The node as it is now."""
        return self._peer.node

    def restart(self) -> None:
        """A fresh node from what it had stored at the beginning."""
        self.now_ms = CREATED_MS
        self._peer.store, self._peer.journal = MemoryStore(), Journal()
        self._peer.store.append([self._contents, *self._finals])
        self._peer.node = self._peer.new_node()
        self._peer.handle(PeersConnected((SENDER,)), self.now_ms)

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
        assert self._peer.new_node().head == self.node.head, "what was persisted gives another head"
        return f"{self.node.head.height}: {', '.join(dict.fromkeys(endings))}"

    def _step(self, step: object) -> str:
        if isinstance(step, int):
            self.now_ms += step % TICK_MAX_MS
            self._look_at(self._peer.handle(Tick(), self.now_ms))
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
        head, before = self.node.head.block_hash, self._digest()
        effects = self._peer.handle(MessageReceived(SENDER, message), self.now_ms)
        self._look_at(effects)
        if data not in _valid():
            assert self.node.head.block_hash == head, f"a damaged {type(message).__name__} moved the head"
            finals = [item for effect in effects if isinstance(effect, Persist) for item in effect.records]
            assert not any(isinstance(item, Final) for item in finals), "something of a damaged message is final"
        refused = [effect.error for effect in effects if isinstance(effect, Refuse)]
        assert len(refused) <= 1, f"{len(refused)} refusals of one message"
        # Statements of our own key are noted, whatever comes with them.
        is_ours = isinstance(message, PostMessage) and message.post.sender == self._peer.key.public_key
        if not is_ours and any(isinstance(error, Invalid) for error in refused):
            assert self._digest() == before, "an invalid message changed the node"
        return f"{type(message).__name__} {refused[0].rule if refused else 'taken'}"

    def _digest(self) -> str:
        """Digest of everything that the node says it holds."""
        node = self.node
        agreement = node.voting.agreement
        votes = [
            (slot, sorted(agreement.ballots.ballot(*slot).first)) for slot in agreement.ballots.slots(agreement.attempt)
        ]
        entries = sorted((entry.hash, entry.is_valid) for entry in node.ledger.entries.values())
        return repr((node.head, entries, votes, agreement.attempt, agreement.lock, node.journal, node.waiting_for()))

    @staticmethod
    def _look_at(effects: list[Effect]) -> None:
        """Every message can be encoded, and every refusal gives a reason."""
        for effect in effects:
            match effect:
                case Publish(message) | Send(_, message):
                    said = encode_message(message)
                    assert len(said) <= MESSAGE_SIZE_MAX, f"{len(said)} bytes sent"
                    assert decode_message(said) == message, "what is sent is not what is received"
                case Refuse(_, error) | Blame(_, error):
                    assert type(error) not in (Refused, Invalid, Unready), f"{error!r} does not say whose fault it is"
                    assert str(error).startswith(f"{error.rule}: "), "the error does not name its rule"
                    assert verdict(error).value in ("ignore", "reject")
                case _:
                    pass


def _stories() -> list[bytes]:
    """Valid sequences: in order, votes first, payloads fetched, two heights, two candidates, questions."""
    builder, blocks = _chain()
    third, fourth, other = blocks[HEIGHT : HEIGHT + 3]
    said = {
        block.hash: (
            [encode_message(PostMessage(post, builder.contents[post.payload_hash])) for post in block.transactions],
            [encode_message(CandidateMessage(block))],
            [encode_message(VoteMessage(vote)) for vote in builder.certificate(block.hash).votes],
        )
        for block in (third, fourth, other)
    }
    posts, block, votes = said[third.hash]
    bare = [encode_message(PostMessage(post, None)) for post in third.transactions]
    chunks = [
        encode_message(Chunk(post.payload_hash, 0, builder.contents[post.payload_hash])) for post in third.transactions
    ]
    finals = [encode_message(FinalMessage(item, builder.certificate(item.hash))) for item in (third, fourth)]
    hello = encode_message(Status(HEIGHT, third.header.parent_hash, b"", (), (), None))
    after = [item for part in said[fourth.hash] for item in part]
    beside = [item for part in said[other.hash] for item in part]
    stories: list[list[bytes | int]] = [
        [hello, *posts, *block, *votes],
        [hello, *votes, *block, *posts, *chunks],
        [hello, *bare, *chunks, *block, *votes, 1_000],
        [hello, *block, *chunks, *votes],
        [hello, *posts, *block, *votes, *after],
        [hello, *said[fourth.hash][1], *posts, *block, *votes, *after],
        [hello, *beside, *posts, *block, *votes],
        [hello, 61_000, *posts[:1], 61_000, *block, *votes, *posts[1:], *chunks],
        [hello, *finals],
    ]
    stories += [[encode_message(message), 1_000] for message in messages()]
    return [encode(story) for story in stories]


def _open() -> Session:
    return Session(_stories(), Victim().run)


NODE = Target("node", _open, allocated_base=2**22, weight=6)
