"""Sync, the pure part: which blocks somebody lacks, and content fetched in chunks from whoever has it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from fedchain.chain.block import Block
from fedchain.chain.exceptions import Invalid, InvalidPayload, LimitReached
from fedchain.chain.fork_choice import BlockTree
from fedchain.chain.validation import validate_content
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import BLOCKS_MAX, CHUNK_SIZE, LOCATOR_MAX, Bitmap, Chunk, GetBlocks, GetContent

STALL_MS = 2_000
"""A provider that has not answered for this long is replaced by the next one."""

DOWNLOADS_MAX = 4_096
"""Contents fetched at a time."""

PROVIDERS_MAX = 8
"""Peers remembered for one content."""

Request = tuple[PublicKey, GetContent]
"""Whom to ask for what."""


def locator(tree: BlockTree) -> tuple[Hash, ...]:
    """Hashes of the head's chain, newest first: ten in a row, then at doubling distances, and the root."""
    hashes: list[Hash] = []
    height, step = tree.head.height, 1
    while height > 0 and len(hashes) < LOCATOR_MAX - 1:
        known = tree.canonical(height)
        assert known is not None, "the canonical chain has a block at every height"
        hashes.append(known)
        step = step * 2 if len(hashes) > 10 else 1
        height -= step
    return (*hashes, tree.root)


def blocks_towards(tree: BlockTree, request: GetBlocks) -> list[Block]:
    """Up to ``BLOCKS_MAX`` blocks on the way from what the asker has to ``request.stop``, oldest first."""
    known, branch = set(request.locator), list[Hash]()
    state = tree.state(request.stop)
    if state is None:
        return []
    while state.block_hash not in known and not tree.is_canonical(state):
        branch.append(state.block_hash)
        state = tree.state(state.parent_hash)
        assert state is not None, "a block in the tree has a parent there"
    # The canonical part is not walked: a chain may be long, and asking costs little.
    path: list[Hash] = []
    if state.block_hash not in known:
        asked = (place for item in known if (place := tree.state(item)) is not None and tree.is_canonical(place))
        start = max((place.height for place in asked if place.height < state.height), default=0)
        heights = range(start + 1, min(start + BLOCKS_MAX, state.height) + 1)
        path = [item for height in heights if (item := tree.canonical(height)) is not None]
    path += reversed(branch)
    blocks = (tree.block(block_hash) for block_hash in path[:BLOCKS_MAX])
    return [block for block in blocks if block is not None]


class CatchUp:
    """Peers that are being asked for blocks, batch after batch, until what they told of is in the tree."""

    def __init__(self) -> None:
        # by peer: the block to arrive at, how much of the batch is to come, and the last block placed before it
        self._targets: dict[PublicKey, tuple[Hash, int, Hash]] = {}

    def __contains__(self, peer: PublicKey) -> bool:
        return peer in self._targets

    def __len__(self) -> int:
        return len(self._targets)

    def begin(self, peer: PublicKey, stop: Hash, last_placed: Hash) -> None:
        """A peer was just asked for the blocks up to ``stop``."""
        self._targets[peer] = stop, BLOCKS_MAX, last_placed

    def drop(self, peer: PublicKey) -> None:
        """Expect nothing more of a peer."""
        self._targets.pop(peer, None)

    def on_block(self, peer: PublicKey) -> None:
        """A peer sent a block."""
        if peer in self._targets:
            stop, left, start = self._targets[peer]
            self._targets[peer] = stop, left - 1, start

    def next_requests(self, tree: BlockTree, last_placed: Hash) -> list[tuple[PublicKey, GetBlocks]]:
        """Ask for the next batch where the last one has come and led to progress."""
        requests = []
        for peer, (stop, left, start) in list(self._targets.items()):
            if stop in tree:
                del self._targets[peer]
            elif left <= 0 and start != last_placed:
                # Another branch grows beside ours before it wins: our locator alone would fetch its start again.
                known = (last_placed, *locator(tree)[: LOCATOR_MAX - 1])
                self.begin(peer, stop, last_placed)
                requests.append((peer, GetBlocks(known, stop)))
        return requests


def to_bitmap(places: Iterable[int], size: int) -> Bitmap:
    """Mark ``places`` among ``size`` members."""
    bits = bytearray((size + 7) // 8)
    for place in places:
        bits[place >> 3] |= 1 << (place & 7)
    return bytes(bits)


def from_bitmap(bitmap: Bitmap, size: int) -> Iterator[int]:
    """Marked places below ``size``; what lies beyond is not looked at."""
    marked = int.from_bytes(bitmap[: (size + 7) // 8], "little") & (1 << size) - 1
    while marked:  # costs as much as is marked, which often is nothing
        lowest = marked & -marked
        yield lowest.bit_length() - 1
        marked ^= lowest


@dataclass(slots=True)
class _Download:
    """One content on its way."""

    size: int
    """Bytes that it must have."""
    providers: list[PublicKey]
    """Peers that should have it; the first one is asked."""
    asked_ms: int
    """When the first provider was asked last."""
    data: bytearray = field(default_factory=bytearray)
    """What has arrived, from the start."""


class Downloads:
    """Contents that are being fetched: in chunks, resumed where they broke off, checked by hash at the end."""

    def __init__(self) -> None:
        self._downloads: dict[Hash, _Download] = {}

    def __contains__(self, content_hash: Hash) -> bool:
        return content_hash in self._downloads

    def __len__(self) -> int:
        return len(self._downloads)

    def want(self, content_hash: Hash, size: int, provider: PublicKey, now_ms: int) -> list[Request]:
        """Fetch a content of ``size`` bytes from ``provider``, or remember it as one more that has it.

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
        self._downloads[content_hash] = _Download(size, [provider], now_ms)
        return [(provider, GetContent(content_hash, 0))]

    def on_chunk(self, peer: PublicKey, chunk: Chunk, now_ms: int) -> tuple[bytes | None, list[Request]]:
        """Take a chunk; the whole content once it is complete and right, and what to ask for next.

        A chunk that nobody asked for or that does not continue what is there changes nothing. An empty one says
        that its sender does not have the content: the next provider is asked, and the last one again at the next tick.

        Raises:
            InvalidPayload: a chunk is not whole, or the content has another hash; it is begun again with the next
                provider.
        """
        download = self._downloads.get(chunk.content_hash)
        if download is None or peer != download.providers[0] or chunk.offset != len(download.data):
            return None, []
        if not chunk.data:
            if len(download.providers) == 1:
                download.asked_ms = now_ms - STALL_MS
                return None, []
            download.providers.pop(0)
            download.asked_ms = now_ms
            return None, [(download.providers[0], GetContent(chunk.content_hash, len(download.data)))]
        # Who sends a byte at a time would hold the download for ever and never stall.
        wanted = min(CHUNK_SIZE, download.size - len(download.data))
        if len(chunk.data) != wanted:
            self._restart(download)
            raise InvalidPayload("chunk", f"{len(chunk.data)} bytes found at {chunk.offset}, {wanted} wanted")
        download.data += chunk.data
        download.asked_ms = now_ms
        if len(download.data) < download.size:
            return None, [(peer, GetContent(chunk.content_hash, len(download.data)))]
        content = bytes(download.data)
        try:
            validate_content(chunk.content_hash, download.size, content)
        except Invalid:
            self._restart(download)
            raise
        del self._downloads[chunk.content_hash]
        return content, []

    def on_tick(self, now_ms: int) -> list[Request]:
        """Replace providers that do not answer."""
        return [
            self._ask_next(content_hash, download, now_ms)
            for content_hash, download in self._downloads.items()
            if now_ms - download.asked_ms >= STALL_MS
        ]

    def keep_only(self, wanted: set[Hash]) -> None:
        """Give up what nobody waits for any more."""
        for content_hash in [known for known in self._downloads if known not in wanted]:
            del self._downloads[content_hash]

    def _ask_next(self, content_hash: Hash, download: _Download, now_ms: int) -> Request:
        download.providers.append(download.providers.pop(0))
        download.asked_ms = now_ms
        return download.providers[0], GetContent(content_hash, len(download.data))

    @staticmethod
    def _restart(download: _Download) -> None:
        """Begin again with another provider, at the next tick."""
        download.data.clear()
        download.asked_ms = 0
