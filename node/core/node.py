"""The node: one peer as a pure state machine. It takes every decision and does no I/O.

``handle`` turns an event into effects; whatever drives it (sockets, or the simulator) carries them out. What it
refuses leaves it as it was, so a log of its events replays to the same state.

The parts share one memory (``context.py``): posts arrive (``posts.py``), blocks become candidates and final
(``block_import.py``), votes decide (``voting.py``), and the peer contributes and mines (``production.py``).
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
from fedchain.node.core.block_import import BlockImport
from fedchain.node.core.checks import Checks
from fedchain.node.core.conduct import Conduct
from fedchain.node.core.contents.bulk import BulkParts
from fedchain.node.core.contents.content_cache import ContentCache
from fedchain.node.core.contents.part_lists import NoParts, PartLookup, lists_parts
from fedchain.node.core.contents.retention import contents_in_order, contents_of, is_time_to_sweep
from fedchain.node.core.context import Context, PhaseClock
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
from fedchain.node.core.moment import Moment
from fedchain.node.core.notices import HeadUnconfirmed
from fedchain.node.core.observations import Observations
from fedchain.node.core.posts import Posts
from fedchain.node.core.production import Draft, Production
from fedchain.node.core.voting.journal import Journal
from fedchain.node.core.voting.recollection import own_statements
from fedchain.node.core.voting.sessions import Sessions
from fedchain.node.core.voting.twins import Twins
from fedchain.node.core.voting.voting import Voting

STATUS_PEERS = 2
"""Peers that hear our status at every tick."""

GREETED_PEERS = 8
"""Peers that hear our status as soon as they are connected."""

BEHIND = 1
"""Blocks by which a peer may be behind before it hears our status at once: without it, it waits for our turn."""

TICK_MS = 1_000
"""Milliseconds between two ticks; timeouts in between are asked for with ``Wake``."""


class Follows(Enum):
    """What there is to do after an event."""

    NOTHING = "nothing"
    """Timeouts have ticks of their own."""
    MORE = "more"
    """What waited for it may happen now."""
    NEW_HEAD = "new head"
    """The head has moved, and so may more."""


class Node:
    """One peer: its view of the chain, what it promised, and what it is waiting for.

    Args:
        genesis: what the federation agreed on.
        key: this peer's key; one that is not a member's follows the chain and says nothing.
        session: 16 bytes, drawn at random for this process: by them it is told from others that have its key.
        checks: the costly checks.
        storage: what this peer persisted before a restart; the node reads it and never writes to it.
        journal: what this key signed last.
        conduct: what the shell chooses for it.
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
        self._posts = Posts(context, self._crimes, self._bulk)
        self._voting = Voting(context, self._crimes, self._blocks)
        self._not_believed = tuple(context.effects)  # told at the first event
        self._production = Production(context, self._crimes, self._blocks, self._bulk)
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
        self._told: set[PublicKey] = set()  # peers behind that heard our status since the last tick
        self._wake_ms: int | None = None

    # what others may know

    @property
    def head(self) -> State:
        """The state of the chain as this peer sees it; it is final."""
        return self._context.head

    @property
    def certificate(self) -> Certificate | None:
        """What made the head final; None at the start."""
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
        """What was signed last."""
        return self._context.journal

    def content(self, content_hash: Hash) -> bytes | None:
        """A payload or knowledge by its hash, from memory or from the store."""
        return self._context.content(content_hash)

    def knowledge(self) -> bytes | None:
        """What the federation knows at the head; None while it has to be fetched."""
        return self._context.knowledge()

    def catching_up_to(self) -> int:
        """Height that more members than may lie have said they have and that is above ours; 0: there is none."""
        confirmed = self._context.catch_up.confirmed
        return confirmed if confirmed > self.head.height else 0

    def unconfirmed(self) -> HeadUnconfirmed | None:
        """A far head of which too few members say that there is one; None: nobody does, or enough."""
        return self._catching_up.unconfirmed()

    def waiting_for(self) -> frozenset[PublicKey]:
        """Expected contributors of the open phase whose posts are not in."""
        return self._production.missing

    def gathers(self) -> int:
        """Members, this one counted, that have to be connected before it begins; 0: it has begun."""
        return self._gathering.wanted

    def opens_in_ms(self) -> int:
        """Until the next round begins; 0: it has begun."""
        return self._production.opens_in_ms()

    def lagging(self, height: int) -> list[PublicKey]:
        """Connected members that have not said that they are at ``height`` or above."""
        there, members = set(self._context.catch_up.at_least(height)), self.head.roster.seats
        return [peer for peer in self._context.peers if peer in members and peer not in there]

    def open_posts(self) -> tuple[Post, ...]:
        """Posts of the open phase that came so far, in sender order."""
        return tuple(post for _, post in sorted(self._context.mempool.posts(self._context.phase).items()))

    def holds(self, post: Post) -> bool:
        """Whether a post would be counted in our next block."""
        return self._context.mempool.holds(post)

    def posts_required(self) -> int:
        """Posts without which the open phase cannot be closed."""
        return posts_required(self.genesis, self.head)

    def votes_required(self) -> int:
        """Electors without whom no block becomes final, q."""
        return votes_required(self.genesis, self.head.roster.electors)

    def is_silent(self) -> bool:
        """Whether this peer says nothing in its own name now."""
        return self._says_nothing() or self._blocks.is_contradicted

    def _says_nothing(self) -> bool:
        """Whether our key speaks elsewhere, or may do so for all we know."""
        return self._twins.is_silent() or self._sessions.is_ending()

    def sizes(self) -> Iterator[tuple[str, int]]:
        """How many items each pool holds, whose bounds follow from constants and the number of members."""
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
        """Whether ``header`` is the draft that a nonce is wanted for, so that a miner can stop early."""
        return self._production.is_mining(header)

    def draft(self) -> Draft | None:
        """What the block is made of that is being mined; None: none is."""
        return self._production.draft

    def hold(self, content: bytes) -> Hash:
        """Hold a content, and give it to peers that ask for it by its hash, which is returned."""
        content_hash = sha256(content)
        self._context.contents.put(content_hash, content)
        return content_hash

    # events

    def handle(self, event: Event, now: Moment) -> list[Effect]:
        """Take ``event``, which happens ``now``, and say what follows from it, in order."""
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
        """Take a post of another peer in fewer steps than :meth:`handle`, and say the same.

        None: it is not one that ``checks`` know to be good beside this head, or there is more to look at; nothing has
        happened, and ``handle`` takes it.
        """
        if not self._has_begun or post.sender == self._me or not self._posts.take_known(post, payload, now.ms):
            return None
        context = self._context
        context.now, context.effects = now, []
        if not self._production.waits_for_more():
            self._advance()
        return context.effects

    def _begin(self) -> None:
        """The first event: from here on time is known."""
        self._has_begun = True
        journal = self._context.journal
        self._context.emit(*self._not_believed)
        if self._has_adopted:  # nobody may hear it before it is written down here, too
            self._context.write_journal(journal)
        said: tuple[Record, ...] = (*journal.votes, *journal.posts)
        if said:  # a crash may have come between journal and store
            self._context.emit(Persist(said))
        # How long the head has stood is not known: a phase that opens later is taken to open now.
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
                self._production.on_contributed(round_number, phase, payload)
            case NotContributed(round_number, phase, reason):
                self._production.on_not_contributed(round_number, phase, reason)
            case Mined(header):
                self._production.on_mined(header)
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
                return _more_if(self._posts.on_post(peer, post, payload) and not self._production.waits_for_more())
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
                return _more_if(self._twins.is_silent())  # who has heard where the others are may speak
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
        # The first few tell us at once what we lack; the others hear from us at the ticks.
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
                if not self._production.on_checked(job, result):
                    self._posts.on_checked(job, result)
                    return _more_if(not self._production.waits_for_more())
            case KeepPart(), Refused() | None:
                self._posts.on_kept(job, result)
            case Recompute(), Refused() | Knowledge():
                self._blocks.on_recomputed(job, result)
                self._production.on_recomputed(job, result)
                return _head_if(self._catching_up.on_recomputed(job, result))
            case VerifySignatures(), Verified():
                return _head_if(self._catching_up.on_verified(job, result))
            case _:
                raise AssertionError(f"{type(result).__name__} is no result of {type(job).__name__}")
        return Follows.MORE

    def _on_tick(self) -> None:
        """Repair what got lost: ask again, and show what we hold."""
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
        """Let everything happen that can happen now."""
        if self._twins.advance():
            self._voting.recall()
        self._posts.advance()
        self._blocks.advance()
        while (decision := self._voting.advance()) is not None:
            entry = self._context.ledger.entries.get(decision.block_hash)
            if entry is None:
                break  # it is asked for: a quorum names it
            self._blocks.finalize(entry, decision)
            self._on_head()
            self._blocks.advance()
        self._bulk.advance()
        if self._gathering.advance():
            self._production.advance()
        self._wake()

    def _on_head(self) -> None:
        """The head moved: close what belonged to its height, and open the next phase."""
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
        self._production.on_head()
        self._forget()
        if self._catching_up.advance():  # blocks that are replayed come many at a time
            self._on_head()

    def _forget(self) -> None:
        """Drop what no open phase, candidate or recent block refers to, and at times from the store, too."""
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
        """Contents needed for candidates, blocks above the head, posts that are looked at, and work on the head."""
        of_blocks = self._blocks.payloads_wanted() | self._catching_up.contents_wanted()
        return of_blocks | self._posts.waiting_payloads() | {self._context.head.knowledge_root}

    def _contents_of_last(self, blocks: int) -> set[Hash]:
        """Contents of the retention window, as far as its blocks are here."""
        height = self.head.height
        found = (self._context.ledger.final(place) for place in range(max(1, height - blocks), height + 1))
        return contents_of(item[0] for item in found if item is not None)

    def _wake(self) -> None:
        """Ask for a tick when a timeout ends, if it is before the next one that comes by itself."""
        times = (self._voting.agreement.wakes_at_ms(self._context.now.ms), self._production.wakes_at_ms())
        at_ms = min((time for time in times if time is not None), default=None)
        if at_ms is not None and at_ms != self._wake_ms:
            self._wake_ms = at_ms
            self._context.emit(Wake(max(at_ms, self._context.now.ms + 1)))


def _more_if(may_happen: bool) -> Follows:
    return Follows.MORE if may_happen else Follows.NOTHING


def _head_if(has_moved: bool) -> Follows:
    return Follows.NEW_HEAD if has_moved else Follows.MORE


def _stored_range(storage: Storage, parts: PartLookup, content_hash: Hash, start: int, size: int) -> bytes | None:
    """A piece of what is stored: of a content, or else of a part."""
    data = storage.content_part(content_hash, start, size)
    return parts.read_range(content_hash, start, size) if data is None else data
