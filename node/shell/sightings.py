"""Sightings: blocks for one height as peers saw them before one became final, and reasons why attempts at it failed.

A node collects its own; a simulation collects those of all honest peers in one place.
"""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field

from fedchain.chain.block import Block, Header
from fedchain.chain.exceptions import (
    AlreadyKnown,
    Equivocation,
    InvalidPayload,
    InvalidPost,
    InvalidSignature,
    Refused,
    UnknownParent,
)
from fedchain.chain.post import Post
from fedchain.chain.storage.store import Candidate
from fedchain.chain.vote import NIL, VoteKind
from fedchain.crypto.address import address
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import CandidateMessage, PostMessage
from fedchain.node.core.effects import Blame, Effect, Persist, Publish, Refuse, Tell
from fedchain.node.core.events import Computed, Event, MessageReceived
from fedchain.node.core.jobs import CheckPost, KeepPart
from fedchain.node.core.node import Node
from fedchain.node.core.notices import TrainingFailed
from fedchain.node.shell.timeline import (
    FailedAttempt,
    NothingPosted,
    SeenBlock,
    SeenCandidate,
    SeenPost,
    TrainingResult,
    members_text,
)

BLOCKS_MAX = 64
"""Most blocks of one height that are noted before a peer found them valid."""

REASONS_MAX, REASON_SIZE_MAX = 8, 200
"""Most reasons that are noted for one block, and most characters of one."""

ATTEMPTS_MAX = 32
"""Most attempts of one height whose failure is noted."""

ELSEWHERE = "another height was open when it came"
"""Why a peer does not take a good block that is too late for it, or too early."""


@dataclass(slots=True)
class _Sighting:
    """A block, and the peers that saw it. Each bit of a number stands for the member with its number.

    It lasts until the height is decided, and anybody may have sent the block, so its body is not kept.
    """

    header: Header
    posts: int
    arrived_ms: int
    seen: int = 0
    valid: int = 0
    refused: dict[str, int] = field(default_factory=dict)


class Sightings:
    """Collects what is seen at one height.

    Args:
        height: the height.
        since_ms: time at which the block before it became final, by the clock of all times here.
    """

    def __init__(self, height: int, since_ms: int) -> None:
        self.height, self.since_ms = height, since_ms
        self._trained_ms: int | None = None
        self._training: TrainingResult | None = None
        self._blocks: dict[Hash, _Sighting] = {}
        self._failed: dict[int, dict[str, int]] = {}  # by attempt
        self._attempts: dict[int | None, int] = {}  # newest attempt of each peer
        self._posts: dict[PublicKey, SeenPost] = {}  # by sender
        self._nothing: dict[PublicKey, NothingPosted] = {}

    @property
    def valid(self) -> frozenset[Hash]:
        """Blocks that some peer found valid."""
        return frozenset(block_hash for block_hash, item in self._blocks.items() if item.valid)

    @property
    def refused(self) -> frozenset[Hash]:
        """Blocks that some peer refused, and none found valid."""
        return frozenset(name for name, item in self._blocks.items() if item.refused and not item.valid)

    def train(self, took_ms: int) -> None:
        """A peer has trained for the block, in some phase after others; the longest training counts."""
        self._trained_ms = max(self._trained_ms or 0, took_ms)

    def measure(self, training: TrainingResult) -> None:
        """Note measurements after a training for the block, or for an earlier one if this peer is slow."""
        self._training = training

    def see(self, number: int | None, block: Block, now_ms: int) -> None:
        """A peer received a block."""
        known = self._blocks.get(block.hash)
        if known is None and len(self._blocks) < BLOCKS_MAX:
            known = self._blocks[block.hash] = _sighting(block, now_ms)
        if known is not None:
            known.seen |= _bit(number)

    def accept(self, number: int | None, block: Block, now_ms: int) -> None:
        """A peer found a block valid, or mined it."""
        known = self._blocks.setdefault(block.hash, _sighting(block, now_ms))
        known.seen, known.valid = known.seen | _bit(number), known.valid | _bit(number)

    def refuse(self, number: int | None, block_hash: Hash, error: Refused) -> None:
        """A peer refused a block; nothing is noted of one that was not noted when it came."""
        reason = ELSEWHERE if isinstance(error, UnknownParent) and error.rule == "parent" else str(error)
        reasons = self._blocks[block_hash].refused if block_hash in self._blocks else {}
        if reason[:REASON_SIZE_MAX] in reasons or len(reasons) < REASONS_MAX:
            reasons[reason[:REASON_SIZE_MAX]] = reasons.get(reason[:REASON_SIZE_MAX], 0) | _bit(number)

    def follow(self, number: int | None, node: Node) -> None:
        """Note why attempts failed that a peer has left since the last look."""
        newest, attempt_now = self._attempts.get(number, 0), node.voting.agreement.attempt
        if attempt_now <= newest:
            return
        self._attempts[number] = attempt_now
        for attempt in range(max(newest, attempt_now - ATTEMPTS_MAX), attempt_now):
            if attempt in self._failed or len(self._failed) < ATTEMPTS_MAX:
                peers, reason = self._failed.setdefault(attempt, {}), _why_failed(node, attempt)
                peers[reason] = peers.get(reason, 0) | _bit(number)

    def post(self, sender: PublicKey, number: int, now_ms: int, reason: str = "") -> None:
        """A member's post was sent or received; ``reason`` if it was refused as its sender's fault."""
        known = self._posts.get(sender)
        if known is None or (reason and not known.reason):
            after_ms = max(0, now_ms - self.since_ms) if known is None else known.after_ms
            self._posts[sender] = SeenPost(number, after_ms, reason[:REASON_SIZE_MAX])

    def fail(self, member: PublicKey, number: int, reason: str) -> None:
        """A peer has nothing to post; the last reason counts."""
        self._nothing[member] = NothingPosted(number, reason[:REASON_SIZE_MAX])

    def end(self, block_hash: Hash, counted: Set[PublicKey], final_ms: int) -> SeenBlock | None:
        """The observations of the block that became final; None if there are none.

        ``counted`` are the members whose posts it counts.
        """
        if self._trained_ms is None and not (self._training or self._blocks or self._posts or self._nothing):
            return None
        return SeenBlock(
            self.height,
            block_hash.hex(),
            self._trained_ms,
            final_ms - self.since_ms,
            tuple(map(self._told, self._blocks.values())),
            self._training,
            tuple(FailedAttempt(attempt, _texts(why)) for attempt, why in sorted(self._failed.items())),
            tuple(post for sender, post in self._posts.items() if sender not in counted),
            tuple(item for member, item in self._nothing.items() if member not in counted),
        )

    def _told(self, item: _Sighting) -> SeenCandidate:
        header = item.header
        refused = {reason: peers & ~item.valid for reason, peers in item.refused.items()}
        return SeenCandidate(
            hash=header.hash.hex(),
            miner=address(header.miner),
            posts=item.posts,
            knowledge_root=header.knowledge_root.hex(),
            after_ms=max(0, item.arrived_ms - self.since_ms),
            seen=members_text(item.seen),
            valid=members_text(item.valid),
            refused=_texts({reason: peers for reason, peers in refused.items() if peers}),
        )


def _sighting(block: Block, now_ms: int) -> _Sighting:
    return _Sighting(block.header, len(block.transactions), now_ms)


def observe(
    of: Callable[[int], Sightings | None],
    number: int | None,
    node: Node,
    event: Event,
    effects: Sequence[Effect],
    now_ms: int,
) -> None:
    """A node has handled an event: note what it saw.

    Args:
        of: returns the sightings of a height; None if nothing is noted of it.
        number: the node's number among the members; None if it is no member.
        node: the node.
        event: the event.
        effects: what follows from it.
        now_ms: time of the event.
    """
    message = event.message if isinstance(event, MessageReceived) else None
    if isinstance(message, CandidateMessage):
        block = message.block
        if (found := of(block.header.height)) is not None:
            found.see(number, block, now_ms)
            for effect in effects:
                if isinstance(effect, Refuse) and not isinstance(effect.error, AlreadyKnown):
                    found.refuse(number, block.hash, effect.error)
    posts = list[tuple[Post, str]]()
    for effect in effects:
        if isinstance(effect, Persist):
            for record in effect.records:
                if isinstance(record, Candidate) and (found := of(record.block.header.height)) is not None:
                    found.accept(number, record.block, now_ms)
        elif isinstance(effect, Publish) and isinstance(effect.message, PostMessage):
            posts.append((effect.message.post, ""))
        elif isinstance(effect, Tell) and isinstance(effect.notice, TrainingFailed):
            _note_nothing(of, number, node, effect.notice)
    if isinstance(message, PostMessage) and not _is_forged(effects):
        posts.append((message.post, _fault_of(effects)))
    elif isinstance(event, Computed) and isinstance(event.job, CheckPost | KeepPart) and event.job.post is not None:
        posts += [(event.job.post, fault)] if (fault := _fault_of(effects)) else []
    for post, reason in posts:
        height, roster = _height_of(node, post), node.head.roster
        # Nobody looks at the signature of one in the name of a member that does not count.
        if height is not None and roster.is_active(post.sender) and (found := of(height)) is not None:
            found.post(post.sender, roster.seats[post.sender], now_ms, reason)
    if (found := of(node.head.height + 1)) is not None:
        if isinstance(event, Computed):
            for entry in node.ledger.entries.values():
                if entry.refuted is not None:
                    found.refuse(number, entry.hash, entry.refuted)
        found.follow(number, node)


def _note_nothing(
    of: Callable[[int], Sightings | None], number: int | None, node: Node, notice: TrainingFailed
) -> None:
    """A node has nothing to post for the open phase; of an earlier one it says so too late."""
    head = node.head
    is_open = (notice.round, notice.phase) == (head.round, head.phase)
    if number is not None and is_open and (found := of(head.height + 1)) is not None:
        found.fail(head.roster.members[number], number, notice.reason)


def _is_forged(effects: Sequence[Effect]) -> bool:
    """Whether the post that a node has received was not signed by its sender."""
    return any(isinstance(effect, Refuse) and isinstance(effect.error, InvalidSignature) for effect in effects)


def _fault_of(effects: Sequence[Effect]) -> str:
    """Why a node blames the sender of the post that it has received, or checked since; no text if it does not.

    A peer that passes a post on may put another payload beside it: the node then refuses that message alone.
    """
    faults = [effect.error for effect in effects if isinstance(effect, Blame)]
    faults = [error for error in faults if isinstance(error, InvalidPost | InvalidPayload)]
    faults += [item.error for item in effects if isinstance(item, Refuse) and isinstance(item.error, Equivocation)]
    return str(faults[0]) if faults else ""


def _height_of(node: Node, post: Post) -> int | None:
    """Height of the block that closes a post's phase, if that is the open one or the one before; else None."""
    head, settled, phase = node.head, node.ledger.settled, (post.round, post.phase)
    if settled is not None and phase == (settled.before.round, settled.before.phase):
        return head.height  # a post may come when its phase is closed
    return head.height + 1 if phase == (head.round, head.phase) else None


def _why_failed(node: Node, attempt: int) -> str:
    """Why a peer left an attempt, by the votes that it holds."""
    ballots, quorum = node.voting.agreement.ballots, node.votes_required()
    prevotes = ballots.ballot(attempt, VoteKind.PREVOTE)
    nil = prevotes.tally.get(NIL, 0)
    if ballots.polka(attempt) is not None:
        return "too few precommits came in time for the block that a quorum had prevoted"
    if len(prevotes.first) < quorum:
        return "others went on to the next attempt before a quorum of prevotes came"
    if nil >= quorum:
        return "no block deserved the votes in time"
    return "no block got a quorum of prevotes: some were for no block" if nil else "prevotes were split between blocks"


def _bit(number: int | None) -> int:
    return 0 if number is None else 1 << number


def _texts(peers: dict[str, int]) -> dict[str, str]:
    return {reason: members_text(mask) for reason, mask in peers.items()}
