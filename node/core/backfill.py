"""Backfill: older blocks, fetched in the background by who joined late and wants the whole chain.

Nothing has to be believed: each block is named by the hash in the one above it, and so is its certificate.
"""

from fedchain.chain.block import Block
from fedchain.chain.storage.store import Final
from fedchain.network.messages import FINALS_MAX, GetFinal
from fedchain.network.sync import STALL_MS
from fedchain.node.core.answers import finals_that_fit
from fedchain.node.core.context import Context
from fedchain.node.core.effects import Persist


class Backfill:
    """Asks one peer after the other for the blocks below the lowest that is held, a batch at a time.

    Args:
        context: the node's memory.
        is_wanted: whether older blocks are fetched at all.
    """

    def __init__(self, context: Context, *, is_wanted: bool) -> None:
        self._context, self._is_wanted = context, is_wanted
        self._base = context.storage.base()
        self._above: Block | None = None
        self._asked_ms: int | None = None
        self._count = FINALS_MAX  # blocks that are asked for at a time
        self._turn = 0
        self._batch: dict[int, Block] = {}

    def on_joined(self) -> None:
        """The head came from elsewhere: what lies below it is missing."""
        settled = self._context.ledger.settled
        assert settled is not None, "who joined has a head"
        self._base, self._above, self._batch = settled.block.header.height, settled.block, {}

    def on_tick(self) -> None:
        """Ask for a batch, if none is on its way."""
        context, peers = self._context, list(self._context.peers)
        if not self._is_wanted or self._base <= 1 or not peers:
            return
        if self._asked_ms is None:
            self._count = finals_that_fit(context.head)
        elif context.now.ms - self._asked_ms < STALL_MS:
            return
        else:  # an answer begins with the lowest block: one that is cut short never gets to those that we can use
            self._count = max(1, self._count // 2)
        self._asked_ms, self._turn = context.now.ms, self._turn + 1
        first = max(1, self._base - self._count)
        context.send([(peers[self._turn % len(peers)], GetFinal(first, self._base - first))])

    def on_block(self, block: Block) -> bool:
        """A block from below; whether it was asked for."""
        height = block.header.height
        if not self._is_wanted or not self._base - FINALS_MAX <= height < self._base:
            return False
        self._batch[height] = block
        if height == self._base - 1:
            self._take()
        return True

    def _take(self) -> None:
        """Keep what hangs together with the lowest block that is held."""
        context, records = self._context, list[Final]()
        above = self._above or self._lowest()
        while above is not None and (block := self._batch.pop(self._base - 1, None)) is not None:
            if (
                block.hash != above.header.parent_hash
                or above.certificate is None
                or not context.checks.is_whole(block)
            ):
                break  # somebody's invention, or somebody else's body under a good header
            records.append(Final(block, above.certificate, b""))
            self._above = above = block
            self._base -= 1
        self._batch.clear()
        if records:
            self._asked_ms = None  # the next batch at the next tick
            context.emit(Persist(tuple(records)))

    def _lowest(self) -> Block | None:
        found = self._context.ledger.final(self._base)
        return None if found is None else found[0]
