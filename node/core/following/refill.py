"""Refill: payloads and knowledge of final blocks that were lost, or never were here, are fetched in the background.

Contents are missing if a folder was restored without them, if a disk lost some, or if a newcomer fetches older blocks.
The chain names each content by its hash, so any peer can be asked, and none has to be trusted. Audits recompute from
these contents, but no open work waits for them: a few are fetched at a time, and none during other downloads.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fedchain.chain.knowledge import EMPTY_ROOT
from fedchain.chain.storage.store import Contents
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.network.downloads import Downloads, Request
from fedchain.network.messages import Chunk
from fedchain.network.source import STALL_MS
from fedchain.node.core.context import Context
from fedchain.node.core.effects import Persist

AT_ONCE = 4
"""Most contents that are fetched at a time."""

PROVIDERS = 3
"""Peers that are asked for a content at once, so that a peer that lacks it costs an answer but no wait."""

LOOK_MAX = 16
"""Most blocks that are examined in a tick."""

MISSING_MAX = 256
"""Most contents that are noted as missing; while there are so many, no further block is examined."""

LATER_MAX = 4_096
"""Most contents to be asked for again because no peer had them; beyond it the oldest is forgotten until a restart."""

RETRY_MS = 600_000
"""How long they wait before that: a peer that has them may have come."""

HELD_UP_MS = 60_000
"""After this wait for other downloads a content is fetched in parallel: a liar can keep a download open for ever."""

SETTLED_MS = 5_000
"""Age of a head from which its own contents are looked for: before, they may be on their way to the store."""

TURNS_MIN = 3
"""Least multiple of ``STALL_MS`` without a byte after which a content is given up; with more peers it is larger."""


@dataclass(slots=True)
class _Missing:
    """A content that is not here."""

    height: int
    """Height of the block that needs it."""
    size: int | None
    """Bytes, as signed by its author; None for a knowledge, whose size the chain does not state."""
    arrived: int = 0
    """Bytes that had arrived at the last tick with progress."""
    moved_ms: int = 0
    """Time of that tick, or of the question."""


class Refill:
    """Looks for missing contents, block by block, and fetches them.

    Args:
        context: the node's memory.
        is_wanted: whether missing contents are looked for at all.
    """

    def __init__(self, context: Context, *, is_wanted: bool) -> None:
        self._context, self._is_wanted = context, is_wanted
        self._downloads = Downloads(context.contents.downloads.size_max, spools=context.contents.spools)
        self._missing: dict[Hash, _Missing] = {}  # in the order in which they are fetched
        self._later: deque[tuple[int, Hash, _Missing]] = deque()  # contents that no peer had, and when to ask again
        # All blocks between these two heights were examined.
        self._lowest = context.head.height + 1
        self._highest = context.head.height
        self._came_ms = 0
        self._turn = 0

    def on_tick(self) -> None:
        """Examine the next blocks, and ask for contents that they lack."""
        context, now_ms = self._context, self._context.now.ms
        if not self._is_wanted:
            return
        self._look()
        while self._later and self._later[0][0] <= now_ms and len(self._missing) < MISSING_MAX:
            _, content_hash, missing = self._later.popleft()
            self._missing.setdefault(content_hash, missing)
        self._give_up()
        if not self._must_wait():
            context.send(self._downloads.on_tick(now_ms, context.peers.in_order))
        self._ask()

    def on_chunk(self, peer: PublicKey, chunk: Chunk) -> bool:
        """Take a chunk; returns whether only the refill fetches its content.

        Raises InvalidPayload if ``peer`` lied, LimitReached if the disk refuses it.
        """
        context, now_ms = self._context, self._context.now.ms
        if chunk.content_hash not in self._downloads:
            return False
        content, requests = self._downloads.on_chunk(peer, chunk, now_ms)
        if content is not None:
            del self._missing[chunk.content_hash]
            self._came_ms = now_ms
            context.emit(Persist((Contents({chunk.content_hash: content}),)))
        if not self._must_wait():  # requests that are dropped here are made again at a later tick
            context.send(requests)
            self._ask()
        return chunk.content_hash not in context.contents.downloads

    def drop_provider(self, peer: PublicKey, peers: Sequence[PublicKey]) -> list[Request]:
        """A peer is gone: go on with other providers, or with any of ``peers``."""
        return self._downloads.drop(peer, self._context.now.ms, peers)

    # missing contents

    def _look(self) -> None:
        """Note missing contents of the next blocks: first new ones, then older ones inside the retention window."""
        context, window = self._context, self._context.head.rules.retention_blocks
        head, base = context.head.height, context.storage.base()
        if self._highest < base - 1:  # joined: there is a gap below the base
            self._highest, self._lowest = base - 1, base
            if (root := context.ledger.base_knowledge()) != EMPTY_ROOT and not context.storage.holds_content(root):
                self._missing.setdefault(root, _Missing(base, None))  # the first block is recomputed from it
        top = head if context.since_head_ms >= SETTLED_MS else head - 1
        bottom = max(base, head - window) if window else base
        for _ in range(LOOK_MAX):
            if len(self._missing) >= MISSING_MAX:
                return
            if self._highest < top and self._note(self._highest + 1):
                self._highest += 1
            elif self._lowest > bottom and self._note(self._lowest - 1):
                self._lowest -= 1
            else:
                return

    def _note(self, height: int) -> bool:
        """Note missing contents of one block; store those that are only in memory. Returns whether the block is here.

        One that is not may still be on its way: while the block at which this peer joined waits for the disk, the store
        says nothing yet of the gap below it.
        """
        context, found = self._context, self._context.ledger.final(height)
        if found is None:
            return False
        block = found[0]
        contents: dict[Hash, int | None] = {post.payload_hash: post.payload_size for post in block.transactions}
        contents[block.header.knowledge_root] = None
        for content_hash, size in contents.items():
            if content_hash == EMPTY_ROOT or context.storage.holds_content(content_hash):
                continue
            data = context.contents.get(content_hash)
            if data is not None:
                context.emit(Persist((Contents({content_hash: data}),)))
            else:
                self._missing.setdefault(content_hash, _Missing(height, size))
        return True

    # downloads

    def _ask(self) -> None:
        """Begin downloads, up to the number that may run at a time."""
        context, now_ms = self._context, self._context.now.ms
        peers = context.peers.in_order
        room = (1 if self._is_busy() else AT_ONCE) - len(self._downloads)
        if not peers or room <= 0 or self._must_wait():
            return
        requests: list[Request] = []
        for content_hash in self._next(room):
            missing, self._turn = self._missing[content_hash], self._turn + 1
            missing.arrived, missing.moved_ms = 0, now_ms
            for place in range(self._turn, self._turn + min(PROVIDERS, len(peers))):
                requests += self._downloads.want(content_hash, missing.size, peers[place % len(peers)], now_ms)
        context.send(requests)

    def _next(self, count: int) -> Iterable[Hash]:
        """Contents to fetch next; those of unknown size one at a time, since they may be large."""
        chosen: list[Hash] = []
        has_large = any(self._missing[item].size is None for item in self._missing if item in self._downloads)
        for content_hash, missing in self._missing.items():
            if len(chosen) == count:
                break
            if content_hash in self._downloads or (missing.size is None and has_large):
                continue
            has_large |= missing.size is None
            chosen.append(content_hash)
        return chosen

    def _give_up(self) -> None:
        """Put off contents that no peer sends, and drop those that are older than the retention window."""
        context, now_ms = self._context, self._context.now.ms
        window = context.head.rules.retention_blocks
        patience_ms = STALL_MS * max(TURNS_MIN, len(context.peers) + 1)
        for content_hash, missing in list(self._missing.items()):
            is_past = 0 < window < context.head.height - missing.height
            if content_hash in self._downloads:
                arrived = self._downloads.arrived(content_hash)
                if arrived > missing.arrived or self._must_wait():
                    missing.arrived, missing.moved_ms = arrived, now_ms
                if is_past or now_ms - missing.moved_ms >= patience_ms:
                    self._downloads.give_up(content_hash)
                    del self._missing[content_hash]
                    if not is_past:
                        self._later.append((now_ms + RETRY_MS, content_hash, missing))
            elif is_past:
                del self._missing[content_hash]
        while len(self._later) > LATER_MAX:
            self._later.popleft()

    def _is_busy(self) -> bool:
        """Whether contents for open work are being fetched."""
        return len(self._context.contents.downloads) > 0 or self._context.knowledge() is None

    def _must_wait(self) -> bool:
        """Whether those downloads still take precedence."""
        return self._is_busy() and self._context.now.ms - self._came_ms < HELD_UP_MS
