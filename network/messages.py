"""Messages between peers. Every message has one byte string: a type number and the fields, canonically encoded.

Posts, candidates, votes, evidence, sessions and changes are *gossip*: they are published to everyone, may be lost, and
are repaired by asking. The others go from one peer to another: a status shows what a peer holds, and a peer that
lacks something asks.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.chain.encoding import decode, encode, expect_record, expect_size
from fedchain.chain.evidence import Evidence
from fedchain.chain.exceptions import InvalidEncoding
from fedchain.chain.light.light_block import LightBlock
from fedchain.chain.membership.change import Change
from fedchain.chain.post import Post
from fedchain.chain.vote import Vote, VoteKind, read_kind
from fedchain.crypto.hashing import HASH_SIZE, Hash
from fedchain.network.session import Session

FINALS_MAX = 16
"""Final blocks in one answer."""

FINALS_SIZE_MAX = 256 * 2**10
"""Bytes of final blocks in one answer, unless the first one alone is larger."""

CANDIDATES_MAX = 16
"""Candidates that a status tells of."""

HELD_VOTES_MAX = 8
"""Pairs of kind and attempt whose votes a status tells of."""

BITMAP_SIZE_MAX = 2**13
"""Bytes of a bitmap: room for 65,536 members."""

CHUNK_SIZE = 256 * 2**10
"""Bytes of content in one answer."""

GOSSIP_SIZE_MAX = 256 * 2**10
"""Most bytes of a gossip message."""

POST_SIZE_MAX = 256
"""Most bytes that a post takes in a gossip message beside its payload."""

MESSAGE_SIZE_MAX = 4 * 2**20
"""Most bytes of one message; larger data travel as content, in chunks."""

Bitmap = bytes
"""One bit per member, in member order, least significant bit of the first byte first."""


@dataclass(frozen=True, slots=True)
class PostMessage:
    """Gossip: a member's post, with its payload if that is small."""

    KIND: ClassVar[int] = 1
    post: Post
    payload: bytes | None = field(repr=False)
    """The payload's bytes, or None: fetch it by its hash."""

    def to_fields(self) -> list[Any]:
        """The canonical fields."""
        return [self.post.to_record(), [] if self.payload is None else [self.payload]]

    @classmethod
    def from_fields(cls, fields: list[Any]) -> "PostMessage":
        """Read the canonical fields; raises InvalidEncoding."""
        post, payload = expect_record(fields, "post", (list, list))
        inline = expect_record(payload, "post payload", (bytes,)) if payload else [None]
        return cls(Post.from_record(post), inline[0])


@dataclass(frozen=True, slots=True)
class CandidateMessage:
    """Gossip: a block that was mined for the open height; also the answer to :class:`GetCandidate`."""

    KIND: ClassVar[int] = 2
    block: Block

    def to_fields(self) -> list[Any]:
        """The canonical fields."""
        return [self.block.to_record()]

    @classmethod
    def from_fields(cls, fields: list[Any]) -> "CandidateMessage":
        """Read the canonical fields; raises InvalidEncoding."""
        (block,) = expect_record(fields, "candidate message", (list,))
        return cls(Block.from_record(block))


@dataclass(frozen=True, slots=True)
class VoteMessage:
    """Gossip: a vote; also the answer to :class:`GetVotes`, one message per vote."""

    KIND: ClassVar[int] = 3
    vote: Vote

    def to_fields(self) -> list[Any]:
        """The canonical fields."""
        return [self.vote.to_record()]

    @classmethod
    def from_fields(cls, fields: list[Any]) -> "VoteMessage":
        """Read the canonical fields; raises InvalidEncoding."""
        (vote,) = expect_record(fields, "vote message", (list,))
        return cls(Vote.from_record(vote))


@dataclass(frozen=True, slots=True)
class EvidenceMessage:
    """Gossip: a crime and its proof."""

    KIND: ClassVar[int] = 10
    evidence: Evidence

    def to_fields(self) -> list[Any]:
        """The canonical fields."""
        return [self.evidence.to_record()]

    @classmethod
    def from_fields(cls, fields: list[Any]) -> "EvidenceMessage":
        """Read the canonical fields; raises InvalidEncoding."""
        (evidence,) = expect_record(fields, "evidence message", (list,))
        return cls(Evidence.from_record(evidence))


@dataclass(frozen=True, slots=True)
class SessionMessage:
    """Gossip: a process has a member's key. It also goes to a single peer, where others have that peer's key."""

    KIND: ClassVar[int] = 17
    session: Session

    def to_fields(self) -> list[Any]:
        """The canonical fields."""
        return [self.session.to_record()]

    @classmethod
    def from_fields(cls, fields: list[Any]) -> "SessionMessage":
        """Read the canonical fields; raises InvalidEncoding."""
        (session,) = expect_record(fields, "session message", (list,))
        return cls(Session.from_record(session))


@dataclass(frozen=True, slots=True)
class ChangeMessage:
    """Gossip: a change of the membership, with approvals; it also goes to a single peer, which may lack it."""

    KIND: ClassVar[int] = 18
    change: Change

    def to_fields(self) -> list[Any]:
        """The canonical fields."""
        return [self.change.to_record()]

    @classmethod
    def from_fields(cls, fields: list[Any]) -> "ChangeMessage":
        """Read the canonical fields; raises InvalidEncoding."""
        (change,) = expect_record(fields, "change message", (list,))
        return cls(Change.from_record(change))


@dataclass(frozen=True, slots=True)
class HeldVotes:
    """Members whose votes of one kind and attempt a peer holds."""

    kind: VoteKind
    attempt: int
    voters: Bitmap


@dataclass(frozen=True, slots=True)
class Status:
    """The sender's holdings: a peer that sees something it lacks asks for it."""

    KIND: ClassVar[int] = 4
    height: int
    """Height of the sender's head."""
    head_hash: Hash
    """32 bytes: the sender's head."""
    posts: Bitmap
    """Members whose post for the open phase the sender holds."""
    candidates: tuple[Hash, ...]
    """Valid blocks for the open height."""
    votes: tuple[HeldVotes, ...]
    """Votes for the open height, newest attempts first."""
    lock: tuple[int, Hash] | None
    """Attempt and block of the newest quorum of prevotes that the sender can prove."""

    def to_fields(self) -> list[Any]:
        """The canonical fields; a field that may be absent is a list of none or one."""
        votes = [[int(held.kind), held.attempt, held.voters] for held in self.votes]
        lock = [] if self.lock is None else [list(self.lock)]
        return [self.height, self.head_hash, self.posts, list(self.candidates), votes, lock]

    @classmethod
    def from_fields(cls, fields: list[Any]) -> "Status":
        """Read the canonical fields; raises InvalidEncoding."""
        height, head, posts, candidates, votes, lock = expect_record(
            fields, "status", (int, bytes, bytes, list, list, list)
        )
        expect_size(head, HASH_SIZE, "status head")
        _expect_bitmap(posts)
        _expect_count(candidates, CANDIDATES_MAX, "status candidates")
        _expect_count(votes, HELD_VOTES_MAX, "status votes")
        for item in expect_record(candidates, "status candidates", [bytes] * len(candidates)):
            expect_size(item, HASH_SIZE, "status candidate")
        locked = expect_record(lock, "status lock", (list,))[0] if lock else None
        if locked is not None:
            attempt, block_hash = expect_record(locked, "status lock", (int, bytes))
            locked = attempt, expect_size(block_hash, HASH_SIZE, "status lock")
        return cls(height, head, posts, tuple(candidates), tuple(map(cls._read_votes, votes)), locked)

    @staticmethod
    def _read_votes(value: Any) -> HeldVotes:
        kind, attempt, voters = expect_record(value, "status votes", (int, int, bytes))
        return HeldVotes(read_kind(kind), attempt, _expect_bitmap(voters))


@dataclass(frozen=True, slots=True)
class GetFinal:
    """Ask for final blocks from a height on; each comes back as a :class:`FinalMessage`."""

    KIND: ClassVar[int] = 5
    height: int
    """The first one wanted."""
    count: int
    """How many, at most; an answer is bounded in bytes, too."""

    def to_fields(self) -> list[Any]:
        """The canonical fields."""
        return [self.height, self.count]

    @classmethod
    def from_fields(cls, fields: list[Any]) -> "GetFinal":
        """Read the canonical fields; raises InvalidEncoding."""
        return cls(*expect_record(fields, "get final", (int, int)))


@dataclass(frozen=True, slots=True)
class FinalMessage:
    """A final block and its proof."""

    KIND: ClassVar[int] = 11
    block: Block
    certificate: Certificate
    """Precommits of a quorum."""

    def to_fields(self) -> list[Any]:
        """The canonical fields."""
        return [self.block.to_record(), self.certificate.to_record()]

    @classmethod
    def from_fields(cls, fields: list[Any]) -> "FinalMessage":
        """Read the canonical fields; raises InvalidEncoding."""
        block, certificate = expect_record(fields, "final message", (list, list))
        return cls(Block.from_record(block), Certificate.from_record(certificate))


@dataclass(frozen=True, slots=True)
class GetLight:
    """Ask for the light block of a height where members change; it comes back as a :class:`LightMessage`."""

    KIND: ClassVar[int] = 19
    height: int
    """The one wanted."""
    low: int
    """A block that is lower than the wanted one is as good if it is above this height,"""
    high: int
    """and a higher one if it is below this height."""

    def to_fields(self) -> list[Any]:
        """The canonical fields."""
        return [self.height, self.low, self.high]

    @classmethod
    def from_fields(cls, fields: list[Any]) -> "GetLight":
        """Read the canonical fields; raises InvalidEncoding."""
        return cls(*expect_record(fields, "get light", (int, int, int)))


@dataclass(frozen=True, slots=True)
class LightMessage:
    """A light block with the header below it, or the word that there is none."""

    KIND: ClassVar[int] = 20
    height: int
    """The height that was asked for."""
    block: LightBlock | None

    def to_fields(self) -> list[Any]:
        """The canonical fields."""
        return [self.height, [] if self.block is None else [self.block.to_record()]]

    @classmethod
    def from_fields(cls, fields: list[Any]) -> "LightMessage":
        """Read the canonical fields; raises InvalidEncoding."""
        height, block = expect_record(fields, "light message", (int, list))
        held = expect_record(block, "light message", (list,)) if block else [None]
        return cls(height, None if held[0] is None else LightBlock.from_record(held[0]))


@dataclass(frozen=True, slots=True)
class GetCandidate:
    """Ask for a block of the open height; it comes back as a :class:`CandidateMessage`."""

    KIND: ClassVar[int] = 12
    block_hash: Hash

    def to_fields(self) -> list[Any]:
        """The canonical fields."""
        return [self.block_hash]

    @classmethod
    def from_fields(cls, fields: list[Any]) -> "GetCandidate":
        """Read the canonical fields; raises InvalidEncoding."""
        (block_hash,) = expect_record(fields, "get candidate", (bytes,))
        return cls(expect_size(block_hash, HASH_SIZE, "get candidate hash"))


@dataclass(frozen=True, slots=True)
class GetCertificate:
    """Ask for the prevotes that allow to lock on a block of the open height, as one :class:`CertificateMessage`."""

    KIND: ClassVar[int] = 13
    height: int
    attempt: int
    block_hash: Hash

    def to_fields(self) -> list[Any]:
        """The canonical fields."""
        return [self.height, self.attempt, self.block_hash]

    @classmethod
    def from_fields(cls, fields: list[Any]) -> "GetCertificate":
        """Read the canonical fields; raises InvalidEncoding."""
        height, attempt, block_hash = expect_record(fields, "get certificate", (int, int, bytes))
        return cls(height, attempt, expect_size(block_hash, HASH_SIZE, "get certificate hash"))


@dataclass(frozen=True, slots=True)
class CertificateMessage:
    """Prevotes of a quorum for one block of the open height."""

    KIND: ClassVar[int] = 14
    certificate: Certificate

    def to_fields(self) -> list[Any]:
        """The canonical fields."""
        return [self.certificate.to_record()]

    @classmethod
    def from_fields(cls, fields: list[Any]) -> "CertificateMessage":
        """Read the canonical fields; raises InvalidEncoding."""
        (certificate,) = expect_record(fields, "certificate message", (list,))
        return cls(Certificate.from_record(certificate))


@dataclass(frozen=True, slots=True)
class GetPosts:
    """Ask for posts of a phase; each comes back as a :class:`PostMessage`."""

    KIND: ClassVar[int] = 6
    round: int
    phase: int
    members: Bitmap
    """Members whose posts the asker lacks."""

    def to_fields(self) -> list[Any]:
        """The canonical fields."""
        return [self.round, self.phase, self.members]

    @classmethod
    def from_fields(cls, fields: list[Any]) -> "GetPosts":
        """Read the canonical fields; raises InvalidEncoding."""
        round_number, phase, members = expect_record(fields, "get posts", (int, int, bytes))
        return cls(round_number, phase, _expect_bitmap(members))


@dataclass(frozen=True, slots=True)
class GetVotes:
    """Ask for votes for the open height; each comes back as a :class:`VoteMessage`."""

    KIND: ClassVar[int] = 7
    height: int
    kind: VoteKind
    attempt: int
    members: Bitmap
    """Members whose votes the asker lacks."""

    def to_fields(self) -> list[Any]:
        """The canonical fields."""
        return [self.height, int(self.kind), self.attempt, self.members]

    @classmethod
    def from_fields(cls, fields: list[Any]) -> "GetVotes":
        """Read the canonical fields; raises InvalidEncoding."""
        height, kind, attempt, members = expect_record(fields, "get votes", (int, int, int, bytes))
        return cls(height, read_kind(kind), attempt, _expect_bitmap(members))


@dataclass(frozen=True, slots=True)
class GetContent:
    """Ask for a chunk of content-addressed bytes: a payload or a knowledge."""

    KIND: ClassVar[int] = 8
    content_hash: Hash
    offset: int
    """First byte wanted."""

    def to_fields(self) -> list[Any]:
        """The canonical fields."""
        return [self.content_hash, self.offset]

    @classmethod
    def from_fields(cls, fields: list[Any]) -> "GetContent":
        """Read the canonical fields; raises InvalidEncoding."""
        content_hash, offset = expect_record(fields, "get content", (bytes, int))
        return cls(expect_size(content_hash, HASH_SIZE, "get content hash"), offset)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of content-addressed bytes, at most ``CHUNK_SIZE``; empty: the sender does not hold them."""

    KIND: ClassVar[int] = 9
    content_hash: Hash
    offset: int
    """Place of the first byte."""
    data: bytes = field(repr=False)

    def to_fields(self) -> list[Any]:
        """The canonical fields."""
        return [self.content_hash, self.offset, self.data]

    @classmethod
    def from_fields(cls, fields: list[Any]) -> "Chunk":
        """Read the canonical fields; raises InvalidEncoding."""
        content_hash, offset, data = expect_record(fields, "chunk", (bytes, int, bytes))
        return cls(expect_size(content_hash, HASH_SIZE, "chunk hash"), offset, data)


@dataclass(frozen=True, slots=True)
class GetPayloads:
    """Ask for the small payloads of a final block at once, as one :class:`Payloads`."""

    KIND: ClassVar[int] = 15
    height: int

    def to_fields(self) -> list[Any]:
        """The canonical fields."""
        return [self.height]

    @classmethod
    def from_fields(cls, fields: list[Any]) -> "GetPayloads":
        """Read the canonical fields; raises InvalidEncoding."""
        return cls(*expect_record(fields, "get payloads", (int,)))


@dataclass(frozen=True, slots=True)
class Payloads:
    """Payloads of a final block's posts, as many as the sender holds and has room for."""

    KIND: ClassVar[int] = 16
    height: int
    payloads: tuple[bytes, ...] = field(repr=False)
    """In the order of the posts; each says by its hash whose it is."""

    def to_fields(self) -> list[Any]:
        """The canonical fields."""
        return [self.height, list(self.payloads)]

    @classmethod
    def from_fields(cls, fields: list[Any]) -> "Payloads":
        """Read the canonical fields; raises InvalidEncoding."""
        height, payloads = expect_record(fields, "payloads", (int, list))
        return cls(height, tuple(expect_record(payloads, "payloads", [bytes] * len(payloads))))


GossipMessage = PostMessage | CandidateMessage | VoteMessage | EvidenceMessage | SessionMessage | ChangeMessage
"""Messages that are meant for everybody."""

Question = GetFinal | GetLight | GetPosts | GetVotes | GetContent | GetCandidate | GetCertificate | GetPayloads
"""Messages that cost the answering peer more than the asking one."""

Message = GossipMessage | Status | Question | Chunk | FinalMessage | LightMessage | CertificateMessage | Payloads

_KINDS: dict[int, Any] = {
    kind.KIND: kind
    for kind in (
        PostMessage,
        CandidateMessage,
        VoteMessage,
        Status,
        GetFinal,
        GetPosts,
        GetVotes,
        GetContent,
        Chunk,
        EvidenceMessage,
        FinalMessage,
        GetCandidate,
        GetCertificate,
        CertificateMessage,
        GetPayloads,
        Payloads,
        SessionMessage,
        ChangeMessage,
        GetLight,
        LightMessage,
    )
}


def encode_message(message: Message) -> bytes:
    """The message's one byte string."""
    return encode([message.KIND, message.to_fields()])


def decode_message(data: bytes) -> Message:
    """Read :func:`encode_message`'s bytes; raises InvalidEncoding."""
    kind, fields = expect_record(decode(data, MESSAGE_SIZE_MAX), "message", (int, list))
    if kind not in _KINDS:
        raise InvalidEncoding("message type", f"{kind} found, {min(_KINDS)} to {max(_KINDS)} expected")
    message: Message = _KINDS[kind].from_fields(fields)
    return message


def _expect_count(items: list[Any], count_max: int, name: str) -> None:
    if len(items) > count_max:
        raise InvalidEncoding(name, f"{len(items)} items found, at most {count_max} are allowed")


def _expect_bitmap(bitmap: Bitmap) -> Bitmap:
    if len(bitmap) > BITMAP_SIZE_MAX:
        raise InvalidEncoding("bitmap", f"{len(bitmap)} bytes found, at most {BITMAP_SIZE_MAX} are allowed")
    return bitmap
