"""Foreseeing: the state in which this peer will owe its next contribution if the vote goes as it expects.

While votes travel, a peer has nothing to train on: the next phase begins with a final block. Yet the knowledge that a
candidate leaves behind is known as soon as it is judged. A shell may train on it ahead. Nothing of that is signed or
sent before the block is final, and the node asks for the contribution then as if nobody had begun.
"""

from collections.abc import Callable

from fedchain.chain.state import State
from fedchain.node.core.context import Context
from fedchain.node.core.voting.voting import Voting


class Foreseeing:
    """Looks ahead of the votes, where that ``is_wanted``, and while the peer is not occupied beyond the open phase."""

    def __init__(self, context: Context, voting: Voting, is_occupied: Callable[[], bool], *, is_wanted: bool) -> None:
        self._context, self._voting, self._is_occupied, self._is_wanted = context, voting, is_occupied, is_wanted

    def look(self) -> State | None:
        """The state that this peer expects; None if it is to contribute nothing there."""
        state = self.expect()
        if state is None or self._is_occupied():
            return None
        return state if self._context.me in state.roster.contributors else None

    def expect(self) -> State | None:
        """The state after the candidate that this peer is locked on, or would vote for; None if there is none."""
        entries = self._context.ledger.entries
        if not self._is_wanted or not entries:
            return None
        lock = self._voting.agreement.lock
        entry = entries.get(self._voting.preferred() or b"" if lock is None else lock[1])
        if entry is None or not entry.is_valid or entry.after.finished:
            return None
        return entry.after
