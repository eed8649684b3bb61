"""The trace of a run: one hash over all that happened, which shows whether two runs are the same."""

from collections.abc import Sequence

from fedchain.crypto.hashing import HASH_SIZE, Hash, sha256
from fedchain.simulator.engine.clock import VirtualTimeLoop
from fedchain.simulator.engine.network import Parcel

LINES_MAX = 4_096
"""Largest number of lines that are hashed together; the end of a round ends such a stretch, too."""


class Trace:
    """Hashes deliveries, contributions, seals, heads and faults, in order, each with its virtual time."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        self._loop, self._hash = loop, bytes(HASH_SIZE)
        self._lines: list[bytes] = []  # not hashed yet

    def deliver(self, receiver: int, sender: int, parcel: Parcel) -> None:
        """A parcel reaches a peer."""
        lines = self._lines
        lines.append(b"%d %d %d %b" % (self._loop.now_ms(), receiver, sender, parcel.identity))
        if len(lines) >= LINES_MAX:
            self.write()

    def deliver_to_all(self, receivers: Sequence[int], sender: int, parcel: Parcel) -> None:
        """A parcel reaches some peers at one moment, one after the other."""
        before, behind = b"%d " % self._loop.now_ms(), b" %d %b" % (sender, parcel.identity)
        lines = [b"%b%d%b" % (before, receiver, behind) for receiver in receivers]
        while lines:
            room = max(1, LINES_MAX - len(self._lines))
            self._lines += lines[:room]
            if len(self._lines) >= LINES_MAX:
                self.write()
            lines = lines[room:]

    def note(self, number: int, kind: str, detail: bytes) -> None:
        """Something else happened to a peer."""
        self._lines.append(f"{self._loop.now_ms()} {number} {kind} ".encode() + detail)

    def write(self) -> Hash:
        """Hash the lines behind the hash of all before them, so that they need not be kept; return that hash."""
        self._hash = sha256(self._hash + b"".join(self._lines))
        self._lines.clear()
        return self._hash
