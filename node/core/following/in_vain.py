"""In vain: when a node that replays gives up the contents of a block, which others may have dropped.

By its own rules they must still have them. But an amendment that is still ahead of it may have let all keep less.
"""

from collections.abc import Set

from fedchain.chain.block import Block
from fedchain.crypto.hashing import Hash
from fedchain.network.source import RATE_MIN, STALL_MS
from fedchain.node.core.context import Context

IN_VAIN_MS = 600_000
"""How long the next block's contents are asked for, without a byte of them, before it is taken on its certificate."""

AGAIN_IN_VAIN_MS = 2 * STALL_MS
"""The same for the blocks behind it, until contents of one come; also where bytes come, once they did so in vain."""

PACE = RATE_MIN // 8
"""So many bytes of contents that are not whole yet make it wait a second longer. A liar can send the beginning of one
again and again: it takes twice as many after each block that was given up though some came, until contents of one come.
"""


class InVain:
    """Sees whether anything comes of what the next block is recomputed from."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._block = b""  # the one that was looked at last
        self._arrived: dict[Hash, int] = {}  # most bytes that have come of each of its contents on their way
        self._since_ms, self._looked_ms = 0, 0  # since when it is so, and when it was looked at
        self._are_dropped = False  # whether contents of the last block were asked for in vain
        self._pace = PACE
        self._asked_ms: dict[Hash, int] = {}  # by block: when its payloads were asked for first

    def ask(self, block: Block) -> None:
        """The payloads of a block are asked for."""
        self._asked_ms[block.hash] = self._context.now.ms

    def come(self) -> None:
        """The contents of a block are here."""
        self._are_dropped, self._pace = False, PACE

    def keep(self, blocks: Set[Hash]) -> None:
        """Forget all blocks but those that still wait."""
        self._asked_ms = {item: at_ms for item, at_ms in self._asked_ms.items() if item in blocks}

    def is_over(self, block: Block, payloads_here: int) -> bool:
        """Whether nothing of the next block's contents has come for long, though one of those asked is honest.

        It looks once in a while, since contents come by the thousand.

        Args:
            block: the block above our head, which is final.
            payloads_here: number of its posts whose payloads are here.
        """
        context, now_ms = self._context, self._context.now.ms
        if block.hash == self._block and now_ms < self._looked_ms + STALL_MS and not self._are_dropped:
            return False
        self._looked_ms = now_ms
        has_come = self._look(block)
        if has_come or len(context.catch_up.at_least(block.header.height)) < context.catch_up.enough:
            self._since_ms = now_ms
        since_ms, patience_ms, arrived = self._since_ms, IN_VAIN_MS, sum(self._arrived.values())
        is_in_vain = self._are_dropped and (not arrived or self._pace > PACE)
        if is_in_vain and payloads_here in (0, len(block.transactions)):
            patience_ms = AGAIN_IN_VAIN_MS
            if not payloads_here:  # all of them were asked for together; what the last block left, only now
                since_ms = min(since_ms, self._asked_ms.get(block.hash, now_ms))
        if now_ms - since_ms < patience_ms + 1_000 * arrived // self._pace:
            return False
        self._are_dropped, self._pace = True, 2 * self._pace if arrived else self._pace
        return True

    def _look(self, block: Block) -> bool:
        """Note what is on its way. Returns whether something came, and so is not any more, or the block is another one.

        The most that ever came of a content counts: a liar that sends the beginning of one again and again would
        otherwise keep us waiting for ever.
        """
        downloads, wanted = self._context.contents.downloads, {*block.payload_hashes, self._context.head.knowledge_root}
        before = self._arrived if block.hash == self._block else {}
        on_their_way = (item for item in wanted if item in downloads)
        self._arrived = {item: max(before.get(item, 0), downloads.arrived(item)) for item in on_their_way}
        has_come = block.hash != self._block or not before.keys() <= self._arrived.keys()
        self._block = block.hash
        return has_come
