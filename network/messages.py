"""What peers say to each other. Every message has one byte string: a type number and the fields, canonically encoded.

Posts, blocks and votes are *gossip*: they are published to everyone, may be lost, and are repaired by asking. The
others go from one peer to another: a status shows what a peer holds, and whoever lacks something asks for it.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from fedchain.chain.block import Block
from fedchain.chain.encoding import decode, encode, expect_record, expect_size
from fedchain.chain.exceptions import InvalidEncoding
from fedchain.chain.transaction import Transaction
from fedchain.chain.vote import Vote
from fedchain.crypto.hashing import HASH_SIZE, Hash

LOCATOR_MAX = 64
"""Hashes in a locator: enough for 2⁵⁴ blocks at doubling distances."""

BLOCKS_MAX = 16
"""Blocks in one answer."""

CANDIDATES_MAX = 16
"""Blocks without quorum that a status tells of."""

CHUNK_SIZE = 256 * 2**10
"""Bytes of content in one answer."""

MESSAGE_SIZE_MAX = 4 * 2**20
"""Bytes of one message; what is larger travels as content, in chunks."""

Bitmap = bytes
"""One bit per genesis member, in member order, least significant bit of the first byte first."""


@dataclass(frozen=True, slots=True)
class PostMessage:
    """Gossip: a member's post, with its payload if that is small."""

    KIND: ClassVar[int] = 1
    transaction: Transaction
    payload: bytes | None = field(repr=False)
    """The payload's bytes, or None: fetch it by its hash."""

    def to_fields(self) -> list[Any]:
        """The canonical fields."""
        return [self.transaction.to_record(), [] if self.payload is None else [self.payload]]

    @classmethod
    def from_fields(cls, fields: list[Any]) -> "PostMessage":
        """Read the canonical fields; raises InvalidEncoding."""
        transaction, payload = expect_record(fields, "post", (list, list))
        inline = expect_record(payload, "post payload", (bytes,)) if payload else [None]
        return cls(Transaction.from_record(transaction), inline[0])


@dataclass(frozen=True, slots=True)
class BlockMessage:
    """Gossip: a block; also the answer to :class:`GetBlocks`, one message per block."""

    KIND: ClassVar[int] = 2
    block: Block

    def to_fields(self) -> list[Any]:
        """The canonical fields."""
        return [self.block.to_record()]

    @classmethod
    def from_fields(cls, fields: list[Any]) -> "BlockMessage":
        """Read the canonical fields; raises InvalidEncoding."""
        (block,) = expect_record(fields, "block message", (list,))
        return cls(Block.from_record(block))


@dataclass(frozen=True, slots=True)
class VoteMessage:
    """Gossip: a vote."""

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
class Status:
    """What a peer holds: whoever sees something it lacks asks for it."""

    KIND: ClassVar[int] = 4
    head_hash: Hash
    """32 bytes: the sender's head."""
    height: int
    """Height of that head."""
    posts: Bitmap
    """Members whose post for the open phase the sender holds."""
    candidates: tuple[tuple[Hash, Bitmap], ...]
    """Head and blocks on top of it, each with the members whose votes the sender holds."""

    def to_fields(self) -> list[Any]:
        """The canonical fields."""
        return [self.head_hash, self.height, self.posts, [list(candidate) for candidate in self.candidates]]

    @classmethod
    def from_fields(cls, fields: list[Any]) -> "Status":
        """Read the canonical fields; raises InvalidEncoding."""
        head, height, posts, candidates = expect_record(fields, "status", (bytes, int, bytes, list))
        expect_size(head, HASH_SIZE, "status head")
        _expect_count(candidates, CANDIDATES_MAX, "status candidates")
        return cls(head, height, posts, tuple(cls._read_candidate(candidate) for candidate in candidates))

    @staticmethod
    def _read_candidate(value: Any) -> tuple[Hash, Bitmap]:
        block_hash, votes = expect_record(value, "status candidate", (bytes, bytes))
        return expect_size(block_hash, HASH_SIZE, "status candidate"), votes


@dataclass(frozen=True, slots=True)
class GetBlocks:
    """Ask for the blocks between what the asker has and a block that it heard of, oldest first."""

    KIND: ClassVar[int] = 5
    locator: tuple[Hash, ...]
    """Hashes of the asker's chain, newest first, at growing distances. (Bitcoin: block locator)"""
    stop: Hash
    """32 bytes: the block to arrive at."""

    def to_fields(self) -> list[Any]:
        """The canonical fields."""
        return [list(self.locator), self.stop]

    @classmethod
    def from_fields(cls, fields: list[Any]) -> "GetBlocks":
        """Read the canonical fields; raises InvalidEncoding."""
        locator, stop = expect_record(fields, "get blocks", (list, bytes))
        _expect_count(locator, LOCATOR_MAX, "locator")
        for item in expect_record(locator, "locator", [bytes] * len(locator)):
            expect_size(item, HASH_SIZE, "locator")
        return cls(tuple(locator), expect_size(stop, HASH_SIZE, "get blocks stop"))


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
        return cls(*expect_record(fields, "get posts", (int, int, bytes)))


@dataclass(frozen=True, slots=True)
class GetVotes:
    """Ask for votes on a block; each comes back as a :class:`VoteMessage`."""

    KIND: ClassVar[int] = 7
    block_hash: Hash
    members: Bitmap
    """Members whose votes the asker lacks."""

    def to_fields(self) -> list[Any]:
        """The canonical fields."""
        return [self.block_hash, self.members]

    @classmethod
    def from_fields(cls, fields: list[Any]) -> "GetVotes":
        """Read the canonical fields; raises InvalidEncoding."""
        block_hash, members = expect_record(fields, "get votes", (bytes, bytes))
        return cls(expect_size(block_hash, HASH_SIZE, "get votes block"), members)


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


GossipMessage = PostMessage | BlockMessage | VoteMessage
Message = GossipMessage | Status | GetBlocks | GetPosts | GetVotes | GetContent | Chunk

_KINDS: dict[int, Any] = {
    kind.KIND: kind
    for kind in (PostMessage, BlockMessage, VoteMessage, Status, GetBlocks, GetPosts, GetVotes, GetContent, Chunk)
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
