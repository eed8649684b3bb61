"""Twins: our own key speaking elsewhere. A second copy of a key, or a node that lost its memory, must be silent.

A node says nothing in its own name before it has heard where the others are. If it then meets a statement of its own
that its journal does not know, it writes it down as its own, and waits in silence for two heights. If the other one
goes on meanwhile, this node stops; otherwise it was its own earlier self, and it speaks again.
"""

from dataclasses import dataclass

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.chain.evidence import Statement
from fedchain.chain.vote import Vote
from fedchain.node.core.context import Context
from fedchain.node.core.effects import Stop
from fedchain.node.core.notices import SilenceOver, TwinHeard

SILENT_HEIGHTS = 2
"""Heights for which a node is silent; one that has spoken for less than that waits twice as long."""

LISTENING_MS = 5_000
"""How long a node listens for its own key, and for more peers before the few that it has heard are enough."""

SILENT_TIMEOUTS = 4
"""Phase timeouts without another statement after which a node speaks again, should the federation wait for it."""


HEIGHTS_AHEAD = 2
"""Heights above the others' head in which our earlier self may have spoken: it may have been the first to go on."""


@dataclass(slots=True)
class _Alarm:
    """Our key spoke elsewhere."""

    known: int
    """Height up to which our earlier self may have spoken: a statement about a later one is another node's."""
    until: int
    """Height of the head at which the silence ends."""
    heard_ms: int
    """When it spoke last."""


class Twins:
    """Listens for our own key.

    Args:
        context: the node's memory.
        has_listened: whether the key was listened for until now; then the node may speak at once.
    """

    def __init__(self, context: Context, *, has_listened: bool = False) -> None:
        self._context = context
        self._is_listening = not has_listened
        self._listens_since_ms: int | None = None
        self._speaks_since: int | None = None  # height at which this process said something first
        self._alarm: _Alarm | None = None

    def is_silent(self) -> bool:
        """Whether nothing may be said now."""
        return self._is_listening or self._alarm is not None

    def advance(self) -> bool:
        """Begin to speak once the others are heard, and again when a silence is over; whether that was now."""
        context, was_silent = self._context, self.is_silent()
        if self._is_listening and self._has_heard_others():
            self._is_listening = False
        if (alarm := self._alarm) is not None:
            is_past = context.head.height >= alarm.until
            if is_past:
                context.write_journal(context.journal.passed_over(context.head.height + 1))
            # A federation that waits for us stays at its height: what we said there has been heard by now.
            if is_past or context.now.ms - alarm.heard_ms >= SILENT_TIMEOUTS * context.genesis.phase_timeout_ms:
                self._alarm = None
                context.tell(SilenceOver(context.head.height))
        if not self.is_silent() and self._speaks_since is None:
            self._speaks_since = context.head.height
        return was_silent and not self.is_silent()

    def hears(self, statement: Statement) -> None:
        """Somebody passes on a statement; if it is ours and about what is still open, we had better know it."""
        context = self._context
        author = statement.voter if isinstance(statement, Vote) else statement.sender
        if author != context.me or context.journal.vouches_for(statement):
            return
        height = self._height_of(statement)
        if not context.head.height < height <= context.head.height + HEIGHTS_AHEAD:
            return  # what is closed contradicts nothing any more
        if context.checks.is_signed(author, statement):  # otherwise whoever takes it will refuse it
            self._raise_alarm(statement)

    def reads(self, block: Block, certificate: Certificate) -> None:
        """A block became final: look for ourselves in it."""
        context = self._context
        for vote in certificate.votes:
            if vote.voter == context.me and not context.journal.vouches_for(vote):
                self._raise_alarm(vote)
        for post in block.transactions:
            if post.sender == context.me and not context.journal.vouches_for(post):
                self._raise_alarm(post)

    def _raise_alarm(self, statement: Statement) -> None:
        """Say nothing for a while, and never anything that contradicts the statement."""
        context, height, said = self._context, self._context.head.height, _describe(statement)
        context.write_journal(context.journal.adopt(statement))
        if self._alarm is not None and not self._is_listening:
            self._alarm.heard_ms = context.now.ms
            if self._height_of(statement) > self._alarm.known:
                context.emit(
                    Stop(
                        f"this key speaks elsewhere: {said} was signed by another node. Two nodes with one key are "
                        "one traitor to all others; stop the other one, or take this one's key away"
                    )
                )
            return
        is_new = self._speaks_since is None or height - self._speaks_since < SILENT_HEIGHTS
        until = height + SILENT_HEIGHTS * (2 if is_new else 1)
        known = max(height, context.catch_up.claimed_by(self._enough())) + HEIGHTS_AHEAD
        self._alarm = _Alarm(known, until, context.now.ms)
        context.tell(TwinHeard(said, until))

    def _height_of(self, statement: Statement) -> int:
        """Height that a statement is about; every phase is closed by one block."""
        if isinstance(statement, Vote):
            return statement.height
        genesis = self._context.genesis
        before = len(genesis.setup) + (statement.round - 1) * len(genesis.phases) if statement.round else 0
        return before + statement.phase + 1

    def _has_heard_others(self) -> bool:
        """Whether enough peers said where they are, and we are as far as one of them that is honest.

        Who is connected to few, or to some that say nothing, cannot wait for more: after a while one is enough. Where
        a chain has begun, another node with our key gets that time to be heard before we say something different.
        """
        context, enough = self._context, self._enough()
        heard = context.catch_up.heard()
        if heard and self._listens_since_ms is None:
            self._listens_since_ms = context.now.ms
        waited_ms = 0 if self._listens_since_ms is None else context.now.ms - self._listens_since_ms
        if heard > 0 and waited_ms >= LISTENING_MS:
            enough = min(enough, heard)
        elif enough and context.head.height:
            return False
        return heard >= enough and context.head.height >= context.catch_up.claimed_by(enough)

    def _enough(self) -> int:
        """Peers of which one is honest; all others, where they are fewer."""
        context = self._context
        faulty = context.genesis.fault_model.faulty(len(context.head.electors))
        return min(len(context.head.members) - 1, faulty + 1)


def _describe(statement: Statement) -> str:
    if isinstance(statement, Vote):
        return f"a {statement.kind.name.lower()} at height {statement.height}, attempt {statement.attempt}"
    return f"a post in round {statement.round}, phase {statement.phase}"
