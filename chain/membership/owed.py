"""Owed posts: the members that were due in a phase of the last rounds and are not counted yet, and what it began from.

A federation that counts late posts keeps them in its state, so everybody can check that each member counts at most once
for each round, and what a late post was made from.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from fedchain.chain.encoding import expect_record, expect_size
from fedchain.chain.exceptions import InvalidEncoding
from fedchain.crypto.hashing import HASH_SIZE, Hash


@dataclass(frozen=True, slots=True)
class Owed:
    """The posts that are still owed to one phase of an earlier round."""

    round: int
    """Round that the posts are made for, from 1."""
    phase: int
    """Place of the phase in its round, from 0."""
    knowledge_root: Hash
    """32 bytes: hash of the knowledge that the phase began from."""
    due: bytes
    """One bit for each seat, the least significant bit of the first byte first: whether its member owes a post. The
    last byte is not 0."""

    def __contains__(self, seat: int) -> bool:
        return seat // 8 < len(self.due) and bool(self.due[seat // 8] >> seat % 8 & 1)

    def __len__(self) -> int:
        return int.from_bytes(self.due).bit_count()

    @property
    def seats(self) -> Iterator[int]:
        """Seats of the members that owe a post, ascending."""
        return (seat for seat in range(8 * len(self.due)) if seat in self)

    def without(self, seats: Iterable[int]) -> "Owed":
        """The posts that are owed once those of ``seats`` are counted."""
        return replace(self, due=_bits(set(self.seats).difference(seats)))

    def to_record(self) -> list[Any]:
        """The canonical fields."""
        return [self.round, self.phase, self.knowledge_root, self.due]

    @classmethod
    def from_record(cls, value: Any) -> "Owed":
        """Read the canonical fields; raises InvalidEncoding."""
        round_number, phase, root, due = expect_record(value, "owed posts", (int, int, bytes, bytes))
        if not due or not due[-1]:
            raise InvalidEncoding("owed posts", f"{due.hex() or 'nothing'} found, the last byte of the seats is not 0")
        return cls(round_number, phase, expect_size(root, HASH_SIZE, "owed posts' knowledge"), due)


def owed_by(round_number: int, phase: int, knowledge_root: Hash, seats: Iterable[int]) -> Owed:
    """The posts that the members with these ``seats`` owe to a phase."""
    return Owed(round_number, phase, knowledge_root, _bits(seats))


def _bits(seats: Iterable[int]) -> bytes:
    number = sum(1 << seat for seat in set(seats))
    return number.to_bytes((number.bit_length() + 7) // 8, "little")
