"""Pipes between an executor and one of its processes: a sender goes on at once, and a process that is gone is noticed.

Each process has pipes of its own, so nothing that it leaves behind, be it half a message, concerns another one.
"""

import os
import select
import struct
import threading
from collections import deque
from contextlib import suppress

HEADER = struct.Struct("<Q")
"""Length of the message that follows, in bytes."""

READ_SIZE = 2**16
"""Bytes that are read at a time: as many as a pipe holds."""

POLL_MS = 1000
"""How often a thread that waits for room looks whether its end was closed."""


class Outlet:
    """The end of a pipe that is written to. A message that the pipe has no room for waits until a thread writes it.

    Messages that nobody reads any more are dropped: the other pipe, or the wait for the process, shows that it is gone.

    Args:
        descriptor: of the end, which belongs to this object from now on.
    """

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._waiting: deque[memoryview] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def send(self, message: bytes) -> None:
        """Send a message."""
        with self._changed:
            rest = memoryview(HEADER.pack(len(message)) + message)
            if not self._waiting:
                rest = self._write(rest)
            if rest:
                self._waiting.append(rest)
                self._wake()

    def close(self) -> None:
        """Close the end; what still waits is dropped."""
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
        os.close(self._descriptor)

    def _wake(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_waiting, daemon=True)
            self._thread.start()
        self._changed.notify()

    def _write_waiting(self) -> None:
        """Write what waits, in a thread."""
        writable = select.poll()
        writable.register(self._descriptor, select.POLLOUT)
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_closed)
                if self._is_closed:
                    return
                first = self._waiting[0]
            writable.poll(POLL_MS)
            rest = self._write(first)
            with self._changed:
                if rest:
                    self._waiting[0] = rest
                else:
                    self._waiting.popleft()

    def _write(self, piece: memoryview) -> memoryview:
        """Write as much as the pipe has room for, and return the rest."""
        with suppress(BlockingIOError):
            while piece:
                try:
                    piece = piece[os.write(self._descriptor, piece) :]
                except BrokenPipeError:
                    return memoryview(b"")
        return piece


class Inlet:
    """The end of a pipe that is read.

    Args:
        descriptor: of the end, which belongs to this object from now on.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._held = bytearray()
        self._is_closed = False

    def fileno(self) -> int:
        """Descriptor of the end."""
        return self._descriptor

    @property
    def is_in_a_message(self) -> bool:
        """Whether a message has begun that is not there yet."""
        return bool(self._held)

    def read(self) -> list[bytes]:
        """Wait for something, and return the messages that are whole now, if any.

        Raises:
            EOFError: nobody can write any more.
        """
        data = os.read(self._descriptor, READ_SIZE)
        if not data:
            raise EOFError
        self._held += data
        messages = []
        begin = 0
        with memoryview(self._held) as held:
            while begin + HEADER.size <= len(held):
                end = begin + HEADER.size + HEADER.unpack_from(held, begin)[0]
                if end > len(held):
                    break
                messages.append(bytes(held[begin + HEADER.size : end]))
                begin = end
        del self._held[:begin]
        return messages

    def close(self) -> None:
        """Close the end."""
        if not self._is_closed:
            self._is_closed = True
            os.close(self._descriptor)
