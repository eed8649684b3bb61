"""Sessions: find another process with our key before the two contradict each other.

Each process announces under a random number that it has the key, while it listens and at its first heights. If it
receives another number under its own key, it names that number in an answer. A process that is named by another one
knows that the other runs now, since its own number is new; it answers, and stops. Old announcements of an earlier
process, replayed by anybody, name no new number: they are answered, and nothing follows.

The statements that are passed on are bounded: a number for each member and height, and only heights near our own head.
"""

from fedchain.chain.exceptions import AlreadyKnown, InvalidSignature, LimitReached, OutOfWindow
from fedchain.chain.state import State
from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import SessionMessage
from fedchain.network.session import NOBODY, Session, sign_session
from fedchain.node.core.checks import Checks
from fedchain.node.core.context import Context
from fedchain.node.core.effects import Publish, Send, Stop
from fedchain.node.core.notices import SessionHeard
from fedchain.node.core.voting.journal import Journal

HEIGHTS_APART = 2
"""Most heights between a passed-on statement and our head."""

KEPT_MAX = 32
"""Most statements of a member that are kept and passed on at one height: room for a few starts with their answers."""

SAID_MAX = 8
"""Announcements of a listening process at one height; several, since packets may be lost."""

FIRST_HEIGHTS = 2
"""Heights after the first at which it announces itself once more."""

FAREWELLS = 2
"""Ticks for which a named process goes on answering before it stops, so that the other one stops, too."""

HANDED_MAX = 4
"""Most statements of other sessions of its key that a peer is handed at once."""


class _Statements:
    """The statements that are kept, by the places of their members: one of each as a rule, which takes no entry."""

    def __init__(self) -> None:
        self._first: list[Session | None] = []
        self._further: dict[int, tuple[Session, ...]] = {}
        self._count, self._lowest = 0, 0  # their number, and the lowest of their heights

    def __len__(self) -> int:
        return self._count

    def __contains__(self, seat: int) -> bool:
        return seat < len(self._first) and self._first[seat] is not None

    def of(self, seat: int, member: PublicKey) -> list[Session]:
        """Those of the key that a place's member has now, in the order in which they came."""
        said = (self._first[seat], *self._further.get(seat, ())) if seat in self else ()
        return [item for item in said if item is not None and item.member == member]

    def add(self, seat: int, session: Session) -> None:
        """Keep one more statement."""
        if seat >= len(self._first):
            self._first += [None] * (seat + 1 - len(self._first))
        if self._first[seat] is None:
            self._first[seat] = session
        else:
            self._further[seat] = *self._further.get(seat, ()), session
        self._lowest = min(self._lowest, session.height) if self._count else session.height
        self._count += 1

    def drop_below(self, height: int) -> None:
        """Drop what was said at lower heights."""
        if self._lowest >= height or not self._count:
            return
        first, further, self._first, self._further, self._count = self._first, self._further, [], {}, 0
        for seat, item in enumerate(first):
            for session in () if item is None else (item, *further.get(seat, ())):
                if session.height >= height:
                    self.add(seat, session)


class Said:
    """A process's statement that comes to some nodes of this process, with what the last one that noted it found.

    The next one finds the same if it stands on the same state and shares its checks, and so the federation: whether
    the statement is signed, and by a member that counts there, depends on nothing else.
    """

    __slots__ = ("checks", "head", "seat", "session")

    def __init__(self, session: Session) -> None:
        self.session = session
        self.head: State | None = None
        self.checks: Checks | None = None
        self.seat = -1


class Sessions:
    """Listens for other processes with our key, and helps other members to find theirs.

    Args:
        context: the node's memory.
        number: 16 bytes, drawn at random when this process started.
        has_listened: whether it has listened for our key until now, so that a first connection is no news.
    """

    def __init__(self, context: Context, number: bytes, *, has_listened: bool = False) -> None:
        self._context, self._number, self._has_listened = context, number, has_listened
        self._kept = _Statements()
        self._gone: set[PublicKey] = set()  # peers that were disconnected: they may be connected to our twin meanwhile
        self._has_begun = context.head.height > 0 or context.journal != Journal()  # whether our key may have signed
        self._until = 0  # height up to which we announce ourselves
        self._said_at, self._said = -1, 0  # height of our last announcement, and their number at that height
        self._sequence = 0
        self._other: bytes | None = None  # the process that named us
        self._farewells = FAREWELLS

    def is_ending(self) -> bool:
        """Whether another process has our key, so that nothing may be signed any more."""
        return self._other is not None

    def on_session(self, peer: PublicKey, session: Session) -> None:
        """Take a statement that a process has a member's key, passed on by a peer. Raises Refused."""
        context, head, member = self._context, self._context.head, session.member
        seat = head.roster.seats.get(member)
        if seat is None:
            unknown = OutOfWindow if head.records else InvalidSignature  # others may know of another key
            raise unknown("session's member", f"{member.hex()[:16]}… is no member")
        if not head.roster.is_active(member):
            raise OutOfWindow("session's member", f"{member.hex()[:16]}… does not count now")
        if abs(session.height - head.height) > HEIGHTS_APART:
            raise OutOfWindow("session's height", f"{session.height} found, our head is {head.height}")
        kept = self._kept.of(seat, member)
        if session in kept or session.number == self._number:
            raise AlreadyKnown("session", f"{session.number.hex()} said so")
        if kept and sum(known.height == session.height for known in kept) >= KEPT_MAX:
            raise LimitReached("sessions", f"{KEPT_MAX} of {member.hex()[:16]}… at height {session.height} are kept")
        if not context.is_signed(member, session):
            raise InvalidSignature("signature", f"{session.signature.hex()[:16]}… is not {member.hex()[:16]}…'s")
        self._kept.add(seat, session)
        if member == context.me:
            self._meet(session)
        elif kept and member == peer:  # its own statement: other sessions of its key may reach it in no other way
            others = [known for known in kept if known.number != session.number]
            context.send((peer, SessionMessage(known)) for known in others[-HANDED_MAX:])

    def notes(self, said: Said) -> bool:
        """Keep a statement if :meth:`on_session` would do nothing else with it: another member's first, made at our
        height. False: it is left to that."""
        context, session = self._context, said.session
        head = context.ledger.head
        if said.head is not head or said.checks is not context.checks:
            if session.height != head.height or not head.roster.is_active(session.member):
                return False
            if not context.is_signed(session.member, session):
                return False
            said.head, said.checks, said.seat = head, context.checks, head.roster.seats[session.member]
        if said.seat in self._kept or session.member == context.me or session.number == self._number:
            return False
        self._kept.add(said.seat, session)
        return True

    def on_connected(self, peer: PublicKey, *, is_greeted: bool) -> None:
        """A peer is connected. If the network keeps one connection to a key, ours may have replaced our twin's."""
        if ((is_greeted and not self._has_listened) or peer in self._gone) and self._may_say():
            self._gone.discard(peer)
            self._context.emit(Send(peer, SessionMessage(self._sign(NOBODY))))

    def on_disconnected(self, peer: PublicKey) -> None:
        """A peer is disconnected. Only members are remembered: guests come under ever other keys."""
        if peer in self._context.head.roster.seats:
            self._gone.add(peer)

    def on_tick(self, *, is_listening: bool) -> None:
        """Announce this process, or answer the other one."""
        context, height = self._context, self._context.head.height
        if self._other is not None:
            self._part(self._other)
            return
        if is_listening:
            self._until = height + (FIRST_HEIGHTS if self._has_begun else 0)
        if height != self._said_at:
            self._said_at, self._said = height, 0
        often = SAID_MAX if is_listening and self._has_begun else 1
        if height <= self._until and self._said < often and context.peers and self._may_say():
            self._said += 1
            context.emit(Publish(SessionMessage(self._sign(NOBODY))))

    def on_head(self) -> None:
        """The head moved: drop statements far below it, and peers whose keys are no members' any more."""
        if len(self._gone) > len(self._context.head.roster):
            self._gone.intersection_update(self._context.head.roster.seats)
        self._kept.drop_below(self._context.head.height - HEIGHTS_APART)

    def kept(self) -> int:
        """Number of statements that are kept."""
        return len(self._kept)

    def _meet(self, session: Session) -> None:
        """Take another session of our own key, of an earlier process or of one that runs."""
        if session.heard == self._number and self._other is None:
            self._other = session.number
            self._context.tell(SessionHeard(session.number))
            self._part(session.number)
        elif self._other is None and self._may_say():
            self._context.emit(Publish(SessionMessage(self._sign(session.number))))

    def _part(self, other: bytes) -> None:
        """Answer the process that named us, and stop once it has had time to receive the answer.

        Each peer that is connected to us lost the other process for us, hears from it again when we are gone, and hands
        it our answer then. Gossip alone may not reach such a peer: the connection is new, and both ends have yet to
        subscribe.
        """
        context = self._context
        if self._farewells:
            if context.peers:  # otherwise nobody would hear it
                self._farewells -= 1
                message = SessionMessage(self._sign(other))
                context.emit(Publish(message))
                context.send((peer, message) for peer in context.peers)
            return
        context.emit(
            Stop(
                f"this key is in use elsewhere: the process {other.hex()} has it, too, and answered this one. Two "
                "nodes with one key are one traitor to all others; both stop. Start one of them, and take the key away "
                "from the other"
            )
        )

    def _may_say(self) -> bool:
        return self._context.head.roster.is_active(self._context.me)

    def _sign(self, heard: bytes) -> Session:
        context = self._context
        sequence, self._sequence = self._sequence, self._sequence + 1
        session = sign_session(
            context.key,
            context.genesis.chain_id,
            self._number,
            heard=heard,
            height=context.head.height,
            sequence=sequence,
        )
        context.note_own(session)
        return session
