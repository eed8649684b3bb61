"""The trace of a run: one hash over all that happened, which shows whether two runs are the same."""

from collections.abc import Sequence
from functools import cache

from fedchain.crypto.hashing import HASH_SIZE, Hash, sha256
from fedchain.simulator.engine.clock import VirtualTimeLoop
from fedchain.simulator.engine.network import Parcel

LINES_MAX = 4_096
"""Largest number of lines that are hashed together; the end of a round ends such a stretch, too."""


class Trace:
    """Hashes deliveries, contributions, seals, heads and faults, in order, each with its virtual time."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        self._loop, self._hash = loop, bytes(HASH_SIZE)
        self._lines: list[bytes] = []  # not hashed yet; an item may be several lines
        self._count = 0  # of lines

    def deliver(self, receiver: int, sender: int, parcel: Parcel) -> None:
        """A parcel reaches a peer."""
        self._lines.append(b"%d %d %d %b" % (self._loop.now_ms(), receiver, sender, parcel.identity))
        self._add(1)

    def deliver_to_all(self, receivers: Sequence[int], sender: int, parcel: Parcel) -> None:
        """A parcel reaches some peers at one moment, one after the other."""
        start, end = b"%d " % self._loop.now_ms(), b" %d %b" % (sender, parcel.identity)
        while receivers:
            some = receivers[: max(1, LINES_MAX - self._count)]
            self._lines.append(b"%b%b%b" % (start, (end + start).join(map(_digits, some)), end))
            self._add(len(some))
            receivers = receivers[len(some) :]

    def note(self, number: int, kind: str, detail: bytes) -> None:
        """Something else happened to a peer."""
        self._lines.append(f"{self._loop.now_ms()} {number} {kind} ".encode() + detail)
        self._count += 1

    def write(self) -> Hash:
        """Hash the lines behind the hash of all before them, so that they need not be kept; return that hash."""
        self._hash = sha256(self._hash + b"".join(self._lines))
        self._lines.clear()
        self._count = 0
        return self._hash

    def _add(self, count: int) -> None:
        """There are so many lines more."""
        self._count += count
        if self._count >= LINES_MAX:
            self.write()


@cache
def _digits(number: int) -> bytes:
    """A peer's number, as lines have it."""
    return b"%d" % number
