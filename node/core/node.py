"""The node: one peer as a pure state machine. It takes every decision and does no I/O.

``handle`` turns an event into effects, which its driver (sockets, or the simulator) carries out. One part takes the
event (``reception.py``); then every part (``parts.py``) does what has become possible. They share one memory
(``context.py``).
"""

from collections.abc import Iterator
from functools import partial

from fedchain.chain.block import Header
from fedchain.chain.certificate import Certificate
from fedchain.chain.genesis import Genesis
from fedchain.chain.membership.change import CHANGES_VERSION, Change
from fedchain.chain.membership.member import Member
from fedchain.chain.post import Post
from fedchain.chain.roster import member_set
from fedchain.chain.state import State, posts_required, votes_required
from fedchain.chain.storage.store import Record, Storage
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.keys import PrivateKey, PublicKey
from fedchain.network.sync import CatchUp
from fedchain.node.core.checks import Checks
from fedchain.node.core.contents.content_cache import ContentCache
from fedchain.node.core.contents.part_lists import NoParts, lists_parts
from fedchain.node.core.context import Context, PhaseClock
from fedchain.node.core.deadlines import opens_after_ms
from fedchain.node.core.effects import Effect, Persist, Wake
from fedchain.node.core.events import Event, Moment
from fedchain.node.core.ledger import Ledger
from fedchain.node.core.mining import Draft
from fedchain.node.core.notices import HeadConflicts, HeadUnconfirmed
from fedchain.node.core.observations import Observations
from fedchain.node.core.parts import Conduct, Parts, stored_range
from fedchain.node.core.posts import Lull
from fedchain.node.core.reception import Follows, Reception
from fedchain.node.core.voting.journal import Journal
from fedchain.node.core.voting.recollection import own_statements
from fedchain.node.core.voting.sessions import Said
from fedchain.node.core.voting.voting import Voting


class Node:
    """One peer: its view of the chain, its promises, and the things that it is waiting for.

    Args:
        genesis: the rules that the federation agreed on.
        key: this peer's key; a peer whose key is not a member's follows the chain and signs nothing.
        session: 16 bytes, drawn at random for this process; they tell it from other processes with the same key.
        checks: the costly checks.
        storage: the records that this peer persisted before a restart; the node reads it and never writes to it.
        journal: the statements that this key signed last.
        conduct: the choices that the shell makes for it.
    """

    def __init__(
        self,
        genesis: Genesis,
        key: PrivateKey,
        checks: Checks,
        storage: Storage,
        journal: Journal | None = None,
        conduct: Conduct = Conduct(),  # noqa: B008 - frozen
        *,
        session: bytes,
    ) -> None:
        self.genesis = genesis
        contents = ContentCache(
            genesis,
            storage.content,
            partial(stored_range, storage, NoParts() if conduct.parts is None else conduct.parts),
            conduct.copies,
            conduct.recent_size_max,
            storage.spools,
            holds_back=lists_parts(genesis, checks.rules),
        )
        contents.downloads.size_max = max(contents.downloads.size_max, checks.rules.knowledge_size_max())
        ledger = Ledger(genesis, storage)
        members = _claimants(ledger.head)
        self._context = context = Context(
            genesis=genesis,
            key=key,
            checks=checks,
            storage=storage,
            ledger=ledger,
            contents=contents,
            journal=journal or Journal(),
            now=Moment(0, 0),
            clock=PhaseClock(0),
            catch_up=CatchUp(
                members,
                genesis.fault_model.faulty(len(members)),
                hears_all=genesis.version >= CHANGES_VERSION,
            ),
        )
        contents.extra = context.ledger.state
        for statement in own_statements(context):  # it may be newer than the journal
            context.journal = context.journal.adopt(statement, genesis.late_rounds, ledger.certificate)
        self._has_adopted = context.journal != (journal or Journal())
        self._parts = Parts(context, conduct, session)
        self._reception = Reception(context, self._parts)
        self._not_believed = tuple(context.effects)  # emitted at the first event
        self._has_begun = False
        self._lull: Lull | None = None  # since the last event, once it is asked for
        self._wake_ms: int | None = None

    # answers to others

    @property
    def head(self) -> State:
        """The state of the chain as this peer sees it; it is final."""
        return self._context.head

    @property
    def certificate(self) -> Certificate | None:
        """The certificate that made the head final; None at the start."""
        return self._context.ledger.certificate

    @property
    def ledger(self) -> Ledger:
        """The chain and the candidates for its next height; do not change it."""
        return self._context.ledger

    @property
    def voting(self) -> Voting:
        """Votes for the open height; do not change it."""
        return self._parts.voting

    @property
    def observations(self) -> Observations:
        """Observations of the last final block."""
        return self._parts.observations

    @property
    def journal(self) -> Journal:
        """The signing journal: the statements that were signed last."""
        return self._context.journal

    def content(self, content_hash: Hash) -> bytes | None:
        """A payload or knowledge by its hash, from memory or from the store."""
        self._end_lull()
        return self._context.content(content_hash)

    def knowledge(self) -> bytes | None:
        """The federation's knowledge at the head; None while it has to be fetched."""
        return self._context.knowledge()

    def catching_up_to(self) -> int:
        """Height above ours that more members than may lie have announced; 0 if there is none."""
        confirmed = self._context.catch_up.confirmed
        return confirmed if confirmed > self.head.height else 0

    def unconfirmed(self) -> HeadUnconfirmed | None:
        """A far head that too few members announce; None if no member does, or enough do."""
        return self._parts.catching_up.unconfirmed()

    def conflict(self) -> HeadConflicts | None:
        """Two certified blocks of one height, for which this node goes on with no chain; None if there are none."""
        return self._parts.catching_up.conflict()

    def waiting_for(self) -> frozenset[PublicKey]:
        """Expected contributors of the open phase whose posts are missing."""
        self._end_lull()
        return self._parts.attendance.missing

    def arriving(self) -> list[tuple[Post, int]]:
        """Posts whose large payloads are on their way here, and the bytes that have come of each."""
        return [*self._context.contents.arriving()]

    def gathers(self) -> int:
        """Number of members, this one counted, that have to be connected before it begins; 0 once it has begun."""
        return self._parts.gathering.wanted

    def opens_in_ms(self) -> int:
        """Milliseconds until the next round begins; 0 once it has begun."""
        return self._parts.attendance.opens_in_ms()

    def lagging(self, height: int) -> list[PublicKey]:
        """Connected members that have not announced a head at ``height`` or above."""
        there, members = set(self._context.catch_up.at_least(height)), self.head.roster.seats
        return [peer for peer in self._context.peers if peer in members and peer not in there]

    def open_posts(self) -> tuple[Post, ...]:
        """Posts of the open phase that are held, in sender order."""
        return tuple(post for _, post in sorted(self._context.mempool.posts(self._context.phase).items()))

    def open_changes(self) -> tuple[Change, ...]:
        """Changes of the membership that no final block counts yet, with the approvals that are known."""
        return tuple(self._context.changes)

    def own_record(self) -> Member | None:
        """This peer's record in the state; None if it never was a member, or members are the same for ever."""
        head = self.head
        seat = head.roster.seats.get(self._context.me)
        return head.records[seat] if head.records and seat is not None else None

    def holds(self, post: Post) -> bool:
        """Whether a post would be counted in our next block."""
        return self._context.mempool.holds(post)

    def insists_on(self, post: Post) -> bool:
        """Whether a block ought to count a post, as far as this peer can tell: it is held, with all that it lists."""
        return self.holds(post) and post.sender in self._context.mempool.demanded((post.round, post.phase))

    def posts_required(self) -> int:
        """Number of posts that are required to close the open phase."""
        return posts_required(self.genesis, self.head)

    def votes_required(self) -> int:
        """Number of electors' votes that make a block final, q."""
        return votes_required(self.genesis, self.head.roster.electors)

    def is_silent(self) -> bool:
        """Whether this peer signs nothing in its own name now, or at least no vote."""
        return self._parts.says_nothing() or self.is_contradicted()

    def is_contradicted(self) -> bool:
        """Whether a quorum finalized what this peer computes differently: it votes and mines no more."""
        return self._parts.blocks.is_contradicted

    def sizes(self) -> Iterator[tuple[str, int]]:
        """Numbers of items in the pools, all of which are bounded by constants and the number of members."""
        self._end_lull()
        context = self._context
        yield "candidates", max(0, len(context.ledger.entries) - len(self._parts.blocks.wanted))
        yield "posts", len(context.mempool)
        yield "crimes", len(self._parts.crimes.open)
        yield "changes", len(context.changes)
        yield "useless posts", len(context.mempool.useless)
        yield "sources", context.catch_up.sources()
        yield "blocks asked for", context.catch_up.owed()
        yield "sessions", self._parts.sessions.kept()
        for part in (self._parts.voting, self._parts.posts, context.contents, self._parts.catching_up):
            yield from part.sizes()

    def is_mining(self, header: Header) -> bool:
        """Whether ``header`` is the draft that still needs a nonce, so that a miner can stop early."""
        return self._parts.mining.is_mining(header)

    def draft(self) -> Draft | None:
        """The block that is being mined; None if there is none."""
        return self._parts.mining.draft

    def foreseen(self) -> State | None:
        """The state in which this peer expects to owe its next contribution, before it is decided; None if it expects
        none. The knowledge in force there is held."""
        return self._parts.foreseeing.look()

    def expected(self) -> State | None:
        """The state that it expects the vote to lead to, whoever contributes there; None if there is no candidate."""
        return self._parts.foreseeing.expect()

    def hold(self, content: bytes) -> Hash:
        """Hold a content for peers that ask for it by its hash; returns the hash."""
        content_hash = sha256(content)
        self._context.contents.put(content_hash, content)
        return content_hash

    # events

    def handle(self, event: Event, now: Moment) -> list[Effect]:
        """Take an ``event`` that happens ``now``; returns the effects that follow from it, in order."""
        context = self._context
        self._end_lull()
        context.now, context.effects = now, []
        is_first = not self._has_begun
        if is_first:
            self._begin()
        follows = self._reception.take(event)
        if follows is Follows.NEW_HEAD:
            self._on_head()
        if is_first or follows is not Follows.NOTHING:
            self._advance()
        return context.effects

    def notes(self, said: Said) -> bool:
        """Keep a process's statement if :meth:`handle` would do nothing else with it; False: it is left to that."""
        return self._has_begun and self._parts.sessions.notes(said)

    def lull(self) -> Lull:
        """The lull since the last event, in which it takes posts; it is over with the next event."""
        if self._lull is None or self._lull.is_over:  # whoever has it may end it
            self._lull = self._parts.posts.lull(self._parts.attendance.quiet())
        return self._lull

    def _end_lull(self) -> None:
        """End the lull, if there is one, so that memory holds all that its posts leave."""
        if self._lull is not None:
            self._lull.end()
            self._lull = None

    def _begin(self) -> None:
        """Prepare for the first event: from here on the time is known."""
        self._has_begun = True
        journal = self._context.journal
        self._context.emit(*self._not_believed)
        if self._has_adopted:  # it has to be written down here, too, before it is sent to anybody
            self._context.write_journal(journal)
        said: tuple[Record, ...] = (*journal.votes, *journal.posts)
        if said:  # a crash may have come between journal and store
            self._context.emit(Persist(said))
        # The age of the head is not known: a phase that opens later is taken to open now.
        opened_ms = self._context.now.ms - opens_after_ms(self.head)
        self._context.clock = PhaseClock(opened_ms)
        self._parts.blocks.restore()
        self._parts.changes.look_at_head()

    def _advance(self) -> None:
        """Do all work that is possible now."""
        parts = self._parts
        if parts.twins.advance():
            parts.voting.recall()
        parts.posts.advance()
        parts.blocks.advance()
        while (decision := parts.voting.advance()) is not None:
            entry = self._context.ledger.entries.get(decision.block_hash)
            if entry is None:
                break  # it is being requested, since a quorum names it
            parts.blocks.finalize(entry, decision)
            self._on_head()
            parts.blocks.advance()
        parts.bulk.advance()
        if parts.gathering.advance():
            self._produce()
        self._wake()

    def _produce(self) -> None:
        """Do this peer's work for the open phase."""
        parts = self._parts
        if self.head.finished:
            parts.attendance.finish()
            return
        parts.attendance.look()
        if self.knowledge() is not None:
            parts.contributing.advance()
            parts.mining.advance()

    def _on_head(self) -> None:
        """The head moved: drop the work of its height, and open the next phase."""
        context, parts = self._context, self._parts
        context.clock = PhaseClock(context.now.ms)
        settled = context.ledger.settled
        assert settled is not None, "the head moved to a final block"
        parts.twins.reads(settled.block, settled.certificate)
        parts.observations.on_head(settled)
        parts.crimes.on_head()
        parts.changes.on_head()
        parts.sessions.on_head()
        context.mempool.drop_before(context.phase, context.head.owed_to if context.head.owed else None)
        roster = context.head.roster
        if self.head.records:  # members come and go
            context.catch_up.track(_claimants(self.head), self.genesis.fault_model.faulty(roster.active))
        context.catch_up.reached(context.head.height)
        parts.catching_up.on_head()
        parts.bulk.on_head()
        parts.posts.on_head()
        parts.voting.on_head()
        parts.attendance.on_head()
        parts.contributing.on_head()
        parts.mining.on_head()
        parts.sweeping.on_head()
        if parts.catching_up.advance():  # blocks that are replayed come many at a time
            self._on_head()

    def _wake(self) -> None:
        """Ask for a tick at the end of the next timeout, unless the same one was asked for already."""
        times = (self._parts.voting.agreement.wakes_at_ms(self._context.now.ms), self._parts.attendance.wakes_at_ms())
        at_ms = min((time for time in times if time is not None), default=None)
        if at_ms is not None and at_ms != self._wake_ms:
            self._wake_ms = at_ms
            self._context.emit(Wake(max(at_ms, self._context.now.ms + 1)))


def _claimants(head: State) -> frozenset[PublicKey]:
    """Members whose claims count: where members change, those alone of whom f may lie, and none that was convicted."""
    return member_set(head.roster.counting if head.records else head.roster.members)
