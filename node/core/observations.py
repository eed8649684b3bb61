"""Observations: facts for the operator that this peer derives from the chain and the votes."""

from collections.abc import Callable

from fedchain.crypto.keys import PublicKey
from fedchain.node.core.block_import import BlockImport
from fedchain.node.core.context import Context
from fedchain.node.core.ledger import Settled
from fedchain.node.core.notices import ClockOff, NotCounted

CLOCK_OFF_MS = 5_000
"""Largest difference from the median of all voters' clocks that needs no warning."""

SILENT = "this node was silent when the block was mined"
"""Why a block lacks our post, where nothing could be said in our name: we were away, or still listen."""


class Observations:
    """Notices clocks that are off, and the reason why our post was not counted.

    Args:
        context: the node's memory.
        blocks: takes blocks.
        is_silent: whether nothing may be signed in our own name.
    """

    def __init__(self, context: Context, blocks: BlockImport, is_silent: Callable[[], bool]) -> None:
        self._context, self._blocks, self._is_silent = context, blocks, is_silent
        self.clock_offsets_ms: dict[PublicKey, int] = {}
        """How far each voter's clock was ahead of the median; negative if behind: of its last two votes the one that
        was nearer to it, since a single vote may have been cast hours after the others. Only keys that members have now
        are among them, of members that are not gone for good."""
        self._last_offsets_ms: dict[PublicKey, int] = {}  # of the same keys, at the last vote
        self.not_counted: NotCounted | None = None
        """The newest block for which we owed a post, if it left that out; None if it counts one, or if we are none of
        those that count."""
        self.head_moved_ms: int | None = None
        """Time of the head's last move, by the monotonic clock; None before the first one."""

    def on_head(self, settled: Settled) -> None:
        """A block became final."""
        self.head_moved_ms = self._context.now.ms
        self._look_at_clocks(settled)
        self._look_for_our_post(settled)

    def _look_at_clocks(self, settled: Settled) -> None:
        """Compare the clocks that the votes show, as of one moment, and our own clock if that moment is now."""
        context, median_ms = self._context, settled.certificate.clock_ms
        offsets = {vote.voter: vote.clock_ms - median_ms for vote in settled.certificate.votes}
        if self._blocks.is_head_live:  # a block that a peer handed out may be hours old
            offsets.setdefault(context.me, context.now.clock_ms - median_ms)
        for member, offset_ms in offsets.items():
            lasting_ms = min(self._last_offsets_ms.get(member, 0), offset_ms, key=abs)
            was_off = abs(self.clock_offsets_ms.get(member, 0)) > CLOCK_OFF_MS
            if abs(lasting_ms) > CLOCK_OFF_MS and not was_off:
                context.tell(ClockOff(member, lasting_ms))
            self.clock_offsets_ms[member] = lasting_ms
        self._last_offsets_ms.update(offsets)
        roster = context.head.roster
        left = [key for key in self.clock_offsets_ms if roster.current(key) != key or key in roster.gone]
        for key in (*left, *(self.clock_offsets_ms.keys() - roster.seats.keys() - {context.me})):
            self.clock_offsets_ms.pop(key, None)
            self._last_offsets_ms.pop(key, None)

    def _look_for_our_post(self, settled: Settled) -> None:
        context, header = self._context, settled.block.header
        roster = settled.before.roster
        if not roster.is_active(context.me):
            self.not_counted = None
        if context.me not in roster.contributors:
            return
        if context.me in settled.block.senders:
            self.not_counted = None
            return
        before = self.not_counted
        if context.journal.post(header.round, header.phase) is None:
            reason = SILENT if self._is_silent() else "it was not ready when the block was mined"
        elif context.mempool.get((header.round, header.phase), context.me) is None:
            reason = "it was not sent"
        else:
            reason = (
                f"the block's miner did not hold it, or it came after the {len(settled.block.transactions)} counted"
            )
        self.not_counted = NotCounted(header.height, header.round, reason)
        if reason != SILENT or before is None or before.reason != SILENT:  # one that returns may follow thousands
            context.tell(self.not_counted)
