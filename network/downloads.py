"""Downloads: content-addressed bytes, fetched in chunks from several that have them at once. Pure; no I/O.

Who is slow or silent makes way for others, and is not blamed for it. Who sent a wrong content can be named only if
nobody else sent a part of it: after a wrong hash a content is fetched from one provider alone, and then the next one.
"""

from collections.abc import Sequence

from fedchain.chain.exceptions import InvalidPayload, LimitReached
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.network.assembly import Assembly
from fedchain.network.download import Download, Load
from fedchain.network.download import Request as Request  # part of this module's interface
from fedchain.network.messages import CHUNK_SIZE, Chunk

DOWNLOADS_MAX = 4_096
"""Contents fetched at a time, unless it is said otherwise."""


class Downloads:
    """Contents that are being fetched, each from up to three providers, checked by hash at the end.

    Times are milliseconds of a clock that nobody sets.

    Args:
        size_max: bytes of a content whose size nobody told.
        count_max: contents fetched at a time.
    """

    def __init__(self, size_max: int, count_max: int = DOWNLOADS_MAX) -> None:
        self._size_max, self._count_max = size_max, count_max
        self._downloads: dict[Hash, Download] = {}
        self._idle: dict[Hash, None] = {}  # those of which nobody owes us anything
        self._load = Load()

    def __contains__(self, content_hash: Hash) -> bool:
        return content_hash in self._downloads

    def __len__(self) -> int:
        return len(self._downloads)

    def want(
        self, content_hash: Hash, size: int | None, provider: PublicKey, now_ms: int, size_max: int | None = None
    ) -> list[Request]:
        """Fetch a content of ``size`` bytes from ``provider``, or remember it as one more that has it.

        Without a size, as a knowledge has none on the chain, it is whole when it has the right hash, and has at most
        ``size_max`` bytes. One more provider is asked when the next chunk comes, or at the next tick.

        Raises:
            LimitReached: too many are being fetched already.
        """
        if known := self._downloads.get(content_hash):
            known.add(provider)
            return []
        if len(self._downloads) >= self._count_max:
            raise LimitReached(
                "downloads", f"{len(self._downloads)} contents are being fetched, at most {self._count_max}"
            )
        parts = Assembly(content_hash, size, self._size_max if size_max is None else min(size_max, self._size_max))
        self._downloads[content_hash] = Download(content_hash, parts, provider, self._load)
        return self._ask(content_hash, now_ms)

    def on_chunk(self, peer: PublicKey, chunk: Chunk, now_ms: int) -> tuple[bytes | None, list[Request]]:
        """Take a chunk; the whole content once it is complete and right, and what to ask for next.

        A chunk that its sender was not asked for, or that has come already, changes nothing. An empty one says that
        its sender does not have the content.

        Raises:
            InvalidPayload: ``peer`` sent too much, or all of a content that has another hash; others are asked at the
                next tick. A chunk that only does not fit to the size that somebody signed may be right, and the size
                a lie: the content is begun again, by its hash alone.
        """
        content_hash, (number, rest) = chunk.content_hash, divmod(chunk.offset, CHUNK_SIZE)
        download = self._downloads.get(content_hash)
        if download is None or rest or not download.was_asked(number, peer):
            return None, []
        parts = download.parts
        if chunk.data:
            try:
                parts.put(number, chunk.data, peer)
            except InvalidPayload:
                if parts.size is None or len(chunk.data) > CHUNK_SIZE:
                    self._expose(content_hash, peer)
                    raise
                download.doubt_size()
                return None, self._ask(content_hash, now_ms)
            download.on_arrival(number, len(chunk.data), peer, now_ms)
        elif not parts.ends_here():
            download.on_lack(peer, now_ms)
        if not (parts.is_complete or parts.ends_here()):
            return None, self._ask(content_hash, now_ms) + self._ask_for_idle(peer, now_ms)
        try:
            content = parts.content()
        except InvalidPayload:
            if parts.senders != {peer}:
                download.begin_alone()
            elif parts.size is not None:
                download.doubt_size()
            else:
                self._expose(content_hash, peer)
                raise
            return None, self._ask(content_hash, now_ms)
        self._remove(content_hash)
        return content, self._ask_for_idle(peer, now_ms)

    def on_tick(self, now_ms: int, peers: Sequence[PublicKey] = ()) -> list[Request]:
        """Replace providers that are silent or slow; ``peers`` are others that might have what those do not."""
        requests: list[Request] = []
        for content_hash, download in self._downloads.items():
            download.review(now_ms, peers)
            requests += self._ask(content_hash, now_ms)
        return requests

    def drop(self, provider: PublicKey, now_ms: int, peers: Sequence[PublicKey] = ()) -> list[Request]:
        """A provider is gone: go on at once with others, or with one of ``peers``."""
        requests: list[Request] = []
        for content_hash, download in self._downloads.items():
            if download.on_gone(provider, now_ms, peers):
                requests += self._ask(content_hash, now_ms)
        return requests

    def keep_only(self, wanted: set[Hash]) -> None:
        """Give up what nobody waits for any more."""
        for content_hash in [known for known in self._downloads if known not in wanted]:
            self._remove(content_hash)

    def arrived(self, content_hash: Hash) -> int:
        """Bytes that have come of a content, without a gap."""
        return self._downloads[content_hash].parts.arrived if content_hash in self._downloads else 0

    def give_up(self, content_hash: Hash) -> None:
        """Fetch a content no more."""
        if content_hash in self._downloads:
            self._remove(content_hash)

    def _ask(self, content_hash: Hash, now_ms: int) -> list[Request]:
        """Ask for more of a content, and remember whether anybody owes us any of it."""
        download = self._downloads[content_hash]
        requests = download.ask(now_ms)
        if download.is_idle:
            self._idle[content_hash] = None
        else:
            self._idle.pop(content_hash, None)
        return requests

    def _ask_for_idle(self, provider: PublicKey, now_ms: int) -> list[Request]:
        """A provider has delivered: ask it for what it was too busy for."""
        requests: list[Request] = []
        for content_hash in list(self._idle):
            if not self._load.may_owe_more(provider):
                break
            if provider in self._downloads[content_hash].providers:
                requests += self._ask(content_hash, now_ms)
        return requests

    def _expose(self, content_hash: Hash, liar: PublicKey) -> None:
        self._downloads[content_hash].expose(liar)
        self._idle[content_hash] = None

    def _remove(self, content_hash: Hash) -> None:
        self._downloads.pop(content_hash).stop()
        self._idle.pop(content_hash, None)
