"""The node: one peer as a pure state machine. It takes every decision and does no I/O.

``handle`` turns an event into effects, which its driver (sockets, or the simulator) carries out. An event that is
refused leaves the node as it was, so a log of its events replays to the same state.

The parts share one memory (``context.py``): posts arrive (``posts.py``), blocks become candidates and final
(``block_import.py``), votes decide (``voting.py``), and the peer contributes (``contributing.py``) and mines
(``mining.py``).
"""

from collections.abc import Iterator
from enum import Enum
from functools import partial
from typing import assert_never

from fedchain.chain.block import Header
from fedchain.chain.certificate import Certificate
from fedchain.chain.exceptions import AlreadyKnown, Refused
from fedchain.chain.genesis import Genesis
from fedchain.chain.post import Post
from fedchain.chain.state import State, posts_required, votes_required
from fedchain.chain.storage.store import Record, Storage
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.keys import PrivateKey, PublicKey
from fedchain.network.messages import (
    CandidateMessage,
    CertificateMessage,
    Chunk,
    EvidenceMessage,
    FinalMessage,
    GetContent,
    Message,
    Payloads,
    PostMessage,
    SessionMessage,
    Status,
    VoteMessage,
)
from fedchain.network.sync import CatchUp
from fedchain.node.core.answers import Answers
from fedchain.node.core.attendance import Attendance
from fedchain.node.core.block_import import BlockImport
from fedchain.node.core.checks import Checks
from fedchain.node.core.conduct import Conduct
from fedchain.node.core.contents.bulk import BulkParts
from fedchain.node.core.contents.content_cache import ContentCache
from fedchain.node.core.contents.part_lists import NoParts, PartLookup, lists_parts
from fedchain.node.core.contents.retention import contents_in_order, contents_of, is_time_to_sweep
from fedchain.node.core.context import Context, PhaseClock
from fedchain.node.core.contributing import Contributing
from fedchain.node.core.crimes import Crimes
from fedchain.node.core.deadlines import opens_after_ms
from fedchain.node.core.effects import Effect, Persist, Refuse, Retain, Send, Wake
from fedchain.node.core.events import (
    Computed,
    Contributed,
    Event,
    MessageReceived,
    Mined,
    NotContributed,
    PeerConnected,
    PeerDisconnected,
    Tick,
)
from fedchain.node.core.following.catching_up import CatchingUp
from fedchain.node.core.following.gathering import Gathering
from fedchain.node.core.following.refill import Refill
from fedchain.node.core.jobs import (
    CheckPost,
    Job,
    KeepPart,
    Knowledge,
    Recompute,
    Result,
    Verified,
    VerifySignatures,
)
from fedchain.node.core.ledger import Ledger
from fedchain.node.core.mining import Draft, Mining
from fedchain.node.core.moment import Moment
from fedchain.node.core.notices import HeadUnconfirmed
from fedchain.node.core.observations import Observations
from fedchain.node.core.posts import Posts
from fedchain.node.core.voting.journal import Journal
from fedchain.node.core.voting.recollection import own_statements
from fedchain.node.core.voting.sessions import Sessions
from fedchain.node.core.voting.twins import Twins
from fedchain.node.core.voting.voting import Voting

STATUS_PEERS = 2
"""Peers that receive our status at every tick."""

GREETED_PEERS = 8
"""Peers that receive our status as soon as they are connected."""

BEHIND = 1
"""Blocks by which a peer may be behind before it receives our status at once, and not only in its turn at a tick."""

TICK_MS = 1_000
"""Milliseconds between two ticks; for timeouts in between the node emits ``Wake``."""


class Follows(Enum):
    """The work that is left after an event."""

    NOTHING = "nothing"
    """No work: timeouts have ticks of their own."""
    MORE = "more"
    """Work that waited for the event may be possible now."""
    NEW_HEAD = "new head"
    """The head has moved, and further work may be possible."""


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
        held_parts = NoParts() if conduct.parts is None else conduct.parts
        stored_range = partial(_stored_range, storage, held_parts)
        contents = ContentCache(
            genesis,
            storage.content,
            stored_range,
            conduct.intern,
            conduct.recent_size_max,
            holds_back=lists_parts(genesis, checks),
        )
        ledger = Ledger(genesis, storage)
        members = ledger.head.roster.members
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
            catch_up=CatchUp(members, genesis.fault_model.faulty(len(members))),
        )
        contents.extra = context.ledger.state
        for statement in own_statements(context):  # it may be newer than the journal
            context.journal = context.journal.adopt(statement)
        self._has_adopted = context.journal != (journal or Journal())
        self._crimes = Crimes(context)
        self._bulk = BulkParts(context, held_parts)
        self._blocks = BlockImport(context, self._crimes, self._bulk)
        self._posts = Posts(context, self._crimes, self._bulk, conduct.good_posts)
        self._voting = Voting(context, self._crimes, self._blocks)
        self._not_believed = tuple(context.effects)  # emitted at the first event
        self._attendance = Attendance(context)
        self._contributing = Contributing(context, self._attendance, self._bulk)
        self._mining = Mining(context, self._attendance, self._crimes, self._blocks)
        self._gathering = Gathering(context, conduct.wait_for)
        self._twins = conduct.guard or Twins(context, has_listened=conduct.has_listened, neighbours=conduct.neighbours)
        self._sessions = Sessions(context, session)
        self._catching_up = CatchingUp(context, self._blocks, replays=conduct.replays, backfills=conduct.backfills)
        self._refill = Refill(context, is_wanted=conduct.refills)
        self._answers = Answers(context, self._bulk)
        contents.wanted, contents.is_part = self._contents_wanted, self._bulk.__contains__
        self.observations = Observations(context)
        context.silent = self._says_nothing
        self._me = context.me
        self._turn = context.head.roster.seats.get(context.me, 0)
        self._has_begun = False
        self._status_due_ms = 0
        self._told: set[PublicKey] = set()  # peers behind us that were sent our status since the last tick
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
        return self._voting

    @property
    def journal(self) -> Journal:
        """The signing journal: the statements that were signed last."""
        return self._context.journal

    def content(self, content_hash: Hash) -> bytes | None:
        """A payload or knowledge by its hash, from memory or from the store."""
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
        return self._catching_up.unconfirmed()

    def waiting_for(self) -> frozenset[PublicKey]:
        """Expected contributors of the open phase whose posts are missing."""
        return self._attendance.missing

    def gathers(self) -> int:
        """Number of members, this one counted, that have to be connected before it begins; 0 once it has begun."""
        return self._gathering.wanted

    def opens_in_ms(self) -> int:
        """Milliseconds until the next round begins; 0 once it has begun."""
        return self._attendance.opens_in_ms()

    def lagging(self, height: int) -> list[PublicKey]:
        """Connected members that have not announced a head at ``height`` or above."""
        there, members = set(self._context.catch_up.at_least(height)), self.head.roster.seats
        return [peer for peer in self._context.peers if peer in members and peer not in there]

    def open_posts(self) -> tuple[Post, ...]:
        """Posts of the open phase that are held, in sender order."""
        return tuple(post for _, post in sorted(self._context.mempool.posts(self._context.phase).items()))

    def holds(self, post: Post) -> bool:
        """Whether a post would be counted in our next block."""
        return self._context.mempool.holds(post)

    def posts_required(self) -> int:
        """Number of posts that are required to close the open phase."""
        return posts_required(self.genesis, self.head)

    def votes_required(self) -> int:
        """Number of electors' votes that make a block final, q."""
        return votes_required(self.genesis, self.head.roster.electors)

    def is_silent(self) -> bool:
        """Whether this peer signs nothing in its own name now."""
        return self._says_nothing() or self._blocks.is_contradicted

    def _says_nothing(self) -> bool:
        """Whether our key is in use elsewhere, or may be for all we know."""
        return self._twins.is_silent() or self._sessions.is_ending()

    def sizes(self) -> Iterator[tuple[str, int]]:
        """Numbers of items in the pools, all of which are bounded by constants and the number of members."""
        context = self._context
        yield "candidates", max(0, len(context.ledger.entries) - len(self._blocks.wanted))
        yield "posts", len(context.mempool)
        yield "crimes", len(context.evidence)
        yield "useless posts", len(context.useless)
        yield "sources", context.catch_up.heard()
        yield "blocks asked for", context.catch_up.owed()
        yield "sessions", self._sessions.kept()
        for part in (self._voting, self._posts, context.contents, self._catching_up):
            yield from part.sizes()

    def is_mining(self, header: Header) -> bool:
        """Whether ``header`` is the draft that still needs a nonce, so that a miner can stop early."""
        return self._mining.is_mining(header)

    def draft(self) -> Draft | None:
        """The block that is being mined; None if there is none."""
        return self._mining.draft

    def hold(self, content: bytes) -> Hash:
        """Hold a content for peers that ask for it by its hash; returns the hash."""
        content_hash = sha256(content)
        self._context.contents.put(content_hash, content)
        return content_hash

    # events

    def handle(self, event: Event, now: Moment) -> list[Effect]:
        """Take an ``event`` that happens ``now``; returns the effects that follow from it, in order."""
        context = self._context
        context.now, context.effects = now, []
        is_first = not self._has_begun
        if is_first:
            self._begin()
        follows = self._take(event)
        if follows is Follows.NEW_HEAD:
            self._on_head()
        if is_first or follows is not Follows.NOTHING:
            self._advance()
        return context.effects

    def take_known(self, post: Post, payload: bytes, now: Moment) -> list[Effect] | None:
        """Take a post of another peer in fewer steps than :meth:`handle`, with the same effects.

        Returns None if the post is not known to be good at this head, or if other work is pending. Then
        nothing has happened, and the caller passes the post to ``handle``.
        """
        if not self._has_begun or post.sender == self._me or not self._posts.take_known(post, payload, now.ms):
            return None
        context = self._context
        context.now, context.effects = now, []
        if not self._attendance.waits_for_more():
            self._advance()
        return context.effects

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
        opened_ms = self._context.now.ms - opens_after_ms(self.genesis, self.head)
        self._context.clock = PhaseClock(opened_ms)
        self._blocks.restore()

    def _take(self, event: Event) -> Follows:
        match event:
            case MessageReceived(peer, message):
                try:
                    return self._on_message(peer, message)
                except Refused as error:
                    self._context.emit(Refuse(peer, error))
                    return _more_if(not isinstance(error, AlreadyKnown))
            case PeerConnected(peer):
                self._on_connected(peer)
                return Follows.NOTHING
            case PeerDisconnected(peer):
                self._on_disconnected(peer)
                return Follows.NOTHING
            case Contributed(round_number, phase, payload):
                self._contributing.on_contributed(round_number, phase, payload)
            case NotContributed(round_number, phase, reason):
                self._contributing.on_not_contributed(round_number, phase, reason)
            case Mined(header):
                self._mining.on_mined(header)
            case Computed(job, result):
                return self._on_computed(job, result)
            case Tick():
                self._on_tick()
            case _:
                assert_never(event)
        return Follows.MORE

    def _on_message(self, peer: PublicKey, message: Message) -> Follows:
        """Take a message. Raises Refused."""
        match message:
            case PostMessage(post, payload):
                if post.sender == self._me:
                    self._twins.hears(post)
                return _more_if(self._posts.on_post(peer, post, payload) and not self._attendance.waits_for_more())
            case CandidateMessage(block):
                self._blocks.on_candidate(peer, block)
            case VoteMessage(vote):
                if vote.voter == self._me:
                    self._twins.hears(vote)
                return _more_if(self._voting.on_vote(vote) or vote.voter == self._me)
            case EvidenceMessage(evidence):
                self._crimes.on_evidence(evidence)
            case SessionMessage(session):
                self._sessions.on_session(peer, session)
                return Follows.NOTHING
            case CertificateMessage(certificate):
                self._voting.on_certificate(certificate)
            case FinalMessage(block, certificate):
                return _head_if(self._catching_up.on_final(peer, block, certificate))
            case Status():
                self._on_status(peer, message)
                return _more_if(self._twins.is_silent())  # knowing the others' heads may end the silence
            case Payloads():
                return _head_if(self._catching_up.on_payloads(peer, message))
            case Chunk():
                if self._refill.on_chunk(peer, message):
                    return Follows.NOTHING
                is_whole = self._posts.on_chunk(peer, message)
                return _head_if(is_whole and self._catching_up.on_content(message.content_hash))
            case GetContent():
                self._on_get_content(peer, message)
                return Follows.NOTHING
            case question:
                answers = self._answers.answer(question, self._voting.agreement)
                self._context.send((peer, answer) for answer in answers)
                return Follows.NOTHING
        return Follows.MORE

    def _on_status(self, peer: PublicKey, status: Status) -> None:
        context = self._context
        self._catching_up.on_status(peer, status)
        questions = self._answers.questions(status, self._voting.agreement, self._blocks.wanted)
        context.send((peer, question) for question in questions)
        if status.height + BEHIND < context.head.height and peer not in self._told:
            self._told.add(peer)
            self._send_status(peer)

    def _on_get_content(self, peer: PublicKey, question: GetContent) -> None:
        is_withheld = self._bulk.withholds(peer, question.content_hash)
        nothing = Chunk(question.content_hash, question.offset, b"")
        chunk = nothing if is_withheld else self._context.contents.chunk(peer, question)
        if chunk is not None:
            self._context.emit(Send(peer, chunk))

    def _on_connected(self, peer: PublicKey) -> None:
        self._context.peers[peer] = None
        # The first few peers tell us at once what we lack; the others receive our status at the ticks.
        if is_greeted := len(self._context.peers) <= GREETED_PEERS:
            self._send_status(peer)
        self._sessions.on_connected(peer, is_greeted=is_greeted)

    def _on_disconnected(self, peer: PublicKey) -> None:
        context = self._context
        context.peers.pop(peer, None)
        context.catch_up.drop(peer)
        self._sessions.on_disconnected(peer)
        context.send(context.contents.drop_provider(peer, context.now.ms, list(context.peers)))
        self._refill.drop_provider(peer)

    def _on_computed(self, job: Job, result: Result) -> Follows:
        match job, result:
            case CheckPost(), Refused() | None:
                if not self._contributing.on_checked(job, result):
                    self._posts.on_checked(job, result)
                    return _more_if(not self._attendance.waits_for_more())
            case KeepPart(), Refused() | None:
                self._posts.on_kept(job, result)
            case Recompute(), Refused() | Knowledge():
                self._blocks.on_recomputed(job, result)
                self._mining.on_recomputed(job, result)
                return _head_if(self._catching_up.on_recomputed(job, result))
            case VerifySignatures(), Verified():
                return _head_if(self._catching_up.on_verified(job, result))
            case _:
                raise AssertionError(f"{type(result).__name__} is no result of {type(job).__name__}")
        return Follows.MORE

    def _on_tick(self) -> None:
        """Make up for lost messages: ask again, and announce what we hold."""
        context, peers = self._context, list(self._context.peers)
        if context.now.ms < self._status_due_ms:
            return
        self._status_due_ms = context.now.ms + TICK_MS * 9 // 10
        self._told.clear()
        context.send(context.contents.on_tick(context.now.ms, peers))
        self._blocks.on_tick()
        self._bulk.on_tick()
        self._sessions.on_tick(is_listening=self._twins.is_listening)
        for _ in range(min(STATUS_PEERS, len(peers))):
            self._turn = (self._turn + 1) % len(peers)
            self._send_status(peers[self._turn])
        self._catching_up.on_tick()
        self._refill.on_tick()

    def _send_status(self, peer: PublicKey) -> None:
        self._context.emit(Send(peer, self._answers.status(self._voting.agreement)))

    def _advance(self) -> None:
        """Do all work that is possible now."""
        if self._twins.advance():
            self._voting.recall()
        self._posts.advance()
        self._blocks.advance()
        while (decision := self._voting.advance()) is not None:
            entry = self._context.ledger.entries.get(decision.block_hash)
            if entry is None:
                break  # it is being requested, since a quorum names it
            self._blocks.finalize(entry, decision)
            self._on_head()
            self._blocks.advance()
        self._bulk.advance()
        if self._gathering.advance():
            self._produce()
        self._wake()

    def _produce(self) -> None:
        """Do this peer's work for the open phase."""
        context = self._context
        if context.head.finished:
            self._attendance.finish()
            return
        self._attendance.look()
        if context.knowledge() is not None:
            self._contributing.advance()
            self._mining.advance()

    def _on_head(self) -> None:
        """The head moved: drop the work of its height, and open the next phase."""
        context = self._context
        context.clock = PhaseClock(context.now.ms)
        settled = context.ledger.settled
        assert settled is not None, "the head moved to a final block"
        self._twins.reads(settled.block, settled.certificate)
        self.observations.on_head(settled)
        self._crimes.on_head()
        self._sessions.on_head()
        context.mempool.drop_before(context.phase)
        context.catch_up.reached(context.head.height)
        self._catching_up.on_head()
        self._bulk.on_head()
        self._posts.on_head()
        self._voting.on_head()
        self._attendance.on_head()
        self._contributing.on_head()
        self._mining.on_head()
        self._forget()
        if self._catching_up.advance():  # blocks that are replayed come many at a time
            self._on_head()

    def _forget(self) -> None:
        """Drop contents that no open phase, candidate or recent block refers to; at times also from the store."""
        context, head = self._context, self._context.head
        fetched = self._contents_wanted()
        recent = [*contents_in_order(context.ledger.window()), context.ledger.base_knowledge()]
        posts = {*context.mempool.payload_hashes()}
        context.contents.forget(posts | fetched, recent, fetched | self._bulk.wanted(), context.phase)
        window = self.genesis.retention_blocks
        if is_time_to_sweep(head.height, window):
            promised = {post.payload_hash for post in context.journal.posts}
            context.emit(Retain(frozenset(self._contents_of_last(window) | promised | {*recent})))

    def _contents_wanted(self) -> set[Hash]:
        """Contents needed for candidates, blocks above the head, posts under check, and work on the head."""
        of_blocks = self._blocks.payloads_wanted() | self._catching_up.contents_wanted()
        return of_blocks | self._posts.waiting_payloads() | {self._context.head.knowledge_root}

    def _contents_of_last(self, blocks: int) -> set[Hash]:
        """Contents of the retention window, limited to blocks that are here."""
        height = self.head.height
        found = (self._context.ledger.final(place) for place in range(max(1, height - blocks), height + 1))
        return contents_of(item[0] for item in found if item is not None)

    def _wake(self) -> None:
        """Ask for a tick at the end of the next timeout, unless the same one was asked for already."""
        times = (self._voting.agreement.wakes_at_ms(self._context.now.ms), self._attendance.wakes_at_ms())
        at_ms = min((time for time in times if time is not None), default=None)
        if at_ms is not None and at_ms != self._wake_ms:
            self._wake_ms = at_ms
            self._context.emit(Wake(max(at_ms, self._context.now.ms + 1)))


def _more_if(may_happen: bool) -> Follows:
    return Follows.MORE if may_happen else Follows.NOTHING


def _head_if(has_moved: bool) -> Follows:
    return Follows.NEW_HEAD if has_moved else Follows.MORE


def _stored_range(storage: Storage, parts: PartLookup, content_hash: Hash, start: int, size: int) -> bytes | None:
    """A range of a stored content, or else of a stored part."""
    data = storage.content_part(content_hash, start, size)
    return parts.read_range(content_hash, start, size) if data is None else data
