"""Sync, the pure part: which blocks somebody lacks, and of whom they are asked."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from fedchain.chain.fork_choice import BlockTree

from fedchain.chain.block import Block
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import BLOCKS_MAX, LOCATOR_MAX, Bitmap, GetBlocks

STALL_MS = 2_000
"""A provider that has not answered for this long is replaced by the next one. (Bitcoin: block stalling timeout)"""

BATCH_MS = 10_000
"""A peer that needs longer for one batch of blocks is replaced, also if it sends one now and then."""

PASSED_OVER_MS = 4_000
"""How long a peer that stalled is not asked for blocks."""

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
