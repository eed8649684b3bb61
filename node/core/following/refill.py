"""Refill: payloads and knowledge of final blocks that are gone, or never were here, come back in the background.

A folder that was restored without them, a disk that lost some, a newcomer that fetches older blocks: the chain names
each content by its hash, so it is asked of anybody, and nothing has to be believed. It is what an audit recomputes
from, and nothing that is open waits for it: a few contents at a time, and none while anything else is on its way.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from fedchain.chain.knowledge import EMPTY_ROOT, PART_SIZE_MAX
from fedchain.chain.storage.store import Content
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.network.downloads import Downloads, Request
from fedchain.network.messages import Chunk
from fedchain.network.sync import STALL_MS
from fedchain.node.core.context import Context
from fedchain.node.core.effects import Persist

AT_ONCE = 4
"""Contents that are fetched at a time."""

PROVIDERS = 3
"""Peers that are asked for a content before any is known to have it: one that lacks it costs an answer, not a wait."""

LOOK_MAX = 16
"""Blocks that are looked at in a tick."""

MISSING_MAX = 256
"""Contents that are known to be missing; no further block is looked at while there are so many."""

LATER_MAX = 4_096
"""Contents that nobody had and that are asked for again; the oldest goes, until the next start."""

RETRY_MS = 600_000
"""How long they wait for that: a peer that has them may come."""

HELD_UP_MS = 60_000
"""After so long in the way of other downloads one content is fetched beside them: a liar can keep one open for ever."""

SETTLED_MS = 5_000
"""How long a head has stood when its own contents are looked for: until then they may be on their way to the store."""

TURNS_MIN = 3
"""Times ``STALL_MS`` without a byte after which a content is given up, where there are fewer peers than that."""


@dataclass(slots=True)
class _Missing:
    """A content that is not here."""

    height: int
    """The block that needs it."""
    size: int | None
    """Bytes, as its author signed; None: a knowledge, of which the chain says nothing but the hash."""
    arrived: int = 0
    """Bytes that had come when it was last looked at."""
    moved_ms: int = 0
    """When some came last, or it was asked for."""


class Refill:
    """Looks for what is missing, block by block, and fetches it.

    Args:
        context: the node's memory.
        is_wanted: whether anything is looked for at all.
    """

    def __init__(self, context: Context, *, is_wanted: bool) -> None:
        self._context, self._is_wanted = context, is_wanted
        self._downloads = Downloads(max(context.genesis.knowledge_size_max, PART_SIZE_MAX))
        self._missing: dict[Hash, _Missing] = {}  # in the order in which they are fetched
        self._later: deque[tuple[int, Hash, _Missing]] = deque()  # when to ask again for what nobody had
        # All blocks between these two heights were looked at.
        self._lowest = context.head.height + 1
        self._highest = context.head.height
        self._came_ms = 0
        self._turn = 0

    def on_tick(self) -> None:
        """Look at the next blocks, and ask for what they lack."""
        context, now_ms = self._context, self._context.now.ms
        if not self._is_wanted:
            return
        self._look()
        while self._later and self._later[0][0] <= now_ms and len(self._missing) < MISSING_MAX:
            _, content_hash, missing = self._later.popleft()
            self._missing.setdefault(content_hash, missing)
        self._give_up()
        if not self._must_wait():
            context.send(self._downloads.on_tick(now_ms, list(context.peers)))
        self._ask()

    def on_chunk(self, peer: PublicKey, chunk: Chunk) -> bool:
        """A chunk; whether it is of a content that is fetched here alone. Raises InvalidPayload: ``peer`` lied."""
        context, now_ms = self._context, self._context.now.ms
        if chunk.content_hash not in self._downloads:
            return False
        content, requests = self._downloads.on_chunk(peer, chunk, now_ms)
        if content is not None:
            del self._missing[chunk.content_hash]
            self._came_ms = now_ms
            context.emit(Persist((Content(chunk.content_hash, content),)))
        if not self._must_wait():  # what is not asked for now is asked for at a later tick
            context.send(requests)
            self._ask()
        return chunk.content_hash not in context.contents.downloads

    def drop_provider(self, peer: PublicKey) -> None:
        """A peer is gone: others go on."""
        context = self._context
        context.send(self._downloads.drop(peer, context.now.ms, list(context.peers)))

    # what is missing

    def _look(self) -> None:
        """Note what the next blocks lack: first the new ones, and then from where we began down to what others keep."""
        context, window = self._context, self._context.genesis.retention_blocks
        head, base = context.head.height, context.storage.base()
        if self._highest < base - 1:  # joined: between what was here and the base there is nothing
            self._highest, self._lowest = base - 1, base
            if (root := context.ledger.base_knowledge()) != EMPTY_ROOT and not context.storage.holds_content(root):
                self._missing.setdefault(root, _Missing(base, None))  # what the first block here is recomputed from
        top = head if context.since_head_ms >= SETTLED_MS else head - 1
        bottom = max(base, head - window) if window else base
        for _ in range(LOOK_MAX):
            if len(self._missing) >= MISSING_MAX:
                return
            if self._highest < top:
                self._highest += 1
                self._note(self._highest)
            elif self._lowest > bottom:
                self._lowest -= 1
                self._note(self._lowest)
            else:
                return

    def _note(self, height: int) -> None:
        """Note what one block lacks; what is only in memory is stored."""
        context, found = self._context, self._context.ledger.final(height)
        if found is None:
            return
        block = found[0]
        contents: dict[Hash, int | None] = {post.payload_hash: post.payload_size for post in block.transactions}
        contents[block.header.knowledge_root] = None
        for content_hash, size in contents.items():
            if content_hash == EMPTY_ROOT or context.storage.holds_content(content_hash):
                continue
            data = context.contents.get(content_hash)
            if data is not None:
                context.emit(Persist((Content(content_hash, data),)))
            else:
                self._missing.setdefault(content_hash, _Missing(height, size))

    # what is fetched

    def _ask(self) -> None:
        """Fetch as many as may be on their way."""
        context, now_ms = self._context, self._context.now.ms
        peers = list(context.peers)
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
        """Contents to fetch next; one at a time of those whose size nobody knows, since they may be large."""
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
        """Let go of what no peer gives, until later; and of what is not kept any more."""
        context, now_ms = self._context, self._context.now.ms
        window = context.genesis.retention_blocks
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
        """Whether something that is open is being fetched."""
        return len(self._context.contents.downloads) > 0 or self._context.knowledge() is None

    def _must_wait(self) -> bool:
        """Whether nothing may be asked for beside that."""
        return self._is_busy() and self._context.now.ms - self._came_ms < HELD_UP_MS
