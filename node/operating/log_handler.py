"""Log lines on standard error, where nobody waits for whoever reads them.

Behind a pipe may be a program that has stopped reading. A pipe is full after some hundred lines; a write to it would
hold the node until there is room, and with the node those that wait for its posts.
"""

import logging
import select
import sys
from typing import TextIO

PIECE = 1_024
"""Characters that are written at once: no more bytes than a pipe takes that has room at all."""

ROOM_MS = 100
"""How long a line waits for room. Those behind it do not: they are left out until it has been written."""

LEFT_OUT = "%d log lines were left out: nobody read standard error"


class StderrHandler(logging.StreamHandler[TextIO]):
    """Writes to the current standard error: a live panel replaces it, and puts lines above itself."""

    def __init__(self) -> None:
        super().__init__()
        self._rest = ""  # of a line for which there was no room
        self._left_out = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line, unless an earlier one still waits for room."""
        self.setStream(sys.stderr)
        try:
            self._write(0)
            if self._rest:
                self._left_out += 1
                return
            text = self._line(record)
            if self._left_out:
                about = (record.name, logging.WARNING, record.pathname, record.lineno)
                text = self._line(logging.LogRecord(*about, LEFT_OUT, (self._left_out,), None)) + text
            self._rest, self._left_out = text, 0
            self._write(ROOM_MS)
        except RecursionError:
            raise
        except Exception:
            self.handleError(record)

    def _line(self, record: logging.LogRecord) -> str:
        return self.format(record) + self.terminator

    def _write(self, room_ms: int) -> None:
        """Write what waits, as far as there is room."""
        while self._rest and self._has_room(room_ms):
            piece, self._rest = self._rest[:PIECE], self._rest[PIECE:]
            self.stream.write(piece)
            self.flush()

    def _has_room(self, room_ms: int) -> bool:
        """Whether a write returns at once, if only with an error; so it is for what is no file of the system's."""
        try:
            descriptor = self.stream.fileno()
        except (OSError, ValueError, AttributeError):
            return True
        watched = select.poll()
        watched.register(descriptor, select.POLLOUT)
        return bool(watched.poll(room_ms))
