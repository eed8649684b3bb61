"""Downloads: content-addressed bytes, fetched in chunks from several providers at once. Pure; no I/O.

A provider that is slow or silent makes way for others, and is not blamed for it. The sender of wrong bytes can be
identified only if nobody else contributed, so after a hash mismatch each provider sends a copy of its own.
"""

from collections.abc import Sequence

from fedchain.chain.exceptions import LimitReached
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.files.spool import InMemory, Spools
from fedchain.network.assembly import Known, nothing_known
from fedchain.network.download import Download
from fedchain.network.download import Request as Request  # part of this module's interface
from fedchain.network.load import Load
from fedchain.network.messages import CHUNK_SIZE, Chunk

DOWNLOADS_MAX = 4_096
"""Default for the number of contents fetched at a time."""


class Downloads:
    """Contents that are being fetched, each from up to three providers, checked by hash at the end.

    Times are milliseconds of a clock that nobody sets.

    Args:
        size_max: most bytes of a content of unknown size.
        count_max: most contents fetched at a time.
        spools: begins a content where its chunks are put together.
        known: looks up contents that this process has hashed already.
    """

    def __init__(
        self,
        size_max: int,
        count_max: int = DOWNLOADS_MAX,
        spools: Spools = InMemory,
        known: Known = nothing_known,
    ) -> None:
        self.size_max = size_max
        """Most bytes of a content of unknown size; a provider that sends more is to blame."""
        self._count_max = count_max
        self._downloads: dict[Hash, Download] = {}
        self._idle: dict[Hash, None] = {}  # contents of which nobody owes us anything
        self._load = Load(spools, known)

    def __contains__(self, content_hash: Hash) -> bool:
        return content_hash in self._downloads

    def __len__(self) -> int:
        return len(self._downloads)

    def want(
        self,
        content_hash: Hash,
        size: int | None,
        provider: PublicKey,
        now_ms: int,
        size_max: int | None = None,
        *,
        asks_others: bool = True,
    ) -> list[Request]:
        """Fetch a content of ``size`` bytes from ``provider``, or remember it as one more that has it.

        Without a size, as a knowledge has none on the chain, it is whole when it has the right hash. One more provider
        is asked when the next chunk comes, or at the next tick.

        Args:
            content_hash: 32 bytes.
            size: signed size in bytes; None if nobody signed one.
            provider: a peer that should have it.
            now_ms: now.
            size_max: most bytes that it may have if its signed size is false or missing; None: as for every content.
            asks_others: whether peers that nobody named may have it, too.

        Raises:
            LimitReached: too many are being fetched already.
        """
        size_max = self.size_max if size_max is None else min(size_max, self.size_max)
        if known := self._downloads.get(content_hash):
            known.add(provider, size_max, asks_others=asks_others)
            return []
        if len(self._downloads) >= self._count_max:
            raise LimitReached(
                "downloads", f"{len(self._downloads)} contents are being fetched, at most {self._count_max}"
            )
        download = Download(content_hash, size, size_max, self.size_max, provider, self._load, asks_others=asks_others)
        self._downloads[content_hash] = download
        return self.go_on(content_hash, now_ms)

    def on_chunk(self, peer: PublicKey, chunk: Chunk, now_ms: int) -> tuple[bytes | None, list[Request]]:
        """Take a chunk; return the whole content once it is complete and right, and the next questions.

        A chunk that its sender was not asked for, or that has come already, changes nothing. An empty one says that
        its sender does not have the content.

        Raises:
            InvalidPayload: ``peer`` sent all of a content that has another hash, or more than a chunk; :meth:`go_on`
                asks others. A copy that only contradicts the signed size may be right, and the size a lie.
            LimitReached: the disk refuses what has come of it, which is fetched anew after a while.
        """
        content_hash, (number, rest) = chunk.content_hash, divmod(chunk.offset, CHUNK_SIZE)
        download = self._downloads.get(content_hash)
        if download is None or rest or not download.was_asked(number, peer):
            return None, []
        content = download.take(number, chunk.data, peer, now_ms)
        if content is None:
            return None, self.go_on(content_hash, now_ms) + self._ask_for_idle(peer, now_ms)
        self._remove(content_hash)
        return content, self._ask_for_idle(peer, now_ms)

    def go_on(self, content_hash: Hash, now_ms: int) -> list[Request]:
        """Ask for more of a content, if it is being fetched."""
        if (download := self._downloads.get(content_hash)) is None:
            return []
        requests = download.ask(now_ms)  # and remember whether anybody owes us any of it
        if download.is_idle:
            self._idle[content_hash] = None
        else:
            self._idle.pop(content_hash, None)
        return requests

    def on_tick(self, now_ms: int, peers: Sequence[PublicKey] = ()) -> list[Request]:
        """Replace providers that are silent or slow; ``peers`` are others that might have what those do not."""
        requests: list[Request] = []
        for content_hash, download in self._downloads.items():
            download.review(now_ms, peers)
            requests += self.go_on(content_hash, now_ms)
        return requests

    def drop(self, provider: PublicKey, now_ms: int, peers: Sequence[PublicKey] = ()) -> list[Request]:
        """A provider is gone: go on at once with others, or with one of ``peers``."""
        requests: list[Request] = []
        for content_hash, download in self._downloads.items():
            if download.on_gone(provider, now_ms, peers):
                requests += self.go_on(content_hash, now_ms)
        return requests

    def keep_only(self, wanted: set[Hash]) -> None:
        """Give up the contents that nobody waits for any more."""
        for content_hash in [known for known in self._downloads if known not in wanted]:
            self._remove(content_hash)

    def arrived(self, content_hash: Hash) -> int:
        """Bytes that have come of a content, without a gap."""
        return self._downloads[content_hash].arrived if content_hash in self._downloads else 0

    def give_up(self, content_hash: Hash) -> None:
        """Fetch a content no more."""
        if content_hash in self._downloads:
            self._remove(content_hash)

    def _ask_for_idle(self, provider: PublicKey, now_ms: int) -> list[Request]:
        """A provider has delivered: ask it for chunks that it was too busy for."""
        requests: list[Request] = []
        for content_hash in list(self._idle):
            if not self._load.may_owe_more(provider):
                break
            if provider in self._downloads[content_hash].providers:
                requests += self.go_on(content_hash, now_ms)
        return requests

    def _remove(self, content_hash: Hash) -> None:
        self._downloads.pop(content_hash).stop()
        self._idle.pop(content_hash, None)
