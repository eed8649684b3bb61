"""Answers: the replies to a peer's questions, and the questions to a peer whose status shows more than we hold.

All of it is a pure function of the node's memory.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple, assert_never

from fedchain.chain.certificate import Certificate
from fedchain.chain.post import Post
from fedchain.chain.state import State
from fedchain.chain.vote import Vote
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.network.bitmaps import difference, from_bitmap, to_bitmap
from fedchain.network.messages import (
    CANDIDATES_MAX,
    FINALS_MAX,
    FINALS_SIZE_MAX,
    HELD_VOTES_MAX,
    Bitmap,
    CandidateMessage,
    CertificateMessage,
    FinalMessage,
    GetCandidate,
    GetCertificate,
    GetFinal,
    GetPayloads,
    GetPosts,
    GetVotes,
    HeldVotes,
    Message,
    Payloads,
    PostMessage,
    Status,
    VoteMessage,
)
from fedchain.node.core.contents.bulk import BulkParts
from fedchain.node.core.context import Context
from fedchain.node.core.mempool import PhaseKey
from fedchain.node.core.voting.agreement import Agreement
from fedchain.node.core.voting.ballot import Slot

RECORD_SIZE = 200
"""Approximate size of a post or a vote, in bytes."""

ANSWERS_MAX = 64
"""Most posts or votes that answer one question; the peer asks again for the rest."""

UNKNOWN_MAX = 2
"""Most unknown candidates that are requested after one status; the next status names the others again."""

ChainQuestion = GetFinal | GetPosts | GetVotes | GetCandidate | GetCertificate | GetPayloads


class _ShownPosts(NamedTuple):
    """Posts of a phase that were held when they were marked."""

    phase: PhaseKey
    changes: int
    """Count of the mempool's changes then."""
    posts: int
    """Their number."""
    bitmap: Bitmap


class Answers:
    """Reads a node's memory on behalf of its peers.

    Args:
        context: the node's memory.
        bulk: parts that posts list.
        unshown: see :meth:`fedchain.node.core.posts.Posts.unshown`.
        early: see :meth:`fedchain.node.core.voting.voting.Voting.early`.
    """

    def __init__(
        self,
        context: Context,
        bulk: BulkParts,
        unshown: Callable[[PublicKey], Iterable[Post]],
        early: Callable[[PublicKey], Iterable[Vote]],
    ) -> None:
        self._context, self._bulk, self._unshown, self._early = context, bulk, unshown, early
        self._shown = _ShownPosts((-1, -1), 0, 0, b"")

    def status(self, agreement: Agreement) -> Status:
        """The status that announces what this node holds."""
        context, ballots = self._context, agreement.ballots
        slots = self._slots(ballots.slots(agreement.attempt))
        polka = ballots.newest_polka
        return Status(
            context.head.height,
            context.head.block_hash,
            self._posts_held(),
            tuple(self._candidates(agreement)[:CANDIDATES_MAX]),
            tuple(HeldVotes(kind, attempt, self._mark(ballots.ballot(attempt, kind).first)) for attempt, kind in slots),
            None if polka is None else (polka.attempt, polka.block_hash),
        )

    def _slots(self, slots: list[Slot]) -> list[Slot]:
        """The slots to announce: all if they fit into one status, otherwise the newest, and the older ones in rotation.

        The rotation advances by one slot a second. Old slots are seldom missed, but a member that lost its memory may
        be locked by its own vote in one of them.
        """
        count = HELD_VOTES_MAX // 2
        if len(slots) <= HELD_VOTES_MAX:
            return slots
        newest, older = slots[:count], slots[count:]
        start = self._context.now.ms // 1_000 % len(older)
        return newest + (older[start:] + older[:start])[: HELD_VOTES_MAX - count]

    def _candidates(self, agreement: Agreement) -> list[Hash]:
        """Blocks to announce: first those that a quorum or a leader voted for, which peers may need, then the best."""
        ballots, entries = agreement.ballots, self._context.ledger.entries
        proofs = (ballots.decision, ballots.newest_polka)
        named = [proof.block_hash for proof in proofs if proof is not None]
        if (proposal := agreement.proposal()) is not None:
            named.append(proposal)
        held = [block_hash for block_hash in named if block_hash in entries]
        return list(dict.fromkeys([*held, *(entry.hash for entry in self._context.ledger.valid())]))

    def questions(self, status: Status, agreement: Agreement, wanted: Collection[Hash]) -> Iterator[Message]:
        """Questions to a peer at our height that sent this ``status``; ``wanted`` blocks come first."""
        context, height = self._context, self._context.head.height + 1
        if status.head_hash != context.head.block_hash:
            return
        entries = context.ledger.entries
        unknown = [item for item in status.candidates if item not in entries]
        unknown.sort(key=lambda item: item not in wanted)
        yield from (GetCandidate(item) for item in unknown[:UNKNOWN_MAX])
        for held in status.votes:
            ours = self._mark(agreement.ballots.ballot(held.attempt, held.kind).first)
            if lacking := self._lacking(held.voters, ours):
                yield GetVotes(height, held.kind, held.attempt, lacking)
        if status.lock is not None and agreement.ballots.polka(status.lock[0]) is None:
            yield GetCertificate(height, *status.lock)
        ours = self._posts_held()
        if status.posts != ours and self._lacking(status.posts, ours):  # as a rule nothing more is to be done
            lacking = self._lacking(status.posts, ours, self._mark(self._senders_waited_for()))
            if lacking is not None:
                yield GetPosts(*context.phase, lacking)
        if (owed := self._late_posts_lacking()) is not None:
            yield owed

    def reminders(self, peer: PublicKey, status: Status) -> Iterator[PostMessage | VoteMessage]:
        """A peer's own statements that are known here, and that no status shows: its post for the open phase that does
        not count, unless its ``status`` shows it, and what it said of a later phase or of the next height.

        A peer that stands where we stand and lost its memory meanwhile would sign others.
        """
        context = self._context
        if status.head_hash != context.head.block_hash:
            return
        for own in self._unshown(peer):
            is_open = (own.round, own.phase) == context.phase
            if not is_open or self._lacking(self._mark([peer]), status.posts) is not None:
                yield PostMessage(own, None)
        yield from map(VoteMessage, self._early(peer))

    def answer(self, question: ChainQuestion, agreement: Agreement) -> Iterator[Message]:
        """Messages that answer ``question``; none if nothing is held."""
        context, is_open = self._context, self._context.head.height + 1
        match question:
            case GetFinal(height, count):
                yield from self._finals(height, min(count, FINALS_MAX))
            case GetPosts(round_number, phase, members):
                posts = context.mempool.posts((round_number, phase))
                yield from self._posts([posts[member] for member in self._marked(members, posts)])
            case GetVotes(height, kind, attempt, members):
                if height == is_open:
                    votes: Mapping[PublicKey, Vote] = agreement.ballots.ballot(attempt, kind).first
                    yield from (VoteMessage(votes[member]) for member in self._marked(members, votes))
            case GetCandidate(block_hash):
                entry = context.ledger.entries.get(block_hash)
                if entry is not None and not entry.is_refuted:
                    yield CandidateMessage(entry.block)
            case GetCertificate(height, attempt, block_hash):
                polka: Certificate | None = agreement.ballots.polka(attempt)
                if height == is_open and polka is not None and polka.block_hash == block_hash:
                    yield CertificateMessage(polka)
            case GetPayloads(height):
                found = context.ledger.final(height)
                if found is not None:
                    yield Payloads(height, tuple(self._payloads(found[0].transactions)))
            case _:
                assert_never(question)

    def post(self, post: Post) -> PostMessage:
        """The message that carries a held post, with its payload if that is small."""
        context = self._context
        inline = post.payload_size <= context.head.rules.inline_size_max
        return PostMessage(post, context.content(post.payload_hash) if inline else None)

    def _posts(self, posts: Collection[Post]) -> Iterator[PostMessage]:
        """Messages that carry posts, bounded in bytes as final blocks are."""
        size = 0
        for number, post in enumerate(posts):
            message = self.post(post)
            size += len(message.payload or b"")
            if number and size > FINALS_SIZE_MAX:
                return
            yield message

    def _payloads(self, posts: Collection[Post]) -> Iterator[bytes]:
        """Payloads of a block's posts that are small and held, bounded in bytes as final blocks are."""
        size = 0
        for post in posts:
            size += post.payload_size
            if size > FINALS_SIZE_MAX:
                return
            if post.payload_size <= self._context.head.rules.inline_size_max:
                payload = self._context.content(post.payload_hash)
                if payload is not None:
                    yield payload

    def _finals(self, height: int, count: int) -> Iterator[FinalMessage]:
        """Final blocks from ``height`` on, bounded in number and in bytes."""
        size = 0
        for block, certificate in islice(self._context.ledger.proven(height), count):
            size += _final_size(len(block.transactions), len(certificate.votes))
            if block.header.height > height and size > FINALS_SIZE_MAX:
                return
            yield FinalMessage(block, certificate)

    def _mark(self, members: Collection[PublicKey], marked: Bitmap = b"") -> Bitmap:
        roster = self._context.head.roster
        return to_bitmap([roster.seats[member] for member in members], len(roster.members), marked)

    def _posts_held(self) -> Bitmap:
        """Members whose posts of the open phase are here."""
        mempool, phase, shown = self._context.mempool, self._context.phase, self._shown
        if shown.changes != mempool.changes or shown.phase != phase:
            posts = mempool.posts(phase)
            added = len(posts) - shown.posts
            if shown.phase == phase and mempool.changes - shown.changes == added:  # all changes are new posts
                bitmap = self._mark([*islice(reversed(posts), added)], shown.bitmap)
            else:
                bitmap = self._mark(posts)
            self._shown = shown = _ShownPosts(phase, mempool.changes, len(posts), bitmap)
        return shown.bitmap

    def _late_posts_lacking(self) -> GetPosts | None:
        """A question for owed posts that are not here, of one earlier phase in its turn; None if all are.

        No status shows late posts, and gossip of them may have been lost. A peer that holds none does not answer.
        """
        context, head = self._context, self._context.head
        if not head.owed:
            return None
        item = head.owed[context.now.ms // 1_000 % len(head.owed)]
        held = filter(head.roster.is_active, context.mempool.posts((item.round, item.phase)))
        absent = (key for key in head.roster.members if not head.roster.is_active(key))
        lacking = self._lacking(item.due, self._mark([*held, *absent]), self._mark(self._senders_waited_for()))
        return None if lacking is None else GetPosts(item.round, item.phase, lacking)

    def _senders_waited_for(self) -> set[PublicKey]:
        """Members whose posts are known but lack payloads or parts."""
        return self._context.contents.senders_waited_for() | {post.sender for post in self._bulk.gathering()}

    def _lacking(self, theirs: Bitmap, *ours: Bitmap) -> Bitmap | None:
        """Members marked in ``theirs`` and in none of ``ours``; None if there are none."""
        return difference(theirs, ours, len(self._context.head.roster.members))

    def _marked(self, bitmap: Bitmap, held: Mapping[PublicKey, object]) -> list[PublicKey]:
        members = self._context.head.roster.members
        marked = (members[place] for place in from_bitmap(bitmap, len(members)))
        return [member for member in marked if member in held][:ANSWERS_MAX]


def finals_that_fit(head: State) -> int:
    """Number of final blocks above ``head`` that fit into one answer even if every member posts and votes."""
    size = _final_size(len(head.roster.contributors), len(head.roster.electors))
    return max(1, min(FINALS_MAX, FINALS_SIZE_MAX // size))


def _final_size(posts: int, votes: int) -> int:
    """Approximate size of a final block and its certificate, in bytes; a block contains its parent's certificate."""
    return RECORD_SIZE * (posts + 2 * votes)
