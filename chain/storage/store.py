"""The records that a node keeps: final blocks, open candidates, its own statements, and content-addressed bytes.

Everything else follows from these records. ``MemoryStore`` serves simulated peers and survives their simulated
crashes; ``Store`` in ``sqlite.py`` is a folder on disk.
"""

from collections.abc import Collection, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.chain.light.light_block import LightBlock
from fedchain.chain.post import Post, PostKey
from fedchain.chain.vote import Vote
from fedchain.crypto.hashing import Hash
from fedchain.files.spool import InMemory, Spools


@dataclass(frozen=True, slots=True)
class Contents:
    """Payloads and knowledges, each kept under its hash. A block has as many as members post."""

    by_hash: Mapping[Hash, bytes] = field(repr=False)
    """The bytes, by their SHA-256 of 32 bytes."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A valid block of the open height, which may still become final."""

    block: Block
    is_own: bool
    """Whether this node mined it: its own statements are kept even when another block becomes final."""


@dataclass(frozen=True, slots=True)
class Final:
    """A block that is final, with the proof."""

    block: Block
    certificate: Certificate
    """Precommits of a quorum."""
    state: bytes = field(repr=False)
    """The encoded state *before* the block, to which its header commits; empty for a block that was fetched later."""


Record = Final | Candidate | Vote | Post | LightBlock | Contents
"""A record that can be appended. Posts are the node's own, and votes its own or those of others on which its own rest:
after a crash the same bytes are sent again. Light blocks say who decided the heights of a chain whose members change
(``chain/light/held.py``)."""


class Storage(Protocol):
    """A node's persistent storage. It does not judge validity: records must be validated before they are appended.

    The heights from ``base`` to the head have a final block each. A node that joined late has a higher base, which
    goes down as older blocks are fetched.
    """

    @property
    def spools(self) -> Spools:
        """Begins contents that are to be appended once they are whole, where large ones fill no memory."""

    def append(self, records: Sequence[Record]) -> None:
        """Keep all of ``records`` or none; they are durable on return. A known record changes nothing.

        A final block ends the candidates of its height; those of others are dropped. Raises StoreError if the disk
        refuses.
        """

    def head(self) -> Final | None:
        """The highest final block, with the state before it; None at the start.

        A head on disk was judged like a block from the network when the storage was opened (``judge_stored``).
        """

    def base(self) -> int:
        """Lowest height from which on every final block is held; one above the head's height if none is."""

    def final(self, height: int) -> tuple[Block, Certificate] | None:
        """The final block at ``height`` with its certificate; None if it is not held."""

    def light_below(self, height: int) -> LightBlock | None:
        """The highest kept light block that is not above ``height``; None if there is none."""

    def light_above(self, height: int) -> LightBlock | None:
        """The lowest kept light block above ``height``; None if there is none."""

    def candidates(self) -> Iterator[Block]:
        """Candidates above the head."""

    def votes(self, height: int) -> Iterator[Vote]:
        """Votes at ``height``, by attempt and kind: our own, and those of others on which they rest."""

    def posts(self, round_number: int) -> Iterator[Post]:
        """Own posts of ``round_number`` and later."""

    def content(self, content_hash: Hash) -> bytes | None:
        """Bytes by their hash; None if they are not held. Damaged bytes count as not held."""

    def holds_content(self, content_hash: Hash) -> bool:
        """Whether a content is held, as far as can be known without reading it."""

    def content_part(self, content_hash: Hash, start: int, size: int) -> bytes | None:
        """Up to ``size`` bytes of a content from ``start`` on; otherwise like :meth:`content`."""

    def retain(self, needed: Collection[Hash]) -> None:
        """Drop every content that is not ``needed``; the other records stay. Raises StoreError."""

    def size_bytes(self) -> int:
        """Approximate size of everything that is kept, in bytes."""


class MemoryStore:
    """A storage without a disk. It survives a simulated crash because it outlives the node.

    Args:
        pool: final blocks and certificates of all storages of a simulation, which then share one copy of equal ones.
        contents: the mapping that keeps contents; None: one in memory, for this storage alone.
    """

    def __init__(
        self, pool: dict[Hash, Any] | None = None, contents: MutableMapping[Hash, bytes] | None = None
    ) -> None:
        self._pool = {} if pool is None else pool
        self._finals: dict[int, Final] = {}
        self._head = 0
        self._base = 1
        self._lights: dict[int, LightBlock] = {}
        self._candidates: dict[Hash, Candidate] = {}
        self._votes: dict[Hash, Vote] = {}
        self._posts: dict[PostKey, Post] = {}
        self._contents: MutableMapping[Hash, bytes] = {} if contents is None else contents

    @property
    def spools(self) -> Spools:
        """See :class:`Storage`."""
        return InMemory

    def append(self, records: Sequence[Record]) -> None:
        """See :class:`Storage`."""
        for record in records:
            match record:
                case Contents(by_hash):
                    self._contents.update(by_hash)
                case Final():
                    self._finalize(record)
                case Candidate(block):
                    if block.header.height > self._head:
                        self._candidates.setdefault(block.hash, record)
                case Vote():
                    self._votes.setdefault(record.hash, record)
                case Post():
                    self._posts.setdefault(record.key, record)
                case LightBlock():
                    self._lights.setdefault(record.header.height, record)

    def _finalize(self, record: Final) -> None:
        height = record.block.header.height
        if height in self._finals:
            return
        block = self._pool.setdefault(record.block.hash, record.block)
        # Blocks of the same hash may differ in the miner's signature, and a height has many possible certificates.
        block = block if block == record.block else record.block
        certificate = self._pool.setdefault(record.certificate.hash, record.certificate)
        if height > self._head:
            if (before := self._finals.get(self._head)) is not None:
                self._finals[self._head] = Final(before.block, before.certificate, b"")
            self._base = self._base if height == self._head + 1 else height
            self._head = height
            self._finals[height] = Final(block, certificate, record.state)
            kept = {k: item for k, item in self._candidates.items() if item.is_own or item.block.header.height > height}
            self._candidates = kept
        else:
            self._finals[height] = Final(block, certificate, b"")
            while self._base - 1 in self._finals:
                self._base -= 1

    def head(self) -> Final | None:
        """See :class:`Storage`."""
        return self._finals.get(self._head)

    def base(self) -> int:
        """See :class:`Storage`."""
        return self._base

    def final(self, height: int) -> tuple[Block, Certificate] | None:
        """See :class:`Storage`."""
        record = self._finals.get(height)
        return None if record is None else (record.block, record.certificate)

    def light_below(self, height: int) -> LightBlock | None:
        """See :class:`Storage`."""
        found = max((place for place in self._lights if place <= height), default=None)
        return None if found is None else self._lights[found]

    def light_above(self, height: int) -> LightBlock | None:
        """See :class:`Storage`."""
        found = min((place for place in self._lights if place > height), default=None)
        return None if found is None else self._lights[found]

    def candidates(self) -> Iterator[Block]:
        """See :class:`Storage`."""
        held = tuple(self._candidates.values())
        return (item.block for item in held if item.block.header.height > self._head)

    def votes(self, height: int) -> Iterator[Vote]:
        """See :class:`Storage`."""
        return iter(sorted((vote for vote in self._votes.values() if vote.height == height), key=_slot))

    def posts(self, round_number: int) -> Iterator[Post]:
        """See :class:`Storage`."""
        return (post for post in tuple(self._posts.values()) if post.round >= round_number)

    def content(self, content_hash: Hash) -> bytes | None:
        """See :class:`Storage`."""
        return self._contents.get(content_hash)

    def holds_content(self, content_hash: Hash) -> bool:
        """See :class:`Storage`."""
        return content_hash in self._contents

    def content_part(self, content_hash: Hash, start: int, size: int) -> bytes | None:
        """See :class:`Storage`."""
        data = self._contents.get(content_hash)
        return None if data is None else data[start : start + size]

    def retain(self, needed: Collection[Hash]) -> None:
        """See :class:`Storage`."""
        for item in [held for held in self._contents if held not in needed]:
            del self._contents[item]

    def size_bytes(self) -> int:
        """See :class:`Storage`; contents only."""
        return sum(map(len, self._contents.values()))


def _slot(vote: Vote) -> tuple[int, int, int]:
    return vote.slot
