"""Twins: our own key speaking elsewhere. A second copy of a key, or a node that lost its memory, must be silent.

A node says nothing in its own name before it has heard where the others are. If it then meets a statement of its own
that its journal does not know, it writes it down as its own, and waits in silence for two heights. If the other one
goes on meanwhile, this node stops; otherwise it was its own earlier self, and it speaks again.
"""

from dataclasses import dataclass
from typing import Protocol

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.chain.evidence import Statement
from fedchain.chain.vote import Vote
from fedchain.node.core.context import Context
from fedchain.node.core.effects import Stop
from fedchain.node.core.notices import Listening, SilenceOver, TwinHeard
from fedchain.node.core.voting.journal import Journal

SILENT_HEIGHTS = 2
"""Heights for which a node is silent, and the one that is open after them: our key may have begun to speak there
already. One that has spoken for less than that waits twice as long."""

LISTENING_MS = 5_000
"""How long a node listens for its own key, once it is where the others are."""

LISTENING_NOTICE_MS = 600_000
"""How often the operator hears which members a node waits for, before it speaks."""

SILENT_TIMEOUTS = 4
"""Phase timeouts without another statement after which a node speaks again, should the federation wait for it."""

HEIGHTS_AHEAD = 2
"""Heights above the others' head in which our earlier self may have spoken: it may have been the first to go on."""

AHEAD_MAX = 64
"""Statements of our own that are kept for a height which may not be written down yet."""


@dataclass(slots=True)
class _Alarm:
    """Our key spoke elsewhere."""

    known: int
    """Height up to which our earlier self may have spoken: a statement about a later one is another node's."""
    until: int
    """Height of the head at which the silence ends."""
    heard_ms: int
    """When it spoke last."""


class KeyGuard(Protocol):
    """Watches for another process that has our key."""

    @property
    def is_listening(self) -> bool:
        """Whether the others were not heard yet, or our own key is still listened for."""

    def is_silent(self) -> bool:
        """Whether nothing may be said now."""

    def advance(self) -> bool:
        """End the silence once nothing speaks for it any more; returns whether it ended now."""

    def hears(self, statement: Statement) -> None:
        """Take a statement that is signed with our key."""

    def reads(self, block: Block, certificate: Certificate) -> None:
        """Look for our key's statements in a block that became final."""


class Twins:
    """Listens for our own key.

    Args:
        context: the node's memory.
        has_listened: whether the key was listened for until now; then the node may speak at once.
        neighbours: members that the network ever connects this peer to; None: all.
    """

    def __init__(self, context: Context, *, has_listened: bool = False, neighbours: int | None = None) -> None:
        self._context, self._neighbours = context, neighbours
        self._is_listening = not has_listened
        self._told_ms: int | None = None  # when the operator heard last who is awaited; at first, when we began
        self._level_since_ms: int | None = None  # since when we are where the others are
        self._speaks_since: int | None = None  # height at which this process said something first
        self._alarm: _Alarm | None = None
        self._ahead: list[Statement] = []  # our own, about a height that is not open yet

    @property
    def is_listening(self) -> bool:
        """Whether the others were not heard yet, or our own key is still listened for."""
        return self._is_listening

    def is_silent(self) -> bool:
        """Whether nothing may be said now."""
        return self._is_listening or self._alarm is not None

    def advance(self) -> bool:
        """Begin to speak once the others are heard, and again when a silence is over; whether that was now."""
        context, was_silent = self._context, self.is_silent()
        if self._is_listening:
            self._is_listening = not self._has_heard_others()
            self._tell_whom_we_wait_for()
        if self._alarm is not None and self._is_over(self._alarm):
            self._alarm = None
            context.tell(SilenceOver(context.head.height))
        if not self.is_silent() and self._speaks_since is None:
            self._speaks_since = context.head.height
        return was_silent and not self.is_silent()

    def hears(self, statement: Statement) -> None:
        """Somebody passes on a statement; if it is ours and about what is still open, we had better know it."""
        context = self._context
        author = statement.voter if isinstance(statement, Vote) else statement.sender
        if author != context.me or context.journal.vouches_for(statement) or statement in self._ahead:
            return
        height = self._height_of(statement)
        if not context.head.height < height <= context.head.height + HEIGHTS_AHEAD:
            return  # what is closed contradicts nothing any more
        if context.checks.is_signed(author, statement):  # otherwise whoever takes it will refuse it
            self._raise_alarm(statement)

    def reads(self, block: Block, certificate: Certificate) -> None:
        """A block became final: look for ourselves in it, and write down what we were heard to say about the next."""
        context = self._context
        ahead, self._ahead = self._ahead, []
        for statement in ahead:
            self._write_down(statement)
        for vote in certificate.votes:
            if vote.voter == context.me and not context.journal.vouches_for(vote):
                self._raise_alarm(vote)
        for post in block.transactions:
            if post.sender == context.me and not context.journal.vouches_for(post):
                self._raise_alarm(post)

    def _raise_alarm(self, statement: Statement) -> None:
        """Say nothing for a while, and never anything that contradicts the statement."""
        context, height, said = self._context, self._context.head.height, _describe(statement)
        self._write_down(statement)
        alarm, claimed = self._alarm, self._claimed()
        # A node that is behind meets its earlier self's words, at every height up to where the others are.
        if alarm is not None and not self._is_listening and claimed <= height + HEIGHTS_AHEAD:
            alarm.heard_ms = context.now.ms
            if self._height_of(statement) > alarm.known:
                context.emit(
                    Stop(
                        f"this key speaks elsewhere: {said} was signed by another node. Two nodes with one key are "
                        "one traitor to all others; stop the other one, or take this one's key away"
                    )
                )
            return
        is_new = self._speaks_since is None or height - self._speaks_since < SILENT_HEIGHTS
        reached = max(height, claimed)
        until = reached + SILENT_HEIGHTS * (2 if is_new else 1) + 1
        self._alarm = _Alarm(reached + HEIGHTS_AHEAD, until, context.now.ms)
        if alarm is None:
            context.tell(TwinHeard(said, until))

    def _write_down(self, statement: Statement) -> None:
        """Take a statement into the journal, which goes no further than the height that is open here.

        Its signature proves that our key made it, not that the chain ever was there: a journal that followed it would
        let us sign nothing until then.
        """
        context = self._context
        if self._height_of(statement) <= context.head.height + 1:
            context.write_journal(context.journal.adopt(statement))
        elif len(self._ahead) < AHEAD_MAX:
            self._ahead.append(statement)

    def _is_over(self, alarm: _Alarm) -> bool:
        """Whether the silence has lasted long enough.

        A federation that waits for us stays at its height: what we said there has been heard by now.
        """
        context = self._context
        is_late = context.now.ms - alarm.heard_ms >= SILENT_TIMEOUTS * context.genesis.phase_timeout_ms
        return is_late or context.head.height >= alarm.until

    def _height_of(self, statement: Statement) -> int:
        """Height that a statement is about; every phase is closed by one block."""
        if isinstance(statement, Vote):
            return statement.height
        genesis = self._context.genesis
        before = len(genesis.setup) + (statement.round - 1) * len(genesis.phases) if statement.round else 0
        return before + statement.phase + 1

    # where the others are

    def _has_heard_others(self) -> bool:
        """Whether we are where the others are, by the word of so many that one of them is honest.

        Of f + 1 members that say they are no further than we are one is honest; those that say they are further may
        be the liars, so they alone keep nobody silent. Where anything was ever said, another node with our key gets
        some time to be heard before we say something different.
        """
        context, required = self._context, self._claims_required()
        if len(self._claims(0, context.head.height)) < required:
            return False
        if not required or (context.head.height == 0 and context.journal == Journal()):
            return True
        if self._level_since_ms is None:
            self._level_since_ms = context.now.ms
        return context.now.ms - self._level_since_ms >= LISTENING_MS

    def _claims(self, low: int, high: int = 2**63) -> dict[bytes, int]:
        """Other active members that say that their head is between two heights, and at which."""
        context = self._context
        return {
            peer: height
            for peer, height in context.catch_up.claims().items()
            if low <= height <= high and peer != context.me and context.head.roster.is_active(peer)
        }

    def _claimed(self) -> int:
        """Height that so many members say they have that one of them is honest; 0 where fewer spoke."""
        heights, required = sorted(self._claims(0).values(), reverse=True), self._claims_required()
        return heights[required - 1] if 0 < required <= len(heights) else 0

    def _claims_required(self) -> int:
        """Members of which one is honest: f + 1 of the federation, whichever members vote at this height.

        Where a network connects this peer to few, as many as are left of them when f are down, or one.
        """
        context = self._context
        active = sum(context.head.roster.is_active(member) for member in context.head.roster.members)
        others, faulty = active - context.head.roster.is_active(context.me), context.genesis.fault_model.faulty(active)
        reached = others if self._neighbours is None else min(others, self._neighbours)
        return max(min(1, reached), min(faulty + 1, reached - faulty))

    def _tell_whom_we_wait_for(self) -> None:
        """Tell the operator, once listening takes longer than it should, and then at times."""
        context = self._context
        if self._told_ms is None:
            self._told_ms = context.now.ms + LISTENING_MS - LISTENING_NOTICE_MS
        if not self._is_listening or context.now.ms - self._told_ms < LISTENING_NOTICE_MS:
            return
        level, heard = self._claims(0, context.head.height), self._claims(0)
        if len(level) >= self._claims_required():
            return  # a moment more
        self._told_ms = context.now.ms
        unheard = (member for member in context.head.roster.members if member not in heard and member != context.me)
        context.tell(
            Listening(
                len(level),
                self._claims_required(),
                tuple(member for member in unheard if context.head.roster.is_active(member)),
                tuple(member for member in heard if member not in level),
            )
        )


def _describe(statement: Statement) -> str:
    if isinstance(statement, Vote):
        return f"a {statement.kind.name.lower()} at height {statement.height}, attempt {statement.attempt}"
    return f"a post in round {statement.round}, phase {statement.phase}"
