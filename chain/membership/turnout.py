"""Turnout: what one voter saw of a phase's posts. Precommits carry it, and the next block's certificate makes it count.

A minority cannot move what a certificate says: numbers are medians, and marks are what most voters say.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import Any

from fedchain.chain.encoding import expect_record
from fedchain.chain.exceptions import InvalidEncoding

MARKS_SIZE_MAX = 1_024
"""Most bytes of marks: a liar's vote takes a bounded place in a block."""

SEATS_MARKED = 8 * MARKS_SIZE_MAX
"""Seats that have a mark, the first ones. Nobody can say of a later one whether its member was late."""


@dataclass(frozen=True, slots=True)
class Turnout:
    """One voter's account of the phase that its block closes. Seats are bits, the least of the first byte first."""

    quorum_ms: int
    """Milliseconds from the phase's opening until the posts required were here."""
    waited_ms: int
    """Milliseconds for which the voter then waited for more."""
    punctual: bytes
    """Seats whose posts were here when it stopped waiting, or so long before the block that its miner had them."""
    awaited: bytes
    """Seats that it waited for during more than half of that time."""

    def to_record(self) -> list[Any]:
        """The canonical fields."""
        return [self.quorum_ms, self.waited_ms, self.punctual, self.awaited]

    @classmethod
    def from_record(cls, value: Any) -> "Turnout":
        """Read the canonical fields; raises InvalidEncoding.

        Marks are bounded here already: votes are kept by number before they are judged.
        """
        found = cls(*expect_record(value, "turnout", (int, int, bytes, bytes)))
        if (size := max(len(found.punctual), len(found.awaited))) > MARKS_SIZE_MAX:
            raise InvalidEncoding("turnout", f"{size} bytes of marks found, at most {MARKS_SIZE_MAX} are allowed")
        return found

    @property
    def size(self) -> int:
        """Bytes of its marks."""
        return len(self.punctual) + len(self.awaited)

    @property
    def is_canonical(self) -> bool:
        """Whether its marks have the one form: no empty byte at the end, and not too many."""
        both = self.punctual, self.awaited
        return not any(marks.endswith(b"\0") or len(marks) > MARKS_SIZE_MAX for marks in both)


def mark_seats(seats: Iterable[int]) -> bytes:
    """Marks of some seats."""
    marks = 0
    for seat in seats:
        marks |= 1 << seat if seat < SEATS_MARKED else 0
    return marks.to_bytes((marks.bit_length() + 7) // 8, "little")


def is_marked(marks: bytes, seat: int) -> bool:
    """Whether a seat is marked."""
    return seat < 8 * len(marks) and bool(marks[seat // 8] >> seat % 8 & 1)


def agree(turnouts: Collection[Turnout], faulty: int, seats: int) -> Turnout | None:
    """The turnout on which voters agree; None if no more than ``faulty`` of them say anything.

    Honest voters always do. So whoever leaves it out of a vote lies, and of a quorum's votes those that have one are
    honest ones for the most part.
    """
    count = len(turnouts)
    if count <= faulty:
        return None
    punctual = _agreed_marks([item.punctual for item in turnouts], seats)
    awaited = _agreed_marks([item.awaited for item in turnouts], seats)
    middle = (count - 1) // 2
    quorum_ms, waited_ms = (
        sorted(numbers)[middle]
        for numbers in ([item.quorum_ms for item in turnouts], [item.waited_ms for item in turnouts])
    )
    return Turnout(quorum_ms, waited_ms, punctual, awaited)


def _agreed_marks(said: Sequence[bytes], seats: int) -> bytes:
    """The seats that most have marked. Most say the same, so each set of marks is read once, and only disputed seats
    are counted."""
    counted = [(int.from_bytes(marks, "little"), times) for marks, times in Counter(said).items()]
    among = (1 << seats) - 1
    agreed = reduce(and_, (marks for marks, _ in counted)) & among
    disputed = (reduce(or_, (marks for marks, _ in counted)) & among) ^ agreed
    while disputed:
        mark = disputed & -disputed
        if 2 * sum(times for marks, times in counted if marks & mark) > len(said):
            agreed |= mark
        disputed ^= mark
    return agreed.to_bytes((agreed.bit_length() + 7) // 8, "little")
