"""Log lines on standard error, where nobody waits for whoever reads them.

Behind a pipe may be a program that has stopped reading. A pipe is full after some hundred lines; a write to it would
hold the node until there is room, and with the node those that wait for its posts. A file may lie on a disk that is
full. Either way lines are left out and counted, and one that was begun is written to its end once there is room.
"""

import logging
import os
import select
import sys
from io import TextIOWrapper
from typing import TextIO

ROOM_MS = 100
"""How long a line waits for room. Those behind it do not: they are left out until it has been written."""

LEFT_OUT = "%d log lines were left out: standard error had no room for them"


class StderrHandler(logging.StreamHandler[TextIO]):
    """Writes to the current standard error: a live panel replaces it, and puts lines above itself."""

    def __init__(self) -> None:
        super().__init__()
        self._rest = b""  # of a line for which there was no room
        self._left_out = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line, unless an earlier one still waits for room."""
        self.setStream(sys.stderr)
        try:
            if (file := _file_of(self.stream)) is None:
                super().emit(record)
                return
            self._write(file, 0)
            if self._rest:
                self._left_out += 1
                return
            text = self._line(record)
            if self._left_out:
                about = (record.name, logging.WARNING, record.pathname, record.lineno)
                text = self._line(logging.LogRecord(*about, LEFT_OUT, (self._left_out,), None)) + text
            self._rest, self._left_out = text.encode(file.encoding, file.errors or "strict"), 0
            self._write(file, ROOM_MS)
        except RecursionError:
            raise
        except Exception:
            self.handleError(record)

    def _line(self, record: logging.LogRecord) -> str:
        return self.format(record) + self.terminator

    def _write(self, file: TextIOWrapper, room_ms: int) -> None:
        """Write what waits, as far as there is room.

        The file's own buffer would keep a part of a line that a disk refuses, and take no more.
        """
        try:
            while self._rest and _has_room(file.fileno(), room_ms):
                file.flush()
                written = os.write(file.fileno(), self._rest[: select.PIPE_BUF])
                self._rest = self._rest[written:]
        except OSError:  # a full disk has no room either, and a reader that is gone never has any
            return


def _file_of(stream: TextIO) -> TextIOWrapper | None:
    """The stream, if it is a file of the system's: a write to any other returns at once."""
    try:
        return stream if isinstance(stream, TextIOWrapper) and stream.fileno() >= 0 else None
    except (OSError, ValueError):
        return None


def _has_room(descriptor: int, room_ms: int) -> bool:
    """Whether a write of ``PIPE_BUF`` bytes returns at once, if only with an error: a pipe with room takes as many."""
    watched = select.poll()
    watched.register(descriptor, select.POLLOUT)
    return bool(watched.poll(room_ms))
