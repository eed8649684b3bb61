"""Recombinations of two heights of a real federation, each handed to one of its members in all that it goes through.

A federation of four, whose members may change from version 3 on, decides some heights, the last two with two candidates
and in several attempts each. Their messages on the wire go into a hoard, with the key of a traitor. The victim is one
of the honest members, brought to a situation by the events that it really had; the traitor hands it one message at a
time, and answers what it then asks.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import TypeVar, cast

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.chain.exceptions import Invalid, InvalidEncoding
from fedchain.chain.genesis import GENESIS_VERSION, Genesis
from fedchain.chain.light.light_block import LightBlock
from fedchain.chain.membership.change import CHANGES_VERSION
from fedchain.chain.state import decode_state, genesis_state, votes_required
from fedchain.chain.storage.store import Final, MemoryStore, Record
from fedchain.chain.vote import Vote, VoteKind
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.keys import PublicKey, is_valid_signature
from fedchain.network.messages import (
    CandidateMessage,
    CertificateMessage,
    Chunk,
    EvidenceMessage,
    FinalMessage,
    GetContent,
    GetFinal,
    GetLight,
    GetPayloads,
    LightMessage,
    Message,
    Payloads,
    PostMessage,
    Status,
    VoteMessage,
    decode_message,
    encode_message,
)
from fedchain.node.core.effects import Blame, Effect, Persist, Publish, Refuse, Send, WriteJournal
from fedchain.node.core.events import Computed, Event, MessageReceived, PeersConnected, Tick
from fedchain.node.core.following.joining import Joining
from fedchain.node.core.voting.journal import Journal
from fedchain.node.core.voting.twins import LISTENING_MS
from fedchain.simulator.adversaries.hoard import Hoard
from fedchain.simulator.adversaries.recombination import NothingToChoose, Recombination
from fedchain.simulator.engine.peer import SimulatedPeer
from fedchain.simulator.oracles.bounds import Bounds
from tests.support.chain.builders import CREATED_MS, SumRules, genesis, keys
from tests.support.chain.changes import living_genesis
from tests.support.node.driver import Federation, Peer

T = TypeVar("T")

MEMBERS = 4
VICTIM, TRAITOR = 0, 3
LIAR = keys(MEMBERS)[TRAITOR].public_key
VERSIONS = (GENESIS_VERSION, CHANGES_VERSION)
FIRST, LAST = 9, 10
"""Heights whose objects are recombined."""

SEED = 1
ANSWERS_MAX = 8
"""Contents that the traitor hands out after one message."""

WITH_VOTES = 5
"""The first recipes: of their messages there are others where the victim has not voted yet."""

PAUSES_MS = (600, 1_500, 4_000)
"""Between the ticks after a message that changed something."""


# choices


class _Way:
    """A choice that follows a path as far as it is given, and the first options after that."""

    def __init__(self, path: Sequence[int]) -> None:
        self._path = list(path)
        self._taken: list[tuple[int, int]] = []

    def pick(self, options: Sequence[T]) -> T:
        place = self._path[len(self._taken)] if len(self._taken) < len(self._path) else 0
        self._taken.append((place, len(options)))
        return options[place]

    def next(self) -> list[int] | None:
        """The path after this one, of all that there are; None: it was the last."""
        taken = list(self._taken)
        while taken and taken[-1][0] + 1 == taken[-1][1]:
            taken.pop()
        return [*(place for place, _ in taken[:-1]), taken[-1][0] + 1] if taken else None


def every_message(hoard: Hoard, seen: set[Hash], *, with_votes_only: bool = False) -> Iterator[Message]:
    """All that can be put together from a hoard, as it arrives, but for what was ``seen``."""
    recipes = Recombination(hoard, _Way(())).recipes()
    for place in range(WITH_VOTES if with_votes_only else len(recipes)):
        path: list[int] | None = []
        while path is not None:
            way = _Way(path)
            try:
                data = encode_message(Recombination(hoard, way).recipes()[place]())
                if (name := sha256(data)) not in seen:
                    seen.add(name)
                    yield decode_message(data)
            except (NothingToChoose, InvalidEncoding):
                pass  # there is no such message
            path = way.next()


# the federation


@cache
def founding(version: int) -> Genesis:
    """The founding document of a version."""
    return living_genesis(MEMBERS) if version >= CHANGES_VERSION else genesis(MEMBERS)


@dataclass(frozen=True, slots=True)
class Story:
    """The history of a federation."""

    finals: tuple[Final, ...]
    """Final blocks of the victim's store, by height, each with the state that it stands on."""
    records: tuple[Record, ...]
    """All that the victim stored before height ``FIRST`` was open."""
    journal: Journal
    """The victim's at that time."""
    events: tuple[tuple[Event, int], ...]
    """The victim's events from then on, with their times."""
    sent: tuple[Message, ...]
    """The messages that crossed the wire."""
    contents: dict[Hash, bytes]
    """Payloads, knowledge and states."""

    def block(self, height: int) -> Block:
        """The block that the federation decided on."""
        return self.finals[height - 1].block


@cache
def story(version: int) -> Story:
    """A federation of four goes to one height beyond the last that is looked at."""
    federation = Federation(founding(version), seed=SEED)

    def is_lost(sender: int, receiver: int, message: Message) -> bool:
        """In the first attempt no half has the other's candidate, so that neither has a quorum."""
        node = federation.peers[receiver].node
        if not isinstance(message, CandidateMessage) or not FIRST <= message.block.header.height <= LAST:
            return False
        return sender // 2 != receiver // 2 and node.voting.agreement.attempt < 1

    federation.drop = is_lost
    federation.run_to_height(LAST + 1, 200)
    told, contents = federation.peers[VICTIM], dict[Hash, bytes]()
    again = Peer(VICTIM, told.key, told.genesis, SumRules())
    records, events = list[Record](), list[tuple[Event, int]]()
    journal, has_begun, states = Journal(), False, [genesis_state(told.genesis)]
    for event, moment in told.log:
        if isinstance(event, Computed):
            continue  # it follows from the others
        if has_begun or _is_early(event):
            events.append((event, CREATED_MS + moment.ms))
        effects = again.handle(event, CREATED_MS + moment.ms)
        if not has_begun:
            records += [item for effect in effects if isinstance(effect, Persist) for item in effect.records]
            journal = again.journal
            has_begun = again.node.head.height >= FIRST - 1
        states += [again.node.head] if again.node.head.height == len(states) else []
        contents[again.node.head.root] = again.node.head.encode()
    assert again.node.head.block_hash == told.node.head.block_hash, "a log replays to the same head"
    finals = []
    for height in range(1, LAST + 1):
        found = again.store.final(height)
        assert found is not None
        finals.append(Final(*found, states[height - 1].encode()))
    for peer in federation.peers:
        contents.update(peer.store._contents)
    sent = tuple(message for _, _, message in federation.sent)
    return Story(tuple(finals), tuple(records), journal, tuple(events), sent, contents)


def _is_early(event: Event) -> bool:
    """Whether it is about height ``FIRST`` and was kept until that opened. Every round has one phase here."""
    message = event.message if isinstance(event, MessageReceived) else None
    if isinstance(message, VoteMessage):
        return message.vote.height == FIRST
    return isinstance(message, PostMessage) and message.post.round == FIRST


def hoard(version: int, *, without_victim: bool) -> Hoard:
    """The traitor's hoard of the two heights, with the victim's own votes or without."""
    held = Hoard(founding(version), [keys(MEMBERS)[TRAITOR]])
    me, told = held.genesis.members[VICTIM], story(version)
    finals = [FinalMessage(final.block, final.certificate) for final in told.finals[FIRST - 2 :]]
    for message in (*told.sent, *finals):
        held.note(message)
    held.forget_before(FIRST)
    held.posts = {name: post for name, post in held.posts.items() if FIRST <= post.round <= LAST}
    held.blocks = {name: block for name, block in held.blocks.items() if block.header.height <= LAST}
    heard = {slot: votes for slot, votes in held.votes.items() if slot[1] <= LAST}
    for slot, votes in heard.items():
        heard[slot] = {voter: vote for voter, vote in votes.items() if voter != me or not without_victim}
    held.votes = {slot: votes for slot, votes in heard.items() if votes}
    held.contents.clear()
    wanted = {post.payload_hash for post in held.posts.values()}
    wanted |= {block.header.knowledge_root for block in held.blocks.values()}
    wanted |= {block.header.state_root for block in held.blocks.values()}
    for content_hash in sorted(wanted & told.contents.keys()):
        held.keep_content(told.contents[content_hash])
    return held


@cache
def messages(version: int) -> tuple[Message, ...]:
    """All that the traitor can put together."""
    seen = set[Hash]()
    found = list(every_message(hoard(version, without_victim=False), seen))
    return (*found, *every_message(hoard(version, without_victim=True), seen, with_votes_only=True))


def has_happened(version: int, message: Message, journal: Journal) -> bool:
    """Whether there is no vote in it that the victim, whose journal this is, is still to cast."""
    me = founding(version).members[VICTIM]
    votes: tuple[Vote, ...]
    match message:
        case VoteMessage(vote):
            votes = (vote,)
        case CertificateMessage(certificate):
            votes = certificate.votes
        case FinalMessage(block, certificate):
            votes = (*certificate.votes, *(block.certificate.votes if block.certificate else ()))
        case CandidateMessage(block):
            votes = block.certificate.votes if block.certificate else ()
        case EvidenceMessage(evidence):
            votes = tuple(item for item in (evidence.first, evidence.second) if isinstance(item, Vote))
        case _:
            return True
    return all(vote.voter != me or not _is_true(version, vote) or journal.vouches_for(vote) for vote in votes)


@cache
def _is_true(version: int, vote: Vote) -> bool:
    return is_valid_signature(vote.voter, vote.signature, vote.signing_message(founding(version).chain_id))


# situations


@dataclass(slots=True)
class Situation:
    """The victim, somewhere in its life."""

    version: int
    peer: Peer
    now_ms: int

    def handle(self, event: Event) -> list[Effect]:
        """Let something happen to it now."""
        return self.peer.handle(event, self.now_ms)

    def receive(self, message: Message) -> list[Effect]:
        """Let the traitor hand it a message."""
        return self.handle(MessageReceived(LIAR, message))

    def claim(self, height: int) -> None:
        """All others say that they are at a height; the traitor is heard first, and asked."""
        head = story(self.version).block(height).hash
        for member in sorted(self.peer.genesis.members, key=lambda member: member != LIAR):
            if member != self.peer.key.public_key:
                self.handle(MessageReceived(member, Status(height, head, b"", (), (), None)))

    def restart(self) -> None:
        """The process ends and begins again, with the same store and journal."""
        self.peer.node = self.peer.new_node()
        self.connect()

    def connect(self) -> None:
        """All others are there."""
        self.handle(Tick())
        for member in self.peer.genesis.members:
            if member != self.peer.key.public_key:
                self.handle(PeersConnected((member,)))


def _begin(version: int, *, replays: bool = False, is_fresh: bool = False) -> Situation:
    """The victim when height ``FIRST`` opens; fresh: it has lost its store, and kept its journal."""
    told = story(version)
    peer = Peer(VICTIM, keys(MEMBERS)[VICTIM], founding(version), SumRules(), replays=replays)
    peer.store, peer.journal = MemoryStore(), told.journal
    if not is_fresh:
        peer.store.append(told.records)
    peer.node = peer.new_node()
    situation = Situation(version, peer, told.events[0][1] - LISTENING_MS)
    situation.connect()
    if not is_fresh:
        situation.claim(FIRST - 1)
        situation.now_ms += LISTENING_MS
        situation.handle(Tick())
    return situation


def _until(version: int, condition: Callable[[Peer], bool]) -> Situation:
    """The victim with all that happened to it until a condition holds first."""
    situation = _begin(version)
    for event, now_ms in story(version).events:
        if condition(situation.peer):
            return situation
        situation.now_ms = now_ms
        situation.handle(event)
    raise AssertionError("the victim never came there")


def _has_voted(peer: Peer, kind: VoteKind, height: int = FIRST) -> bool:
    votes = peer.journal.votes
    return any((vote.kind, vote.height) == (kind, height) for vote in votes)


def _holds(peer: Peer, height: int) -> bool:
    return peer.node.head.height == height - 1 and len(peer.node.ledger.entries) > 0


def _locked(version: int) -> Situation:
    return _until(version, lambda peer: peer.node.voting.agreement.lock is not None)


def _restarted(version: int) -> Situation:
    situation = _locked(version)
    situation.restart()
    situation.claim(FIRST - 1)
    situation.now_ms += LISTENING_MS
    situation.handle(Tick())
    return situation


def _behind(version: int, *, replays: bool) -> Situation:
    situation = _begin(version, replays=replays)
    situation.claim(LAST)
    return situation


def _far_behind(version: int) -> Situation:
    situation = _begin(version, is_fresh=True)
    situation.claim(LAST)
    return situation


SITUATIONS: dict[str, Callable[[int], Situation]] = {
    "open": _begin,
    "prevoted": lambda version: _until(version, lambda peer: _has_voted(peer, VoteKind.PREVOTE)),
    "locked": _locked,
    "restarted": _restarted,
    "next height": lambda version: _until(version, lambda peer: _holds(peer, LAST)),
    "behind": lambda version: _behind(version, replays=False),
    "replaying": lambda version: _behind(version, replays=True),
    "far behind": _far_behind,
}
"""By name: what brings the victim there, in a version."""


# what must hold


@dataclass
class Trial:
    """Hands a victim one message after another and looks at what came of each; it starts anew where one did something.

    Attributes:
        played: messages that were handed out.
        anew: how often the victim had to be brought back.
        broken: what did not hold, with the message.
    """

    version: int
    name: str
    played: int = 0
    anew: int = 0
    broken: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._start()
        self._journal = self._victim.peer.journal

    def _start(self) -> None:
        self._victim = SITUATIONS[self.name](self.version)
        self._said = {vote.slot: vote for vote in self._victim.peer.journal.votes}
        self._digest = digest(self._victim.peer)

    def hand(self, message: Message) -> None:
        """Hand out one message, and go back to the situation; nothing that could not exist yet."""
        if not has_happened(self.version, message, self._journal):
            return
        self.played += 1
        if self._play(message):
            self._start()
            self.anew += 1

    def held(self) -> list[Block]:
        """The candidates that the victim holds in this situation."""
        return [entry.block for entry in self._victim.peer.node.ledger.entries.values()]

    def hand_all(self, messages: Sequence[Message]) -> None:
        """Hand out several, one upon the other, and then what the federation decided."""
        for message in messages:
            if not has_happened(self.version, message, self._victim.peer.journal):
                continue
            self.played += 1
            self._play(message, is_last=False)
        self._catch_up()
        self._start()

    def _play(self, message: Message, *, is_last: bool = True) -> bool:
        """Whether it did anything."""
        before = len(self.broken)
        head = self._victim.peer.node.head
        effects = self._victim.receive(message)
        is_invalid = any(isinstance(item, Refuse) and isinstance(item.error, Invalid) for item in effects)
        after = digest(self._victim.peer)
        is_changed = after != self._digest
        # Words that our own key signed are noted, whatever comes with them.
        is_own = isinstance(message, PostMessage) and message.post.sender == self._victim.peer.key.public_key
        if is_invalid and is_changed and self._victim.peer.node.head is head and not is_own:
            self.broken.append("what was refused changed the node")
        self._look(effects)
        if is_changed:
            self._answer(effects)
            for pause_ms in PAUSES_MS if is_last else (1,):
                self._victim.now_ms += pause_ms
                self._look(self._victim.handle(Tick()))
        self._digest = self._digest if is_last else digest(self._victim.peer)
        self.broken[before:] = [f"{self.name}: {text}: {message}" for text in self.broken[before:]]
        return is_changed or any(isinstance(item, Persist | WriteJournal) for item in effects)

    def _answer(self, effects: list[Effect]) -> None:
        """Answer what the traitor is asked, as if it were honest."""
        for _ in range(ANSWERS_MAX):
            asked = [item.message for item in effects if isinstance(item, Send) and item.peer == LIAR]
            answers = [answer for question in asked for answer in honest_answers(self.version, question)]
            effects = [effect for answer in answers for effect in self._victim.receive(answer)]
            self._look(effects)

    def _catch_up(self) -> None:
        """The honest members go on: the victim gets there, too."""
        victim, head = self._victim, story(self.version).block(LAST).hash
        honest = [founding(self.version).members[number] for number in (1, 2)]
        for _ in range(40):
            if victim.peer.node.head.height >= LAST:
                return
            victim.now_ms += 1_000
            effects = victim.handle(Tick())
            for member in honest:
                effects += victim.handle(MessageReceived(member, Status(LAST, head, b"", (), (), None)))
            self._look(effects)
            for item in [effect for effect in effects if isinstance(effect, Send) and effect.peer in honest]:
                self._answer_honestly(item)
        self.broken.append(f"{self.name}: the victim stays at height {victim.peer.node.head.height}")

    def _answer_honestly(self, asked: Send) -> None:
        """Answer a question of the victim's, and those that follow from it."""
        questions = [asked]
        while questions:
            question = questions.pop()
            for said in honest_answers(self.version, question.message):
                effects = self._victim.handle(MessageReceived(question.peer, said))
                self._look(effects)
                questions += [item for item in effects if isinstance(item, Send) and item.peer == asked.peer]

    def _look(self, effects: Sequence[Effect]) -> None:
        """Everything that must hold after an event."""
        peer, told = self._victim.peer, story(self.version)
        head = peer.node.head
        if head.height > LAST or (head.height and head.block_hash != told.block(head.height).hash):
            self.broken.append(f"the head is at height {head.height}, and not on what was decided")
        if culprits := peer.node._parts.crimes.open.keys() - {LIAR}:
            self.broken.append(f"{len(culprits)} honest members are accused")
        for effect in effects:
            match effect:
                case Persist(records):
                    finals = [item for item in records if isinstance(item, Final)]
                    self.broken += [text for item in finals if (text := _not_final(self.version, item))]
                case Publish(VoteMessage(vote)) if vote.voter == peer.key.public_key:
                    self._note_said(vote)
                case Blame(member, error) if member != LIAR:
                    self.broken.append(f"an honest member is blamed: {error}")
        Bounds(peer.genesis, self.broken.append).check(cast(SimulatedPeer, peer))
        if peer.stopped:
            self.broken.append(f"the node ended itself: {peer.stopped}")

    def _note_said(self, vote: Vote) -> None:
        if self._said.setdefault(vote.slot, vote).block_hash != vote.block_hash:
            self.broken.append(f"the victim signed twice in {vote.slot}")


def digest(peer: Peer) -> Hashable:
    """All that the node holds: a refused message leaves it as it was, but for the peers to ask next."""
    node = peer.node
    context, agreement, catching_up = node._context, node.voting.agreement, node._parts.catching_up
    ballots, joining = agreement.ballots, catching_up._joining
    slots = tuple(ballots.slots(agreement.attempt))
    return (
        context.head.block_hash,
        context.journal,
        context.mempool.changes,
        tuple((name, entry.block.signature, entry.is_valid) for name, entry in context.ledger.entries.items()),
        tuple(node._parts.crimes.open),
        tuple((slot, tuple(ballots.ballot(*slot).first.items())) for slot in slots),
        ballots.newest_polka,
        (agreement.attempt, agreement.lock),
        tuple(sorted(context.contents._held)),
        tuple(context.contents.downloads._downloads),
        tuple(context.contents._waiting),
        tuple(context.catch_up._heights.items()),
        tuple((name, len(head.holders)) for name, head in joining._waiting.items())
        if isinstance(joining, Joining)
        else tuple(joining._line),
        tuple((height, tuple(found.items())) for height, found in catching_up._ahead._kept.items() if found),
        tuple(sorted((member, len(votes)) for member, votes in node.voting._early.items())),
    )


def honest_answers(version: int, question: Message) -> Iterator[Message]:
    """The answer of an honest member that holds all that was decided."""
    told = story(version)
    match question:
        case GetContent(content_hash, 0):
            yield Chunk(content_hash, 0, told.contents.get(content_hash, b""))
        case GetPayloads(height) if 0 < height <= LAST:
            yield Payloads(height, tuple(told.contents[post.payload_hash] for post in told.block(height).transactions))
        case GetFinal(height, count):
            for final in told.finals[height - 1 : height - 1 + count]:
                yield FinalMessage(final.block, final.certificate)
        case GetLight(height) if 0 < height <= LAST:
            yield LightMessage(height, _light(version, height))


def _light(version: int, height: int) -> LightBlock:
    told, document = story(version), founding(version)
    final, below = told.finals[height - 1], told.block(height - 1).header if height > 1 else None
    members = decode_state(document, final.state).member_set
    return LightBlock(document.chain_id, final.block.header, final.certificate, members=members, below=below)


def _not_final(version: int, record: Final) -> str:
    """Why a record is not what the federation decided, with a proof; empty: it is. Looks at it without any cache."""
    block, certificate = record.block, record.certificate
    height = block.header.height
    told = story(version)
    decided = told.block(height) if height <= LAST else None
    if decided is None or block.to_record()[2:] != decided.to_record()[2:] or block.header != decided.header:
        return f"stored as final at height {height}: not what was decided"
    electors = decode_state(founding(version), told.finals[height - 1].state).roster.electors
    return _proves_nothing(founding(version), electors, certificate, block)


def _proves_nothing(document: Genesis, electors: frozenset[PublicKey], certificate: Certificate, block: Block) -> str:
    chain_id, header = document.chain_id, block.header
    label = (VoteKind.PRECOMMIT, header.height, block.hash)
    good = {
        vote.voter
        for vote in certificate.votes
        if (vote.kind, vote.height, vote.block_hash, vote.attempt) == (*label, certificate.attempt)
        and is_valid_signature(vote.voter, vote.signature, vote.signing_message(chain_id))
    }
    if len(good & electors) < votes_required(document, electors) or len(certificate.votes) != len(good):
        return f"stored as final at height {header.height}: {len(good)} precommits prove it"
    return ""


def shuffled(messages: Sequence[Message], seed: int, count: int) -> list[Message]:
    """Some of the messages, in any order."""
    return Random(seed).sample(list(messages), count)
