"""Large contents between the simulating process and those that train: as files, whose names go through the queues.

A queue would pickle a content for each call, and hold what its other end has not asked for yet.
"""

import os
from collections import Counter
from dataclasses import dataclass
from itertools import count
from pathlib import Path

LARGE_SIZE = 2**20
"""Bytes from which on a content goes as a file."""


@dataclass(frozen=True, slots=True)
class Handed:
    """A content that is in a file."""

    path: Path


class Outgoing:
    """What is handed to training processes: the same knowledge to many clients, as one file while anybody needs it.

    Args:
        folder: where files are written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = count()
        self._last: tuple[bytes, Handed] | None = None
        self._uses: Counter[Handed] = Counter()  # calls that are not answered

    def hand(self, data: bytes) -> bytes | Handed:
        """What to send in place of ``data``; each is to be given back by :meth:`done`."""
        if len(data) < LARGE_SIZE:
            return data
        if self._last is None or self._last[0] is not data:
            handed = Handed(self._folder / f"knowledge-{next(self._numbers)}")
            handed.path.write_bytes(data)
            before, self._last = self._last, (data, handed)
            if before is not None and not self._uses[before[1]]:
                before[1].path.unlink()
        self._uses[self._last[1]] += 1
        return self._last[1]

    def done(self, handed: bytes | Handed) -> None:
        """The call that it was sent with is answered."""
        if isinstance(handed, bytes):
            return
        self._uses[handed] -= 1
        if not self._uses[handed]:
            del self._uses[handed]
            if self._last is None or self._last[1] != handed:
                handed.path.unlink()


class Incoming:
    """What is handed to a training process. Clients that are given the same content in turn get the same object."""

    def __init__(self) -> None:
        self._last: tuple[Handed, bytes] | None = None

    def take(self, handed: bytes | Handed) -> bytes:
        """The content itself."""
        if isinstance(handed, bytes):
            return handed
        if self._last is None or self._last[0] != handed:
            self._last = None  # two of them need not be in memory at once
            self._last = handed, handed.path.read_bytes()
        return self._last[1]


def hand_over(source: Path, target: Path) -> Handed:
    """Hand out a file under another name: what its own name stands for may change before it is read."""
    os.link(source, target)
    return Handed(target)


def take_over(handed: Handed) -> bytes:
    """Read a file that is of no more use to anybody."""
    data = handed.path.read_bytes()
    handed.path.unlink()
    return data
