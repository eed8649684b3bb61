"""In vain: when a node that replays gives up the contents of a block, which others may have dropped.

By its own rules they must still have them. But an amendment that is still ahead of it may have let all keep less.
"""

from collections.abc import Set

from fedchain.chain.block import Block
from fedchain.crypto.hashing import Hash
from fedchain.network.source import STALL_MS
from fedchain.node.core.context import Context

IN_VAIN_MS = 600_000
"""How long the next block's contents are asked for, without a byte of them, before it is taken on its certificate."""

AGAIN_IN_VAIN_MS = 2 * STALL_MS
"""The same for the blocks behind it, until contents of one come."""


class InVain:
    """Sees whether anything comes of what the next block is recomputed from."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._missing: tuple[Hash, int, int] = b"", 0, 0  # of a block: contents on their way, bytes of them
        self._since_ms, self._looked_ms = 0, 0  # since when it is so, and when it was looked at
        self._are_dropped = False  # whether contents of the last block were asked for in vain
        self._asked_ms: dict[Hash, int] = {}  # by block: when its payloads were asked for first

    def ask(self, block: Block) -> None:
        """The payloads of a block are asked for."""
        self._asked_ms[block.hash] = self._context.now.ms

    def come(self) -> None:
        """The contents of a block are here."""
        self._are_dropped = False

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
        if block.hash == self._missing[0] and now_ms < self._looked_ms + STALL_MS and not self._are_dropped:
            return False
        self._looked_ms = now_ms
        downloads, wanted = context.contents.downloads, {*block.payload_hashes, context.head.knowledge_root}
        on_their_way = [item for item in wanted if item in downloads]
        missing = block.hash, len(on_their_way), sum(map(downloads.arrived, on_their_way))
        if missing != self._missing or len(context.catch_up.at_least(block.header.height)) < context.catch_up.enough:
            self._missing, self._since_ms = missing, now_ms
        since_ms, patience_ms = self._since_ms, IN_VAIN_MS
        if self._are_dropped and not missing[2] and payloads_here in (0, len(block.transactions)):
            patience_ms = AGAIN_IN_VAIN_MS
            if not payloads_here:  # all of them were asked for together; what the last block left, only now
                since_ms = min(since_ms, self._asked_ms.get(block.hash, now_ms))
        self._are_dropped |= now_ms - since_ms >= patience_ms
        return now_ms - since_ms >= patience_ms
