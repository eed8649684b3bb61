"""Assembly: the chunks of one content, put in order and hashed as they come. Pure; no I/O.

Where chunks are put together is the caller's choice: large contents go to a file.
"""

import hashlib
from collections.abc import Callable, Iterator

from fedchain.chain.exceptions import InvalidPayload, LimitReached
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.files.spool import InMemory, Spools
from fedchain.network.messages import CHUNK_SIZE

AHEAD_MAX = 32
"""Chunks that are taken, or asked for, beyond the first missing one: a chunk that comes too early waits in memory."""


Known = Callable[[Hash], bytes | None]
"""``known(content_hash)``: a content that this process has hashed already; None if there is none."""


def nothing_known(_: Hash) -> None:
    """Hash all that comes: there is one node in this process, which fetches what it has not."""


class Assembly:
    """The chunks of one content that have arrived, and the peers that sent them.

    Args:
        content_hash: hash that the whole must have, 32 bytes.
        size: bytes that it must have; None if unknown: it ends with a chunk that is short or empty.
        size_max: most bytes of a content of unknown size.
        spools: begins the content.
        known: looks up what chunks are compared with, as long as they agree, in place of being hashed and put together.
    """

    def __init__(
        self,
        content_hash: Hash,
        size: int | None,
        size_max: int,
        spools: Spools = InMemory,
        known: Known = nothing_known,
    ) -> None:
        self.size = size
        self.senders: set[PublicKey] = set()
        """Peers that sent a chunk of it."""
        self._content_hash, self._size_max, self._spools, self._known = content_hash, size_max, spools, known
        self.clear()

    @property
    def is_large(self) -> bool:
        """Whether it may have several chunks."""
        return self.size_bound > CHUNK_SIZE

    @property
    def arrived(self) -> int:
        """Bytes that have come, without a gap."""
        return self._size

    @property
    def size_bound(self) -> int:
        """Bytes that it may have at most."""
        return self._size_max if self.size is None else self.size

    @property
    def is_complete(self) -> bool:
        """Whether nothing is missing any more; it may still be wrong."""
        return self._ended or self._size == self.size

    @property
    def may_go_on(self) -> bool:
        """Whether a complete content may be the beginning of a longer one, whatever its stated size.

        A chunk that is not full is a last one: a provider that has a longer content does not send it.
        """
        return not self._ended and self._size < self._size_max

    def clear(self) -> None:
        """Forget the chunks that have arrived."""
        self._pieces = self._spools()  # without gaps, from the start
        self._size = 0  # of those
        self._ahead: dict[int, bytes] = {}
        self._hasher = hashlib.sha256()
        self._same = self._known(self._content_hash)  # begins with all that has come; None: that is hashed
        self._ended = False
        self.senders.clear()

    def wanted(self) -> Iterator[int]:
        """Numbers of missing chunks in order, as far as there is room for them."""
        first = self._size // CHUNK_SIZE
        if self.size is None:  # nobody knows whether there is another one behind it
            yield first
            return
        count = max(1, -(-self.size // CHUNK_SIZE))
        yield from (number for number in range(first, min(first + AHEAD_MAX, count)) if number not in self._ahead)

    def put(self, number: int, data: bytes, sender: PublicKey) -> None:
        """Take a chunk that is wanted.

        Raises:
            InvalidPayload: it is not whole.
            LimitReached: the disk refuses it; all that has come is lost, see :meth:`clear`.
        """
        room = self.size_bound - number * CHUNK_SIZE
        found, whole = len(data), min(CHUNK_SIZE, room)
        # A peer that sends a byte at a time would hold the content for ever without counting as stalled.
        if found > whole or (found < whole and self.size is not None):
            raise InvalidPayload("chunk", f"{found} bytes found at {number * CHUNK_SIZE}, {whole} wanted")
        self.senders.add(sender)
        self._ahead[number] = data
        while (following := self._ahead.pop(self._size // CHUNK_SIZE, None)) is not None:
            if self._same is not None and not self._same.startswith(following, self._size):
                self._hash_all()
            if self._same is None:
                self._add(following)
            self._size += len(following)
            if len(following) < CHUNK_SIZE:
                self._ended = True
                return

    def _hash_all(self) -> None:
        """Hash what has come, and put it together: from here on it is not what is known. Raises LimitReached."""
        same, self._same = self._same, None
        if same is not None and self._size:
            self._add(memoryview(same)[: self._size])

    def _add(self, piece: bytes | memoryview) -> None:
        try:
            self._pieces.write(piece)
        except OSError as error:
            raise LimitReached("disk", str(error)) from None
        self._hasher.update(piece)

    def ends_here(self) -> bool:
        """Whether the arrived chunks are the whole content, as a peer claims that has nothing behind them."""
        if self._same is not None:
            return self._size == len(self._same)
        return self._hasher.digest() == self._content_hash

    def content(self) -> bytes:
        """The whole content. Raises InvalidPayload if it has another hash, LimitReached if the disk refuses it."""
        if self._same is not None and self.ends_here():
            return self._same
        self._hash_all()
        if (found := self._hasher.digest()) != self._content_hash:
            raise InvalidPayload("payload hash", f"{found.hex()} found, {self._content_hash.hex()} wanted")
        try:
            return self._pieces.content(found)
        except OSError as error:
            raise LimitReached("disk", str(error)) from None
