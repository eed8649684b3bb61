"""Downloads: content-addressed bytes, fetched in chunks from whoever has them. Pure; no I/O."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from fedchain.chain.exceptions import Invalid, InvalidPayload, LimitReached
from fedchain.chain.validation import validate_content
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import CHUNK_SIZE, Chunk, GetContent
from fedchain.network.sync import STALL_MS

DOWNLOADS_MAX = 4_096
"""Contents fetched at a time."""

LARGE_AT_ONCE_MAX = 4
"""Contents of several chunks that one provider is asked for at a time: more would only compete, and fill memory."""

PROVIDERS_MAX = 8
"""Peers remembered for one content."""

Request = tuple[PublicKey, GetContent]
"""Whom to ask for what."""


@dataclass(slots=True)
class _Download:
    """One content on its way."""

    size: int | None
    """Bytes that it must have; None: nobody said, it is whole when it has the right hash."""
    providers: list[PublicKey]
    """Peers that should have it; the first one is asked."""
    asked_ms: int
    """When the first provider was asked last."""
    is_asked: bool = False
    """Whether the first provider was asked; otherwise it is busy with others."""
    turns: int = 0
    """How often a provider was replaced because it stalled."""
    chunks: list[bytes] = field(default_factory=list)
    """What has arrived, from the start."""
    arrived: int = 0
    """Bytes of it."""

    def add(self, data: bytes) -> None:
        """Put ``data`` behind what has arrived."""
        self.chunks.append(data)
        self.arrived += len(data)

    def clear(self) -> None:
        """Drop what has arrived."""
        self.chunks.clear()
        self.arrived = 0

    @property
    def is_large(self) -> bool:
        """Whether it may need several chunks."""
        return self.size is None or self.size > CHUNK_SIZE


class Downloads:
    """Contents that are being fetched: in chunks, resumed where they broke off, checked by hash at the end.

    Args:
        size_max: bytes of a content whose size nobody told.
    """

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._downloads: dict[Hash, _Download] = {}

    def __contains__(self, content_hash: Hash) -> bool:
        return content_hash in self._downloads

    def __len__(self) -> int:
        return len(self._downloads)

    def want(self, content_hash: Hash, size: int | None, provider: PublicKey, now_ms: int) -> list[Request]:
        """Fetch a content of ``size`` bytes from ``provider``, or remember it as one more that has it.

        Without a size, as a knowledge has none on the chain, it is whole when it has the right hash.

        Raises:
            LimitReached: too many are being fetched already.
        """
        if known := self._downloads.get(content_hash):
            if provider not in known.providers and len(known.providers) < PROVIDERS_MAX:
                known.providers.append(provider)
            return []
        if len(self._downloads) >= DOWNLOADS_MAX:
            raise LimitReached(
                "downloads", f"{len(self._downloads)} contents are being fetched, at most {DOWNLOADS_MAX}"
            )
        download = self._downloads[content_hash] = _Download(size, [provider], now_ms)
        return self._ask(content_hash, download, now_ms)

    def on_chunk(self, peer: PublicKey, chunk: Chunk, now_ms: int) -> tuple[bytes | None, list[Request]]:
        """Take a chunk; the whole content once it is complete and right, and what to ask for next.

        A chunk that nobody asked for or that does not continue what is there changes nothing. An empty one says
        that its sender does not have the content: the next provider is asked, and the last one again at the next tick.

        Raises:
            InvalidPayload: a chunk is not whole, or the content has another hash; it is begun again with the next
                provider.
        """
        download = self._downloads.get(chunk.content_hash)
        if download is None or peer != download.providers[0] or chunk.offset != download.arrived:
            return None, []
        if not chunk.data:
            # A content of unknown size may end with a whole chunk.
            content = b"".join(download.chunks)
            if download.size is None and sha256(content) == chunk.content_hash:
                del self._downloads[chunk.content_hash]
                return content, self._ask_for_waiting(peer, now_ms)
            return None, self._pass_on(chunk.content_hash, download, now_ms)
        size_max = self._size_max if download.size is None else download.size
        found, wanted = len(chunk.data), min(CHUNK_SIZE, size_max - download.arrived)
        # Who sends a byte at a time would hold the download for ever and never stall.
        if found > wanted or (found < wanted and download.size is not None):
            self._restart(download)
            raise InvalidPayload("chunk", f"{found} bytes found at {chunk.offset}, {wanted} wanted")
        download.add(chunk.data)
        download.asked_ms = now_ms
        is_last = download.arrived == download.size or (download.size is None and found < CHUNK_SIZE)
        if not is_last:
            return None, [(peer, GetContent(chunk.content_hash, download.arrived))]
        content = b"".join(download.chunks)
        try:
            validate_content(chunk.content_hash, len(content), content)
        except Invalid:
            self._restart(download)
            raise
        del self._downloads[chunk.content_hash]
        return content, self._ask_for_waiting(peer, now_ms)

    def on_tick(self, now_ms: int, peers: Sequence[PublicKey] = ()) -> list[Request]:
        """Replace providers that do not answer; ``peers`` are others that might have what those do not."""
        stalled = [item for item in self._downloads.items() if now_ms - item[1].asked_ms >= STALL_MS]
        return [request for item in stalled for request in self._ask_next(*item, now_ms, peers)]

    def drop(self, provider: PublicKey, now_ms: int, peers: Sequence[PublicKey] = ()) -> list[Request]:
        """A provider is gone: go on at once with the next one, or with one of ``peers``."""
        requests: list[Request] = []
        for content_hash, download in self._downloads.items():
            if download.providers[0] == provider:
                requests += self._ask_next(content_hash, download, now_ms, peers)
            if provider in download.providers[1:]:
                download.providers.remove(provider)
        return requests

    def keep_only(self, wanted: set[Hash]) -> None:
        """Give up what nobody waits for any more."""
        for content_hash in [known for known in self._downloads if known not in wanted]:
            del self._downloads[content_hash]

    def _ask(self, content_hash: Hash, download: _Download, now_ms: int) -> list[Request]:
        """Ask the first provider, unless it is busy with as many large contents as we let one provider send."""
        provider = download.providers[0]
        download.asked_ms, download.is_asked = now_ms, False
        download.is_asked = not download.is_large or self._large_from(provider) < LARGE_AT_ONCE_MAX
        if not download.is_asked:
            download.clear()  # parts of contents that nobody sends would add up
            return []
        return [(provider, GetContent(content_hash, download.arrived))]

    def _large_from(self, provider: PublicKey) -> int:
        return sum(
            download.is_asked and download.is_large and download.providers[0] == provider
            for download in self._downloads.values()
        )

    def _ask_for_waiting(self, provider: PublicKey, now_ms: int) -> list[Request]:
        """A provider has delivered: ask it for what it was too busy for."""
        for content_hash, download in self._downloads.items():
            if not download.is_asked and download.providers[0] == provider:
                return self._ask(content_hash, download, now_ms)
        return []

    def _pass_on(self, content_hash: Hash, download: _Download, now_ms: int) -> list[Request]:
        """The provider does not have it: ask the next one, or wait for the tick if it is the last."""
        if len(download.providers) == 1:
            download.asked_ms = now_ms - STALL_MS
            return []
        download.providers.pop(0)
        return self._ask(content_hash, download, now_ms)

    def _ask_next(
        self, content_hash: Hash, download: _Download, now_ms: int, peers: Sequence[PublicKey]
    ) -> list[Request]:
        stalled, *known = download.providers
        if peers and (other := peers[download.turns % len(peers)]) not in download.providers:
            known.append(other)
        download.providers = [*known, stalled][:PROVIDERS_MAX]
        download.turns += 1
        return self._ask(content_hash, download, now_ms)

    @staticmethod
    def _restart(download: _Download) -> None:
        """Begin again with another provider, at the next tick."""
        download.clear()
        download.asked_ms = 0
