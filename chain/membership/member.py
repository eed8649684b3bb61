"""A member record: what the state says of one member, founder or newcomer. Its place is given once and never reused."""

from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

from fedchain.chain.encoding import encode, expect_record, expect_size
from fedchain.chain.exceptions import InvalidEncoding
from fedchain.crypto.keys import PUBLIC_KEY_SIZE, PublicKey

WEIGHT_MAX = 4
"""Highest weight, in bits. It leaves room for the luck of honest members: one that is cut off gains nothing by bad
luck, and those with power get what it lacks. A member that did not mine has that many blocks in hand when it comes
back."""

WEIGHT_MIN = -12
"""Lowest weight: up to 4,096 times the others' hash rate buys no more blocks."""


SHORTENED_MAX = 64
"""How often the longest wait for a member is shortened at most: to a five-thousandth of the timeout."""


class Standing(IntEnum):
    """Whether a member counts."""

    ACTIVE = 0
    """It may vote, post and mine, and counts in every quorum, unless it was convicted."""
    COMING = 1
    """It joins, and does not count yet."""
    AWAY = 2
    """It was silent for too long, and counts again once it is back."""
    LEFT = 3
    """It left, for good."""
    REMOVED = 4
    """The others took it out, for good."""

    @property
    def is_for_good(self) -> bool:
        """Whether it is never a member again."""
        return self in (Standing.LEFT, Standing.REMOVED)


class Due(IntEnum):
    """Whether a member owed a post to the phase that the last block closed, which counts posts of participants."""

    NOT = 0
    """It did not, or the block says nothing of it."""
    ONCE = 1
    """It did."""
    IN_VAIN = 2
    """It did, and was waited for, and the block does not count it."""


@dataclass(frozen=True, slots=True)
class FormerKey:
    """The key that a member had before its own."""

    key: PublicKey
    """32 bytes: the former key."""
    height: int
    """Last height that it decided on: that of the block that counted the change."""
    round: int
    """Last round in which it is remembered, if its member is not convicted."""
    is_liable: bool
    """Whether two of its statements still convict the member: not if the others let the member have another key."""

    def to_record(self) -> list[Any]:
        """The canonical fields."""
        return [self.key, self.height, self.round, int(self.is_liable)]

    @classmethod
    def from_record(cls, value: Any) -> "FormerKey":
        """Read the canonical fields; raises InvalidEncoding."""
        key, height, round_number, is_liable = expect_record(value, "former key", (bytes, int, int, int))
        expect_size(key, PUBLIC_KEY_SIZE, "former key")
        return cls(key, height, round_number, bool(is_liable))


@dataclass(frozen=True, slots=True)
class Member:
    """One member's record."""

    key: PublicKey
    """32 bytes: its public key."""
    standing: Standing
    """Whether it counts now."""
    next: Standing
    """Its standing from ``round`` on; the same as ``standing`` if no change is on its way."""
    round: int
    """First round of ``next``."""
    sequence: int = 0
    """Changes of it that the chain counts so far."""
    idle: int = 0
    """Blocks in a row to which it owed a post, and which have neither a post nor a vote of it."""
    weight: int = 0
    """How much easier its blocks are than those of a member of weight 0, in bits: ``WEIGHT_MIN`` to ``WEIGHT_MAX``."""
    former: FormerKey | None = None
    """The key that it had lately; None if it had no other one."""
    due: Due = Due.NOT
    """Whether it owed a post to the phase that the last block closed."""
    owed_ms: int = 0
    """How long others waited for it, in milliseconds, as far as that is not paid back."""
    shortened: int = 0
    """How often an eighth was taken off the longest wait for it, which is the timeout where that is 0."""
    since_ms: int = 0
    """Time of the chain at which it began to count, in milliseconds since the Unix epoch; 0: it is a founder that was
    never away."""
    first: PublicKey = b""
    """32 bytes: the key with which it came; empty if it has that one."""
    decided: int = 0
    """Number of its changes that others approved of, its joining included."""
    _encoded: bytes = field(init=False, default=b"", compare=False, repr=False)

    @property
    def came_with(self) -> PublicKey:
        """32 bytes: the key with which it came, by which others name it for ever."""
        return self.first or self.key

    @property
    def is_changing(self) -> bool:
        """Whether a change of it is on its way."""
        return self.next is not self.standing

    @property
    def is_settled(self) -> bool:
        """Whether no round alone changes it: no change is on its way, and no former key is to be forgotten."""
        return self.former is None and self.next is self.standing

    def key_at(self, height: int) -> PublicKey:
        """32 bytes: the key with which it took part in deciding a height, the head's or the next one."""
        return self.former.key if self.former is not None and height <= self.former.height else self.key

    def at(self, round_number: int, weight_max: int, now_ms: int, *, is_convicted: bool = False) -> "Member":
        """The record as a round begins. A newcomer, or one that is back, has been silent for no time.

        Args:
            round_number: the round.
            weight_max: highest weight of one that begins. One that comes back with less keeps what it has, or going
                away would pay.
            now_ms: time of the chain.
            is_convicted: whether it was convicted. The key by which it may have been is remembered for ever.
        """
        record = self
        if self.former is not None and round_number > self.former.round and not is_convicted:
            record = replace(record, former=None)
        if not self.is_changing or round_number < self.round:
            return record
        record = replace(record, standing=self.next, idle=0)
        if self.next is not Standing.ACTIVE:
            return record
        return replace(record, weight=min(self.weight, weight_max), since_ms=now_ms)

    def encode(self) -> bytes:
        """The canonical bytes. A block changes few records, so the states of a chain share them."""
        if not self._encoded:
            object.__setattr__(self, "_encoded", encode(self.to_record()))
        return self._encoded

    def to_record(self) -> list[Any]:
        """The canonical fields. The weight is counted from the lowest, since numbers have no sign."""
        weight, former = self.weight - WEIGHT_MIN, [] if self.former is None else [self.former.to_record()]
        said = int(self.standing), int(self.next), self.round, self.sequence, self.idle
        came = [self.first] if self.first else []
        waits = int(self.due), self.owed_ms, self.shortened
        return [self.key, *said, weight, former, *waits, self.since_ms, came, self.decided]

    @classmethod
    def from_record(cls, value: Any) -> "Member":
        """Read the canonical fields; raises InvalidEncoding."""
        kinds = (bytes, int, int, int, int, int, int, list, int, int, int, int, list, int)
        found = expect_record(value, "member", kinds)
        key, standing, following, *counts, weight, former, due, owed_ms, shortened, since_ms, came, decided = found
        expect_size(key, PUBLIC_KEY_SIZE, "member key")
        for number in (standing, following):
            if number > Standing.REMOVED:
                raise InvalidEncoding("member standing", f"{number} found, 0 to {Standing.REMOVED} expected")
        if weight > WEIGHT_MAX - WEIGHT_MIN:
            raise InvalidEncoding("member weight", f"{weight} found, at most {WEIGHT_MAX - WEIGHT_MIN} expected")
        if due > Due.IN_VAIN:
            raise InvalidEncoding("member due", f"{due} found, 0 to {Due.IN_VAIN} expected")
        if shortened > SHORTENED_MAX:
            raise InvalidEncoding("member shortened", f"{shortened} found, at most {SHORTENED_MAX} expected")
        (had,) = expect_record(former, "member former", (list,)) if former else (None,)
        known = None if had is None else FormerKey.from_record(had)
        (first,) = expect_record(came, "member came", (bytes,)) if came else (b"",)
        if came and expect_size(first, PUBLIC_KEY_SIZE, "member came") == key:
            raise InvalidEncoding("member came", "the key that it has is not written twice")
        begin, sequence, idle = counts
        waits = Due(due), owed_ms, shortened
        said = begin, sequence, idle, weight + WEIGHT_MIN, known, *waits, since_ms, first, decided
        return cls(key, Standing(standing), Standing(following), *said)
