"""Bytes in several pieces that are read as if they were joined, so that those of a whole model need not be."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from fedchain.learning.payload.document import Buffer


class Joined:
    """Pieces as one buffer. A part that lies in one of them is a view of it; one that lies in several is a copy.

    Args:
        pieces: the pieces in their order.
    """

    def __init__(self, pieces: Sequence[Buffer]) -> None:
        self.pieces = [memoryview(piece) for piece in pieces if len(piece)]
        self._ends = list(accumulate(len(piece) for piece in self.pieces))

    def __len__(self) -> int:
        """Number of bytes."""
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, place: int | slice) -> int | memoryview:
        """A byte, from 0 on, or a part."""
        if isinstance(place, int):
            number = bisect_right(self._ends, place)
            return self.pieces[number][place - self._ends[number]]
        begin, end, _ = place.indices(len(self))
        found = []
        for number in range(bisect_right(self._ends, begin), len(self.pieces)):
            first = self._ends[number] - len(self.pieces[number])
            if first >= end:
                break
            found.append(self.pieces[number][max(begin - first, 0) : end - first])
        return found[0] if len(found) == 1 else memoryview(b"".join(found))
