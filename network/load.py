"""The load on providers: the chunks that each of them is sending us, all contents together. Pure; no I/O."""

from collections import Counter

from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.files.spool import InMemory, Spools
from fedchain.network.assembly import Assembly, Known, nothing_known

OWED_MAX = 64
"""Chunks that one provider owes us, of all contents together: as much as waits for one peer on its side."""

LARGE_AT_ONCE_MAX = 4
"""Contents of several chunks that one provider sends at a time: more would only compete, and fill memory."""

LARGE_BYTES_MAX = 32 * 2**20
"""Bytes that these may have together, unless it is a single one."""


class Load:
    """The bytes that each provider is sending us, all contents together.

    Args:
        spools: begins a content where its chunks are put together.
        known: looks up contents that this process has hashed already.
    """

    def __init__(self, spools: Spools = InMemory, known: Known = nothing_known) -> None:
        self._spools, self._known = spools, known
        self._owed, self._large, self._large_bytes = Counter[PublicKey](), Counter[PublicKey](), Counter[PublicKey]()

    def begin(self, content_hash: Hash, size: int | None, size_max: int) -> Assembly:
        """Begin to put a content together; see :class:`Assembly`."""
        return Assembly(content_hash, size, size_max, self._spools, self._known)

    def may_owe_more(self, provider: PublicKey) -> bool:
        """Whether a provider may be asked for another chunk."""
        return self._owed[provider] < OWED_MAX

    def owe(self, provider: PublicKey, change: int) -> None:
        """A provider owes us more chunks, or fewer."""
        self._owed[provider] += change

    def has_room(self, provider: PublicKey, parts: Assembly) -> bool:
        """Whether a provider may send a content beside those that it sends already."""
        if not parts.is_large or self._large[provider] == 0:
            return True
        fits = self._large_bytes[provider] + parts.size_bound <= LARGE_BYTES_MAX
        return fits and self._large[provider] < LARGE_AT_ONCE_MAX

    def count(self, provider: PublicKey, parts: Assembly, change: int) -> None:
        """A provider begins (1) or ends (-1) to send a content."""
        if parts.is_large:
            self._large[provider] += change
            self._large_bytes[provider] += change * parts.size_bound
