"""Foreseeing: the contribution that this peer will owe next if the vote goes as it expects.

While votes travel, a peer has nothing to train on: the next phase begins with a final block. Yet the knowledge that a
candidate brings is known as soon as it is judged. A shell may train on it ahead. Nothing of that is signed or sent
before the block is final, and the node asks for the contribution then as if nobody had begun.
"""

from dataclasses import dataclass, field

from fedchain.chain.state import State, phase_rule
from fedchain.node.core.context import Context
from fedchain.node.core.voting.voting import Voting


@dataclass(frozen=True, slots=True)
class Foreseen:
    """A contribution that this peer will owe if a candidate becomes final."""

    state: State
    """The state after the candidate."""
    phase_name: str
    """Name of the phase that is open then."""
    knowledge: bytes = field(repr=False)
    """The knowledge in force then."""

    @property
    def round(self) -> int:
        """Round of the phase."""
        return self.state.round


class Foreseeing:
    """Looks ahead of the votes."""

    def __init__(self, context: Context, voting: Voting) -> None:
        self._context, self._voting = context, voting

    def look(self) -> Foreseen | None:
        """The contribution that this peer expects to owe next; None if it expects none, or does not know."""
        context, entries = self._context, self._context.ledger.entries
        if not entries:
            return None
        lock = self._voting.agreement.lock
        entry = entries.get(self._voting.preferred() or b"" if lock is None else lock[1])
        if entry is None or not entry.is_valid:
            return None
        after = entry.after
        knowledge = context.content(after.knowledge_root)
        if after.finished or context.me not in after.roster.contributors or knowledge is None:
            return None
        return Foreseen(after, phase_rule(context.genesis, after).name, knowledge)
