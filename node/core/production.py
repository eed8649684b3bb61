"""Production: this peer's work for the open phase. It contributes once, and mines while it could count more posts."""

from dataclasses import dataclass, replace
from itertools import islice

from fedchain.chain.block import BLOCK_VERSION, Header, evidence_root, sign_block, transactions_root
from fedchain.chain.certificate import Certificate, certificate_root
from fedchain.chain.evidence import Evidence
from fedchain.chain.exceptions import Invalid, InvalidPayload, MethodFailed, Refused
from fedchain.chain.post import Post, sign_post
from fedchain.chain.state import State, expected_contributors, may_close_empty, phase_rule, posts_required
from fedchain.chain.storage.store import Content
from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import CandidateMessage, PostMessage
from fedchain.node.core.block_import import BlockImport, recompute_job
from fedchain.node.core.contents.bulk import BulkParts
from fedchain.node.core.context import Context
from fedchain.node.core.crimes import Crimes
from fedchain.node.core.deadlines import opens_after_ms
from fedchain.node.core.effects import Blame, Compute, Contribute, Mine, Persist, Publish
from fedchain.node.core.jobs import CheckPost, Knowledge, Recompute
from fedchain.node.core.notices import TrainingFailed
from fedchain.node.core.voting.vote_policy import is_patience_over, is_time_to_close_empty, patience_ends_ms


@dataclass(frozen=True, slots=True)
class Draft:
    """A block under construction: first its knowledge is computed, then its nonce is searched."""

    transactions: tuple[Post, ...]
    certificate: Certificate | None
    evidence: tuple[Evidence, ...]
    header: Header | None = None
    """The header that is being mined; None until the knowledge is computed."""
    knowledge: Knowledge | None = None


@dataclass(frozen=True, slots=True)
class OwnPost:
    """Our post for the open phase, until it is sent. It is written down before it is sent."""

    post: Post
    payload: bytes
    is_checked: bool = False
    """Whether it passed the check, so that others would take it."""


class Production:
    """Contributes and mines."""

    def __init__(self, context: Context, crimes: Crimes, blocks: BlockImport, bulk: BulkParts) -> None:
        self._context, self._crimes, self._blocks, self._bulk = context, crimes, blocks, bulk
        self.draft: Draft | None = None
        """The block that is being mined; None if there is none."""
        self._asked: tuple[int, int] | None = None  # the phase that a Contribute effect was last emitted for
        self._failed_ms: int | None = None  # when that one failed
        self._computed: OwnPost | None = None
        self._published: tuple[int, int] | None = None  # the last phase whose own post this process has sent
        self._missing: set[PublicKey] = set()
        self._seen_changes, self._seen_posts = -1, 0  # of the mempool, when it was last examined
        self._quiet_below = 0  # below this count of mempool changes, another post makes no difference
        self._quiet_until_ms: int | None = None  # nor until this time, if there is one
        self._required: tuple[State | None, int] = None, 0  # a head, and the posts required there
        self._sorted: tuple[int, tuple[Post, ...]] = -1, ()  # a count of mempool changes, and the posts to count then

    @property
    def missing(self) -> frozenset[PublicKey]:
        """Expected contributors whose posts are missing."""
        if not self._context.head.finished:
            self._look_at_posts()
        return frozenset(self._missing)

    def is_mining(self, header: Header) -> bool:
        """Whether ``header`` is still being mined."""
        return self.draft is not None and self.draft.header == header

    def waits_for_more(self) -> bool:
        """Whether the newest post makes no difference yet: no candidate is here, and other posts are awaited.

        A whole turn would do one thing besides: tell the operator that this node still listens for others before it
        speaks. That is then told at the next tick at the latest.
        """
        context, quorum_ms = self._context, self._context.clock.quorum_ms
        if context.ledger.entries:
            return False
        if context.mempool.changes >= self._quiet_below:
            self._look_at_posts()
            if not self._missing or context.clock.quorum_ms != quorum_ms:
                return False
        return self._quiet_until_ms is None or context.now.ms < self._quiet_until_ms

    def on_head(self) -> None:
        """Another phase is open."""
        self.draft = self._computed = self._failed_ms = None
        self._seen_changes, self._quiet_below = -1, 0
        self._sorted = -1, ()

    def advance(self) -> None:
        """Do this peer's work for the open phase."""
        context = self._context
        if context.head.finished:
            self._missing = set()
            return
        self._look_at_posts()
        if context.knowledge() is None:
            return
        self._contribute()
        self._mine()

    # contributions

    def on_contributed(self, round_number: int, phase: int, payload: bytes) -> None:
        """Our own payload is ready: sign it, and have it checked as other peers will. Only the first one counts."""
        context, knowledge = self._context, self._context.knowledge()
        if (round_number, phase) != context.phase or knowledge is None or self._computed is not None:
            return
        if not self._owes_post() or not context.journal.allows_post(round_number, phase):
            return
        post = sign_post(context.key, context.genesis.chain_id, round_number, phase, payload)
        self._computed = OwnPost(post, payload)
        context.emit(Compute(CheckPost(context.head, knowledge, post, payload)))

    def on_checked(self, job: CheckPost, result: Refused | None) -> bool:
        """A payload was checked; returns whether it is our own one that waits to be sent."""
        if self._computed is None or job.post != self._computed.post:
            return False
        if isinstance(result, Refused):  # nobody would take it
            self._computed = None
            self._fail(job.post.round, str(result))
        else:
            self._computed = replace(self._computed, is_checked=True)
        return True

    def on_not_contributed(self, round_number: int, phase: int, reason: str) -> None:
        """Training gave no payload. A phase that was over may open again for us."""
        if reason:
            self._fail(round_number, reason)
        elif self._asked == (round_number, phase):
            self._asked = None

    def _fail(self, round_number: int, reason: str) -> None:
        """Tell the operator, and try again if the phase is still open after a whole timeout: others may wait for us."""
        self._failed_ms = self._context.now.ms
        self._context.tell(TrainingFailed(round_number, reason))

    def _contribute(self) -> None:
        context = self._context
        if self._published == context.phase or not self._owes_post():
            return
        own = context.journal.post(*context.phase)
        if own is not None:
            self._publish_again(own)
        elif self.opens_in_ms():
            return
        elif self._computed is not None:
            if self._computed.is_checked and not context.silent():
                self._say(self._computed)
        elif (self._asked != context.phase or self._may_try_again()) and not self._bulk.is_waiting():
            knowledge = context.knowledge()
            assert knowledge is not None, "advance looked for it"
            self._asked, self._failed_ms = context.phase, None
            name = phase_rule(context.genesis, context.head).name
            context.emit(Contribute(*context.phase, name, knowledge))

    def _may_try_again(self) -> bool:
        context, failed_ms = self._context, self._failed_ms
        return failed_ms is not None and context.now.ms - failed_ms >= context.genesis.phase_timeout_ms

    def _say(self, own: OwnPost) -> None:
        """Write our post down, and only then hold and send it: peers that ask for posts get those in the mempool."""
        context, post = self._context, own.post
        # The payload comes first: losing it after the post was written down would cost the phase.
        context.emit(Persist((Content(post.payload_hash, own.payload),)))
        context.write_journal(context.journal.with_post(post))
        context.emit(Persist((post,)))
        context.mempool.add(post, context.now.ms)
        context.contents.put(post.payload_hash, own.payload)
        self._look_at_posts()
        self._publish(post, own.payload)

    def _publish_again(self, own: Post) -> None:
        """After a restart: send our post again, if its payload is still there."""
        context = self._context
        payload = None if context.silent() else context.content(own.payload_hash)
        if payload is None:
            return
        context.mempool.add(own, context.now.ms)
        context.contents.put(own.payload_hash, payload)
        self._publish(own, payload)

    def _publish(self, post: Post, payload: bytes) -> None:
        self._published = self._context.phase
        inline = post.payload_size <= self._context.genesis.inline_size_max
        self._context.emit(Publish(PostMessage(post, payload if inline else None)))

    def _owes_post(self) -> bool:
        """Whether we may contribute to the open phase, and no other post of our key is known for it.

        If our journal is beyond the phase, we have posted to it, even if the post itself was forgotten: then the chain
        that we hold is older than the journal.
        """
        context = self._context
        if context.head.finished or context.me not in context.head.roster.contributors:
            return False
        known, said = context.mempool.get(context.phase, context.me), context.journal.post(*context.phase)
        may_post = said is not None or context.journal.allows_post(*context.phase)
        return may_post and (known is None or known == said)

    def opens_in_ms(self) -> int:
        """Milliseconds until the open phase takes posts; 0 once it does."""
        context = self._context
        return max(0, opens_after_ms(context.genesis, context.head) - context.since_head_ms)

    def wakes_at_ms(self) -> int | None:
        """Time at which the phase opens, or waiting for missing posts ends; None if neither is ahead."""
        context = self._context
        if opens_in_ms := self.opens_in_ms():
            return context.now.ms + opens_in_ms
        if not self._missing or context.clock.quorum_ms is None or is_patience_over(context):
            return None
        return patience_ends_ms(context)

    # mining

    def _look_at_posts(self) -> None:
        """If the mempool has changed, note the missing contributors and the time at which posts were enough."""
        context, head, changes = self._context, self._context.head, self._context.mempool.changes
        if self._seen_changes == changes:
            return
        posts = context.mempool.posts(context.phase)
        added = len(posts) - self._seen_posts
        if self._seen_changes >= 0 and changes - self._seen_changes == added:  # all changes are new posts
            if added == 1:
                self._missing.discard(next(reversed(posts)))
            else:
                self._missing.difference_update(islice(reversed(posts), added))
        else:
            self._missing = set(expected_contributors(head)) - posts.keys()
        self._seen_changes, self._seen_posts = changes, len(posts)
        lacking = len(self._missing)
        if context.clock.quorum_ms is None:
            if self._required[0] is not head:
                self._required = head, posts_required(context.genesis, head)
            required = self._required[1]
            # the cheap test first: counting only the contributors' posts costs more
            if len(posts) >= required and len(posts.keys() & head.roster.contributors) >= required:
                context.clock.quorum_ms = context.now.ms
            else:
                lacking = min(lacking, required - len(posts))
        self._quiet_below = changes + lacking
        self._quiet_until_ms = None if context.clock.quorum_ms is None else patience_ends_ms(context)

    def _mine(self) -> None:
        """Draft a block and have it mined, unless a candidate already counts all of its posts."""
        context = self._context
        posts = self._posts_to_count()
        if posts is None:
            return
        if self._is_counted(posts) or not context.head.roster.is_active(context.me) or context.silent():
            self.draft = None
            return
        if self.draft is None or self.draft.transactions != posts:
            self.draft = Draft(posts, context.ledger.certificate, self._crimes.for_block())
            context.emit(Compute(recompute_job(context.head, context.content, posts)))

    def _is_counted(self, posts: tuple[Post, ...]) -> bool:
        """Whether a valid candidate whose parts are here counts a post of each sender of ``posts``.

        An equal number of posts is not enough: a miner that shows its own post only in its own block could trade it for
        another member's.
        """
        entries = self._context.ledger.entries.values()
        rivals = [entry for entry in entries if entry.is_valid and not entry.lacks_parts]
        if any(entry.posts == len(self._context.head.roster.contributors) for entry in rivals):
            return True
        senders = {post.sender for post in posts} if rivals else set()
        return any(
            entry.posts >= len(posts) and senders <= {post.sender for post in entry.block.transactions}
            for entry in rivals
        )

    def on_recomputed(self, job: Recompute, result: Knowledge | Refused) -> None:
        """The knowledge after our draft is computed: search for its nonce."""
        context, draft = self._context, self.draft
        if draft is None or draft.header is not None or job.state.block_hash != context.head.block_hash:
            return
        if job.transactions != draft.transactions:
            return
        if isinstance(result, Refused):
            self._drop_bad_posts(draft)
            return
        header = Header(
            version=BLOCK_VERSION,
            parent_hash=context.head.block_hash,
            height=context.head.height + 1,
            round=context.head.round,
            phase=context.head.phase,
            transactions_root=transactions_root(draft.transactions),
            certificate_root=certificate_root(draft.certificate),
            evidence_root=evidence_root(draft.evidence),
            state_root=context.head.root,
            knowledge_root=result.root,
            bits=context.head.bits,
            miner=context.me,
            nonce=0,
        )
        self.draft = replace(draft, header=header, knowledge=result)
        context.emit(Mine(header))

    def on_mined(self, sealed: Header) -> None:
        """Our miner sealed a header: publish the block if it is still the one that we want."""
        context, draft = self._context, self.draft
        if draft is None or draft.header is None or draft.knowledge is None:
            return
        if not is_same_work(draft.header, sealed) or context.silent():
            return
        self.draft = None
        block = sign_block(
            context.key, context.genesis.chain_id, sealed, draft.transactions, draft.certificate, draft.evidence
        )
        try:
            self._blocks.keep_own(block, draft.knowledge)
        except Refused as error:  # another one is made when something changes
            context.emit(Blame(context.me, error))
            return
        context.emit(Publish(CandidateMessage(block)))

    def _posts_to_count(self) -> tuple[Post, ...] | None:
        """The posts of a block that we could mine now, in sender order; None if it is too early, or not our task."""
        context, head = self._context, self._context.head
        has_quorum = context.clock.quorum_ms is not None
        is_ready = has_quorum and (not self._missing or is_patience_over(context))
        is_producer = not context.genesis.centralized or context.me == context.head.roster.aggregator_of(head.round)
        fails = not has_quorum or not is_producer
        is_empty = fails and may_close_empty(context.genesis, head) and is_time_to_close_empty(context)
        if (is_ready or is_empty) and context.clock.mining_ms is None:
            context.clock.mining_ms = context.now.ms
        if is_ready and is_producer:
            if self._sorted[0] != context.mempool.changes:
                posts = context.mempool.posts(context.phase)
                counted = tuple(posts[member] for member in sorted(posts) if member in head.roster.contributors)
                self._sorted = context.mempool.changes, counted
            return self._sorted[1]
        return () if is_empty else None

    def _drop_bad_posts(self, draft: Draft) -> None:
        """Drop posts that the method cannot aggregate although it let them pass: its fault must not stop the chain."""
        context, self.draft = self._context, None
        head, content, run = context.head, context.content, context.checks.run
        alone = {post: run(recompute_job(head, content, (post,))) for post in draft.transactions}
        bad = [post for post, result in alone.items() if isinstance(result, Invalid | MethodFailed)]
        for post in bad:
            if isinstance(alone[post], Invalid):  # otherwise the method's code is wrong
                context.emit(Blame(post.sender, InvalidPayload("aggregate", f"{post.hash.hex()} cannot be aggregated")))
        for post in bad or draft.transactions[-1:]:  # if only the combination is bad, nobody is to blame
            context.useless[post.key] = post
            context.mempool.drop(post)


def is_same_work(draft: Header, sealed: Header) -> bool:
    """Whether ``sealed`` is ``draft`` with a nonce."""
    return replace(sealed, nonce=draft.nonce) == draft
