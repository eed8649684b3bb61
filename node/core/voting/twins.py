"""Twins: our own key in use elsewhere. A second copy of a key, or a node that lost its memory, must be silent.

A node signs nothing before it knows the heads of others. If it then meets a statement of its own that its journal does
not know, it adds the statement to the journal, and is silent for two heights. If a twin signs more meanwhile, this node
stops; otherwise the statement was its own earlier self's, and it signs again.
"""

from dataclasses import dataclass
from typing import Protocol

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.chain.evidence import Statement
from fedchain.chain.state import State
from fedchain.chain.vote import Vote
from fedchain.node.core.context import Context
from fedchain.node.core.effects import Stop
from fedchain.node.core.notices import Listening, SilenceOver, TwinHeard
from fedchain.node.core.voting.journal import Journal

SILENT_HEIGHTS = 2
"""Heights for which a node is silent, plus the one that is open after them, where our key may have signed already. A
node that has signed for fewer heights waits twice as long."""

LISTENING_MS = 5_000
"""How long a node listens for its own key, once it is level with the others."""

LISTENING_NOTICE_MS = 600_000
"""Interval at which the operator is told for which members a listening node waits."""

SILENT_TIMEOUTS = 4
"""Phase timeouts without another statement after which a node signs again, since the federation may wait for it."""

HEIGHTS_AHEAD = 2
"""Heights above the others' head at which our earlier self may have signed: it may have been the first to go on."""

AHEAD_MAX = 64
"""Most statements of our own that are kept for heights that may not be written down yet."""


@dataclass(slots=True)
class _Alarm:
    """A silence because our key was used elsewhere."""

    known: int
    """Height up to which our earlier self may have signed: a statement about a later one is another node's."""
    until: int
    """Height of the head at which the silence ends."""
    heard_ms: int
    """Time of the last statement that this node did not know."""


class KeyGuard(Protocol):
    """Watches for another process with our key."""

    @property
    def is_listening(self) -> bool:
        """Whether the others' heads are not known yet, or this node still listens for its own key."""

    def is_silent(self) -> bool:
        """Whether nothing may be signed now."""

    def may_end(self) -> bool:
        """Whether the silence may be over, now that another head is known."""

    def advance(self) -> bool:
        """End the silence once there is no reason for it any more; returns whether it ended now."""

    def hears(self, statement: Statement) -> None:
        """Take a statement that is signed with our key."""

    def reads(self, block: Block, certificate: Certificate) -> None:
        """Look for our key's statements in a block that became final."""


class Twins:
    """Listens for our own key.

    Args:
        context: the node's memory.
        has_listened: whether the node has listened for the key until now; then it may sign at once.
        neighbours: number of members that the network ever connects this peer to; None for all.
    """

    def __init__(self, context: Context, *, has_listened: bool, neighbours: int | None) -> None:
        self._context, self._neighbours = context, neighbours
        self._required: tuple[State | None, int] = None, 0  # a head, and the claims required there
        self._is_listening = not has_listened
        self._told_ms: int | None = None  # when the operator was told last; at first, when we began
        self._level_since_ms: int | None = None  # since when we are level with the others
        self._speaks_since: int | None = None  # height at which this process was first allowed to sign
        self._alarm: _Alarm | None = None
        self._ahead: list[Statement] = []  # our own, about a height that is not open yet

    @property
    def is_listening(self) -> bool:
        """Whether the others' heads are not known yet, or this node still listens for its own key."""
        return self._is_listening

    def is_silent(self) -> bool:
        """Whether nothing may be signed now."""
        return self._is_listening or self._alarm is not None

    def may_end(self) -> bool:
        """Whether the silence may be over, now that another head is known: asked after each status."""
        if self._is_listening:
            return self._context.catch_up.heard() >= self._claims_required()
        return self._alarm is not None

    def advance(self) -> bool:
        """End the silence once the others' heads are known, or an alarm is over; returns whether it ended now."""
        context, was_silent = self._context, self.is_silent()
        if self._is_listening:
            self._is_listening = not self._has_heard_others()
            self._tell_whom_we_wait_for()
        if self._alarm is not None and self._is_over(self._alarm):
            self._alarm = None
            if context.head.roster.is_active(context.me):  # one that the twin had convicted says nothing any more
                context.tell(SilenceOver(context.head.height))
        if not self.is_silent() and self._speaks_since is None:
            self._speaks_since = context.head.height
        return was_silent and not self.is_silent()

    def hears(self, statement: Statement) -> None:
        """A peer passes on a statement: raise the alarm if it is an unknown one of ours and near the open height."""
        context = self._context
        author = statement.voter if isinstance(statement, Vote) else statement.sender
        if author != context.me or context.journal.vouches_for(statement) or statement in self._ahead:
            return
        if not self._may_be_contradicted(statement):
            return
        if context.is_signed(author, statement):  # otherwise it is refused when it is processed
            self._raise_alarm(statement)

    def reads(self, block: Block, certificate: Certificate) -> None:
        """A block became final: look for our statements in it, and write down those about the next height."""
        context, me = self._context, self._context.me
        ahead, self._ahead = self._ahead, []
        for statement in ahead:
            self._write_down(statement)
        for vote in certificate.votes:
            if vote.voter == me and not context.journal.vouches_for(vote):
                self._raise_alarm(vote)
        for post in block.transactions:
            if post.sender == me and not context.journal.vouches_for(post):
                self._raise_alarm(post)

    def _raise_alarm(self, statement: Statement) -> None:
        """Sign nothing for a while, and never anything that contradicts the statement."""
        context, height, said = self._context, self._context.head.height, _describe(statement)
        self._write_down(statement)
        alarm, claimed = self._alarm, self._claimed()
        # A node that is behind meets its earlier self's statements at every height up to the others' head.
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
        """Add a statement to the journal, but only up to the height that is open here.

        The signature proves that our key made the statement, not that the chain ever was at its height. A journal that
        followed it would let us sign nothing until then.
        """
        context = self._context
        if self._height_of(statement) <= context.head.height + 1:
            settled = context.ledger.certificate
            context.write_journal(context.journal.adopt(statement, context.genesis.late_rounds, settled))
        elif len(self._ahead) < AHEAD_MAX:
            self._ahead.append(statement)

    def _may_be_contradicted(self, statement: Statement) -> bool:
        """Whether another one could be signed in its place: its height is near, or its post may be counted late."""
        head = self._context.head
        if not isinstance(statement, Vote) and head.owed_to(statement.key) is not None:
            return True
        return head.height < self._height_of(statement) <= head.height + HEIGHTS_AHEAD

    def _is_over(self, alarm: _Alarm) -> bool:
        """Whether the silence has lasted long enough.

        If the federation waits for us, it stays at its height; by now all our statements there have reached us.
        """
        context = self._context
        is_late = context.now.ms - alarm.heard_ms >= SILENT_TIMEOUTS * context.head.rules.phase_timeout_ms
        return is_late or context.head.height >= alarm.until

    def _height_of(self, statement: Statement) -> int:
        """Height of a statement; every phase is closed by one block."""
        if isinstance(statement, Vote):
            return statement.height
        genesis = self._context.genesis
        before = len(genesis.setup) + (statement.round - 1) * len(genesis.phases) if statement.round else 0
        return before + statement.phase + 1

    # the others' heads

    def _has_heard_others(self) -> bool:
        """Whether we are level with the others, according to enough members that one of them is honest.

        One of f + 1 members that announce a head no higher than ours is honest. Members that announce a higher one may
        be the liars, so they alone keep no node silent. If our key may have signed before, a twin gets some time to be
        noticed before we sign anything different.
        """
        context, required = self._context, self._claims_required()
        if context.catch_up.heard() < required or len(self._claims(context.head.height)) < required:
            return False
        if not required or (context.head.height == 0 and context.journal == Journal()):
            return True
        if self._level_since_ms is None:
            self._level_since_ms = context.now.ms
        return context.now.ms - self._level_since_ms >= LISTENING_MS

    def _claims(self, high: int = 2**63) -> dict[bytes, int]:
        """Heights of the heads that other active members announce, up to a height."""
        context = self._context
        return {
            peer: height
            for peer, height in context.catch_up.claims().items()
            if height <= high and peer != context.me and context.head.roster.is_active(peer)
        }

    def _claimed(self) -> int:
        """Height that enough members announce for one of them to be honest; 0 if fewer announced any."""
        heights, required = sorted(self._claims().values(), reverse=True), self._claims_required()
        return heights[required - 1] if 0 < required <= len(heights) else 0

    def _claims_required(self) -> int:
        """Number of members among which one is honest: f + 1 of the federation, whoever votes at this height.

        If the network connects this peer to few, it is the number that is left of those when f are down, at least one.
        """
        context, head = self._context, self._context.head
        if self._required[0] is not head:  # each status asks
            active = head.roster.active
            others, faulty = active - head.roster.is_active(context.me), context.genesis.fault_model.faulty(active)
            reached = others if self._neighbours is None else min(others, self._neighbours)
            self._required = head, max(min(1, reached), min(faulty + 1, reached - faulty))
        return self._required[1]

    def _tell_whom_we_wait_for(self) -> None:
        """Tell the operator once listening takes longer than it should, and then at intervals."""
        context = self._context
        if self._told_ms is None:
            self._told_ms = context.now.ms + LISTENING_MS - LISTENING_NOTICE_MS
        if not self._is_listening or context.now.ms - self._told_ms < LISTENING_NOTICE_MS:
            return
        level, heard = self._claims(context.head.height), self._claims()
        if len(level) >= self._claims_required():
            return  # enough members are level: listening is about to end
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
