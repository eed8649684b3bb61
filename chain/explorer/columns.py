"""Counts over the whole chain, read once and kept in little memory for repeated questions.

There is one line for each final block, which saves a walk over the chain; new blocks add theirs.
"""

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fedchain.chain.block import Header, read_parts
from fedchain.chain.certificate import Certificate
from fedchain.chain.encoding import decode, encode, expect_record
from fedchain.chain.explorer.block_views import phase_name
from fedchain.chain.explorer.member_views import Counts
from fedchain.chain.explorer.views import BlockSummary
from fedchain.chain.genesis import Genesis
from fedchain.chain.membership.change import Change, ChangeKind
from fedchain.chain.storage.sqlite import Store
from fedchain.crypto.address import address
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.keys import PublicKey

KEY_SIZE = 8
"""Bytes that are kept of a post's hash; the block has the rest."""

STRANGER = -1
"""Place of a key that belongs to no member: only a chain that breaks the rules has one."""

OFFSET_MS_MAX = 2**62
"""Largest offset of a clock that is kept; valid votes show clocks up to ``CLOCK_MS_MAX``."""


@dataclass(frozen=True, slots=True)
class Line:
    """The values that are kept of a final block."""

    hash: Hash
    """32 bytes: the block."""
    height: int
    """Blocks before it, the genesis document included."""
    round: int
    """Round that it belongs to."""
    phase: int
    """Phase that it closes, from 0."""
    miner: PublicKey
    """32 bytes: the member that mined it."""
    knowledge_root: Hash
    """32 bytes: SHA-256 of the knowledge that its phase leaves behind."""
    time_ms: int
    """Its time, in milliseconds since the Unix epoch; see ``block_time_ms``."""
    mining_ms: int
    """How long it was mined, in milliseconds: the median of its voters' measurements."""
    attempt: int
    """Attempt in which its voters agreed, from 0."""
    senders: "array[int]"
    """Places of the members whose posts it counts."""
    sizes: "array[int]"
    """Bytes of their payloads."""
    voters: "array[int]"
    """Places of the members whose precommits made it final: those that the next block carries; for the head, those that
    are held."""
    offsets_ms: "array[int]"
    """By how much their clocks were ahead of their median, in milliseconds."""


@dataclass(slots=True)
class _Total:
    """Counts of one member that grow line by line."""

    posts: int = 0
    payload_bytes: int = 0
    last_round: int | None = None
    offsets_ms: "array[int]" = field(default_factory=lambda: array("q"))  # ascending

    def copy(self) -> "_Total":
        return _Total(self.posts, self.payload_bytes, self.last_round, self.offsets_ms[:])

    def counts(self, mined: int) -> Counts:
        votes = len(self.offsets_ms)
        offset = self.offsets_ms[(votes - 1) // 2] if votes else None
        return Counts(self.posts, self.payload_bytes, self.last_round, mined, votes, offset)


class Columns:
    """The lines of a chain's final blocks, oldest first."""

    def __init__(self, genesis: Genesis) -> None:
        self._genesis = genesis
        self._keys = {member: member for member in genesis.members}
        self._clear(1)

    def _clear(self, base: int) -> None:
        self._lines: list[Line] = []
        self._base = base
        self._next = base  # height that is read next
        self._is_open = False  # whether the last line was read before the block after it was there
        self._keyed = base - 1  # height up to which the keys that changes give are in the seats
        self._seats = dict(self._genesis.index)  # of founders, and of those that joined in a line
        self._totals = {place: _Total() for place in self._seats.values()}  # over all lines but an open one
        self._mined: dict[int, int] = {}  # by place
        self._post_keys = bytearray()  # the first KEY_SIZE bytes of the hash of each post
        self._post_heights = array("Q")

    def read(self, store: Store, base: int, head: int, count: int = 2**63) -> bool:
        """Read up to ``count`` blocks that are not known yet; return whether all up to the ``head`` are known now.

        Raises InvalidEncoding.
        """
        if base != self._base or head < self._next - 1 or not self._is_continued(store):
            self._clear(base)
        elif self._is_open and self._next <= head:
            self._forget_last()  # the next block says which votes made it final
        last = min(head, self._next + count - 1)
        following = _read_block(store, self._next) if self._next <= last else None
        for height in range(self._next, last + 1):
            found, following = following, _read_block(store, height + 1) if height < head else None
            if found is not None:
                self._add(store, found, following)
                if height < head:
                    self._total(self._lines[-1])
        self._next = max(self._next, last + 1)
        self._is_open = bool(self._lines) and self._lines[-1].height == head
        return self._next > head

    @property
    def height(self) -> int:
        """Height of the highest block that was read; one below the base if there is none."""
        return self._next - 1

    @property
    def seats(self) -> Mapping[PublicKey, int]:
        """The place of each key that a member had, as the founding document and the blocks that were read tell."""
        return self._seats

    def lines(self, first: int = 0, last: int = 2**63) -> Iterator[Line]:
        """The lines between two heights, oldest first; blocks that are not held have none."""
        start = bisect_left(self._lines, first, key=_height_of)
        yield from self._lines[start : bisect_right(self._lines, last, key=_height_of)]

    def lines_of_rounds(self, first: int, last: int) -> Iterator[Line]:
        """The lines between two rounds, oldest first."""
        start = bisect_left(self._lines, first, key=_round_of)
        yield from self._lines[start : bisect_right(self._lines, last, key=_round_of)]

    def summary(self, line: Line) -> BlockSummary:
        """The summary of a line's block."""
        return BlockSummary(
            height=line.height,
            hash=line.hash,
            round=line.round,
            phase=phase_name(self._genesis, line.round, line.phase),
            miner=address(line.miner),
            time_ms=line.time_ms,
            mining_time_ms=line.mining_ms,
            posts=len(line.senders),
            votes=len(line.voters),
        )

    def count(self, member: PublicKey) -> Counts:
        """The counts of one member."""
        place = self._seats.get(member, STRANGER)
        total = self._totals.get(place, _Total())
        if self._is_open and self._lines:
            total = total.copy()
            _count({place: total}, self._lines[-1])
        mined = self._mined.get(place, 0) + (self._is_open and self._place_of_miner(self._lines[-1]) == place)
        return total.counts(mined)

    def heights_of_post(self, prefix: str) -> list[int]:
        """Heights of blocks that may count a post whose hash begins with these hexadecimal digits."""
        digits = prefix[: 2 * KEY_SIZE]
        sought, found, place = bytes.fromhex(digits[: len(digits) // 2 * 2]), set[int](), -1
        while (place := self._post_keys.find(sought, place + 1)) >= 0:
            number, rest = divmod(place, KEY_SIZE)
            if rest == 0 and self._post_keys[place : place + KEY_SIZE].hex().startswith(digits):
                found.add(self._post_heights[number])
        return sorted(found)

    def _is_continued(self, store: Store) -> bool:
        """Whether the last line's block is still on the chain: a folder may have been cut back and filled again."""
        if not self._lines:
            return True
        last = self._lines[-1]
        return any(item == last.hash for item, _ in store.hashes(last.height, last.height))

    def _total(self, line: Line) -> None:
        _count(self._totals, line)
        place = self._place_of_miner(line)
        self._mined[place] = self._mined.get(place, 0) + 1

    def _place_of_miner(self, line: Line) -> int:
        return self._seats.get(line.miner, STRANGER)

    def _forget_last(self) -> None:
        line = self._lines.pop()
        self._next = line.height
        while self._post_heights and self._post_heights[-1] == line.height:
            self._post_heights.pop()
            del self._post_keys[-KEY_SIZE:]

    def _add(self, store: Store, found: "_Read", following: "_Read | None") -> None:
        header, posts = found.header, found.posts
        block_hash, height = header.hash, header.height
        if following is not None and following.carried is not None and following.header.parent_hash == block_hash:
            certificate = following.carried
        else:
            certificate = Certificate.from_record(decode(found.certificate, len(found.certificate)))
        before_ms = self._time_before(store, height)
        time_ms = certificate.clock_ms if before_ms is None else max(before_ms + 1, certificate.clock_ms)
        index, median = self._seats, certificate.clock_ms
        self._lines.append(
            Line(
                hash=block_hash,
                height=height,
                round=header.round,
                phase=header.phase,
                miner=self._keys.setdefault(header.miner, header.miner),
                knowledge_root=header.knowledge_root,
                time_ms=time_ms,
                mining_ms=certificate.mining_ms,
                attempt=certificate.attempt,
                senders=array("i", [index.get(post[2], STRANGER) for post in posts]),
                sizes=array("Q", [post[4] for post in posts]),
                voters=array("i", [index.get(vote.voter, STRANGER) for vote in certificate.votes]),
                offsets_ms=array("q", [_within(vote.clock_ms - median) for vote in certificate.votes]),
            )
        )
        if height > self._keyed:  # the newest block is read twice
            self._keyed = height
            for key, before in found.keys:
                if before in index:
                    index[key] = index[before]
                else:  # a newcomer, whose key may once have been another member's
                    index[key] = len(self._totals)
                    self._totals[index[key]] = _Total()
        for post in posts:
            self._post_keys += sha256(encode(post))[:KEY_SIZE]
            self._post_heights.append(height)

    def _time_before(self, store: Store, height: int) -> int | None:
        """Time of the block before the one at ``height``; None if no stored state leads there."""
        if self._lines and self._lines[-1].height == height - 1:
            return self._lines[-1].time_ms
        return store.time_before(height)


def _within(offset_ms: int) -> int:
    """By how much a clock is ahead, as a line can hold it: in a folder that was altered a vote may show any number."""
    return max(-OFFSET_MS_MAX, min(OFFSET_MS_MAX, offset_ms))


def _count(totals: Mapping[int, _Total], line: Line) -> None:
    """Add a line to the totals, which are by place; places without one are left out."""
    for sender, size in zip(line.senders, line.sizes, strict=True):
        if (total := totals.get(sender)) is not None:
            total.posts, total.payload_bytes = total.posts + 1, total.payload_bytes + size
            total.last_round = max(line.round, total.last_round or 0)
    for voter, offset_ms in zip(line.voters, line.offsets_ms, strict=True):
        if (total := totals.get(voter)) is not None:
            insort(total.offsets_ms, offset_ms)


def _height_of(line: Line) -> int:
    return line.height


def _round_of(line: Line) -> int:
    return line.round


class _Read(NamedTuple):
    """The parts of a final block that a line needs."""

    header: Header
    posts: list[list[Any]]  # their canonical fields
    carried: Certificate | None  # for the block before
    certificate: bytes
    keys: list[tuple[PublicKey, PublicKey]]  # keys that have a place from this block on, and those that had it


def _read_block(store: Store, height: int) -> _Read | None:
    """A final block; None if it is not held. Raises InvalidEncoding."""
    if (found := store.encoded(height)) is None:
        return None
    header, _, posts, carried, _, changes = read_parts(decode(found[0], len(found[0])))
    fields = [expect_record(post, "transaction", (int, int, bytes, bytes, int, bytes)) for post in posts]
    read = [Change.from_record(record) for record in changes]
    keys = [(change.member, b"") for change in read if change.kind is ChangeKind.JOIN]
    keys += [(change.key, change.member) for change in read if change.kind.gives_key]
    return _Read(header, fields, Certificate.from_record(carried[0]) if carried else None, found[1], keys)
