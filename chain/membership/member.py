"""A member record: what the state says of one member, founder or newcomer. Its place is given once and never reused."""

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from fedchain.chain.encoding import expect_record, expect_size
from fedchain.chain.exceptions import InvalidEncoding
from fedchain.crypto.keys import PUBLIC_KEY_SIZE, PublicKey

WEIGHT_MAX = 4
"""Highest weight, in bits. It leaves room for the luck of honest members: one that is cut off gains nothing by bad
luck, and those with power get what it lacks. A member that did not mine has that many blocks in hand when it comes
back."""

WEIGHT_MIN = -12
"""Lowest weight: up to 4,096 times the others' hash rate buys no more blocks."""


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
    """Blocks in a row for which it was due, and which count neither a post nor a vote of it."""
    weight: int = 0
    """How much easier its blocks are than those of a member of weight 0, in bits: ``WEIGHT_MIN`` to ``WEIGHT_MAX``."""

    @property
    def is_changing(self) -> bool:
        """Whether a change of it is on its way."""
        return self.next is not self.standing

    def at(self, round_number: int, weight_max: int) -> "Member":
        """The record as a round begins. A newcomer, or one that is back, has been silent for no time.

        Args:
            round_number: the round.
            weight_max: highest weight of one that begins. One that comes back with less keeps what it has, or going
                away would pay.
        """
        if not self.is_changing or round_number < self.round:
            return self
        weight = min(self.weight, weight_max) if self.next is Standing.ACTIVE else self.weight
        return replace(self, standing=self.next, idle=0, weight=weight)

    def to_record(self) -> list[Any]:
        """The canonical fields. The weight is counted from the lowest, since numbers have no sign."""
        weight = self.weight - WEIGHT_MIN
        return [self.key, int(self.standing), int(self.next), self.round, self.sequence, self.idle, weight]

    @classmethod
    def from_record(cls, value: Any) -> "Member":
        """Read the canonical fields; raises InvalidEncoding."""
        kinds = (bytes, int, int, int, int, int, int)
        key, standing, following, first, sequence, idle, weight = expect_record(value, "member", kinds)
        expect_size(key, PUBLIC_KEY_SIZE, "member key")
        for number in (standing, following):
            if number not in tuple(Standing):
                raise InvalidEncoding("member standing", f"{number} found, 0 to {max(Standing)} expected")
        if weight > WEIGHT_MAX - WEIGHT_MIN:
            raise InvalidEncoding("member weight", f"{weight} found, at most {WEIGHT_MAX - WEIGHT_MIN} expected")
        return cls(key, Standing(standing), Standing(following), first, sequence, idle, weight + WEIGHT_MIN)
