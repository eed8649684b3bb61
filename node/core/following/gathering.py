"""Gathering: a new federation may wait, by choice of each member, until enough of them are there."""

from fedchain.node.core.context import Context


class Gathering:
    """Holds back this peer's first post and block. Posts, blocks and votes of others are taken and judged as usual.

    To the others a waiting member is merely slow: no rule knows of the wait. If enough members do not wait, the first
    block ends the wait of all.

    Args:
        context: the node's memory.
        wanted: members, this one counted, that have to be connected; 0 and 1 wait for nobody.
    """

    def __init__(self, context: Context, wanted: int) -> None:
        self._context, self._wanted = context, wanted
        self._is_over = wanted <= 1

    @property
    def wanted(self) -> int:
        """Number of members to wait for, this one counted; 0 once they have been there, or the chain has begun."""
        return 0 if self._is_over else self._wanted

    def advance(self) -> bool:
        """Whether this peer may post and mine. The time until then is not held against anybody."""
        if self._is_over:
            return True
        context = self._context
        if context.head.height == 0 and len(context.peers) + 1 < self._wanted:
            return False
        self._is_over = True
        if context.head.height == 0:
            context.clock.since_ms = context.now.ms
            if context.clock.quorum_ms is not None:
                context.clock.quorum_ms = context.now.ms
        return True
