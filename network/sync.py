"""Sync, the pure part: which blocks somebody lacks, and content fetched in chunks from whoever has it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from fedchain.chain.block import Block
from fedchain.chain.exceptions import Invalid, InvalidPayload, LimitReached
from fedchain.chain.fork_choice import BlockTree
from fedchain.chain.validation import validate_content
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import BLOCKS_MAX, CHUNK_SIZE, LOCATOR_MAX, Bitmap, Chunk, GetBlocks, GetContent

STALL_MS = 2_000
"""A provider that has not answered for this long is replaced by the next one. (Bitcoin: block stalling timeout)"""

BATCH_MS = 10_000
"""A peer that needs longer for one batch of blocks is replaced, also if it sends one now and then."""

PASSED_OVER_MS = 4_000
"""How long a peer that stalled is not asked for blocks."""

DOWNLOADS_MAX = 4_096
"""Contents fetched at a time."""

LARGE_AT_ONCE_MAX = 4
"""Contents of several chunks that one provider is asked for at a time: more would only compete, and fill memory."""

PROVIDERS_MAX = 8
"""Peers remembered for one content."""

Request = tuple[PublicKey, GetContent]
"""Whom to ask for what."""

Question = tuple[PublicKey, GetBlocks]
"""Whom to ask for which blocks."""


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


@dataclass(slots=True)
class _Source:
    """The peer that is being asked for blocks."""

    peer: PublicKey
    stop: Hash
    """The block to arrive at."""
    height: int
    """Height of that block, as the peer told it."""
    start: Hash
    """Where the batch began: the highest block of the one before it."""
    asked_ms: int
    heard_ms: int
    """When its last block came; at first, when it was asked."""
    batch: list[Hash] = field(default_factory=list)
    """Blocks that have come."""


class CatchUp:
    """The one peer that is being asked for blocks, batch after batch, until what it told of is in the tree.

    A peer that stalls makes way for the next one that tells of something unknown. Only blocks are timed: as long as
    one waits for its contents, which have providers of their own, nobody stalls.
    """

    def __init__(self) -> None:
        self._source: _Source | None = None
        self._passed_over_ms: dict[PublicKey, int] = {}  # until when a peer that stalled is not asked

    @property
    def height(self) -> int:
        """Height of the chain that we are catching up with, as its peer told it; 0: of none."""
        return 0 if self._source is None else self._source.height

    def is_source(self, peer: PublicKey) -> bool:
        """Whether ``peer`` is the one that is being asked."""
        return self._source is not None and self._source.peer == peer

    def may_ask(self, peer: PublicKey, now_ms: int) -> bool:
        """Whether nobody is being asked, and ``peer`` did not stall lately."""
        return self._source is None and now_ms >= self._passed_over_ms.get(peer, 0)

    def begin(self, tree: BlockTree, peer: PublicKey, stop: Hash, height: int, now_ms: int) -> list[Question]:
        """Ask ``peer`` for the blocks up to ``stop``, which it says is at ``height``."""
        self._source = _Source(peer, stop, height, tree.root, now_ms, now_ms)
        return [(peer, GetBlocks(locator(tree), stop))]

    def drop(self, peer: PublicKey) -> None:
        """The peer is gone."""
        self._passed_over_ms.pop(peer, None)
        if self.is_source(peer):
            self._source = None

    def on_block(self, peer: PublicKey, block_hash: Hash, now_ms: int) -> None:
        """A peer sent a block."""
        if self._source is not None and self._source.peer == peer:
            self._source.batch.append(block_hash)
            self._source.heard_ms = now_ms

    def on_tick(self, now_ms: int) -> None:
        """Give up a peer that is silent, or that sends so slowly that it might as well be."""
        source = self._source
        if source is None:
            return
        too_slow = now_ms - source.asked_ms >= BATCH_MS
        if too_slow or now_ms - source.heard_ms >= STALL_MS:
            self._source = None
            if too_slow or not source.batch:
                self._passed_over_ms[source.peer] = now_ms + PASSED_OVER_MS

    def on_chunk(self, now_ms: int) -> None:
        """Contents are coming, which a block may wait for: the peer that sent it has done its part."""
        if self._source is not None:
            self._source.asked_ms = self._source.heard_ms = now_ms

    def next_batch(self, tree: BlockTree, now_ms: int) -> list[Question]:
        """Ask for more once a batch has come and led on."""
        source = self._source
        if source is None:
            return []
        if source.stop in tree:
            self._source = None
            return []
        heights = {state.height: item for item in source.batch if (state := tree.state(item)) is not None}
        if len(source.batch) < BLOCKS_MAX or not heights:
            return []
        reached = heights[max(heights)]
        if reached == source.start:
            return []
        self._source = _Source(source.peer, source.stop, source.height, reached, now_ms, now_ms)
        # Another branch grows beside ours before it wins: our locator alone would fetch its start again.
        return [(source.peer, GetBlocks((reached, *locator(tree)[: LOCATOR_MAX - 1]), source.stop))]


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
    data: bytearray = field(default_factory=bytearray)
    """What has arrived, from the start."""

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
        if download is None or peer != download.providers[0] or chunk.offset != len(download.data):
            return None, []
        if not chunk.data:
            # A content of unknown size may end with a whole chunk.
            if download.size is None and sha256(bytes(download.data)) == chunk.content_hash:
                del self._downloads[chunk.content_hash]
                return bytes(download.data), self._ask_for_waiting(peer, now_ms)
            return None, self._pass_on(chunk.content_hash, download, now_ms)
        size_max = self._size_max if download.size is None else download.size
        found, wanted = len(chunk.data), min(CHUNK_SIZE, size_max - len(download.data))
        # Who sends a byte at a time would hold the download for ever and never stall.
        if found > wanted or (found < wanted and download.size is not None):
            self._restart(download)
            raise InvalidPayload("chunk", f"{found} bytes found at {chunk.offset}, {wanted} wanted")
        download.data += chunk.data
        download.asked_ms = now_ms
        is_last = len(download.data) == download.size or (download.size is None and found < CHUNK_SIZE)
        if not is_last:
            return None, [(peer, GetContent(chunk.content_hash, len(download.data)))]
        content = bytes(download.data)
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
            download.data.clear()  # parts of contents that nobody sends would add up
            return []
        return [(provider, GetContent(content_hash, len(download.data)))]

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
        download.data.clear()
        download.asked_ms = 0
