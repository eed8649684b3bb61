"""Large contents between the simulating and the training processes: files, whose names go through the pipes.

A pipe would take a pickled copy for each call, and hold it until the other end reads it.
"""

from collections import Counter
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from fedchain.files.spool import write_named

LARGE_SIZE = 2**20
"""Size in bytes from which a content is handed over as a file."""


@dataclass(frozen=True, slots=True)
class Handed:
    """A content in a file."""

    path: Path

    def read(self) -> bytes:
        """The content."""
        return self.path.read_bytes()


class Handing(Protocol):
    """Hands contents to workers. The object that is sent in place of a content has a method ``read``."""

    def hand(self, data: bytes) -> Any:
        """The object to send in place of ``data``; give each one back with :meth:`done`."""

    def done(self, handed: Any) -> None:
        """The call that ``handed`` was sent with is answered."""


class Outgoing:
    """The :class:`Handing` to processes of this machine: one knowledge for many clients is one file, kept while a call
    needs it.

    Args:
        folder: the folder for the files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = count()
        self._last: tuple[bytes, Handed] | None = None
        self._uses: Counter[Handed] = Counter()  # unanswered calls by file

    def hand(self, data: bytes) -> bytes | Handed:
        """See :class:`Handing`."""
        if len(data) < LARGE_SIZE:
            return data
        if self._last is None or self._last[0] is not data:
            handed = Handed(self._folder / f"knowledge-{next(self._numbers)}")
            write_named(data, handed.path)
            before, self._last = self._last, (data, handed)
            if before is not None and not self._uses[before[1]]:
                before[1].path.unlink()
        self._uses[self._last[1]] += 1
        return self._last[1]

    def done(self, handed: bytes | Handed) -> None:
        """See :class:`Handing`."""
        if isinstance(handed, bytes):
            return
        self._uses[handed] -= 1
        if not self._uses[handed]:
            del self._uses[handed]
            if self._last is None or self._last[1] != handed:
                handed.path.unlink()


class Incoming:
    """Contents that arrive at a training process. Consecutive clients with the same content get the same object."""

    def __init__(self) -> None:
        self._last: tuple[Any, bytes] | None = None

    def take(self, handed: Any) -> bytes:
        """The content itself."""
        if isinstance(handed, bytes):
            return handed
        if self._last is None or self._last[0] != handed:
            self._last = None  # two of them need not be in memory at once
            self._last = handed, handed.read()
        return self._last[1]
