"""Mining: a block of the open phase's posts, drafted and mined while no candidate counts as many."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from fedchain.chain.block import Header, sign_block
from fedchain.chain.certificate import Certificate
from fedchain.chain.evidence import Evidence
from fedchain.chain.exceptions import Invalid, InvalidPayload, MethodFailed, Refused
from fedchain.chain.membership.change import Change
from fedchain.chain.post import Post
from fedchain.chain.roster import by_key
from fedchain.chain.state import may_close_empty
from fedchain.chain.transition import unsealed_header
from fedchain.network.messages import CandidateMessage
from fedchain.node.core.attendance import Attendance
from fedchain.node.core.block_import import BlockImport, recompute_job
from fedchain.node.core.context import Context
from fedchain.node.core.crimes import Crimes
from fedchain.node.core.effects import Blame, Compute, Mine, Publish
from fedchain.node.core.jobs import Knowledge, Recompute
from fedchain.node.core.voting.vote_policy import has_room_for, is_patience_over, is_time_to_close_empty


@dataclass(frozen=True, slots=True)
class Draft:
    """A block under construction: first its knowledge is computed, then its nonce is searched."""

    transactions: tuple[Post, ...]
    certificate: Certificate | None
    evidence: tuple[Evidence, ...]
    changes: tuple[Change, ...]
    header: Header | None = None
    """The header that is being mined; None until the knowledge is computed."""
    knowledge: Knowledge | None = None


class Mining:
    """Drafts blocks and has them mined."""

    def __init__(
        self,
        context: Context,
        attendance: Attendance,
        crimes: Crimes,
        blocks: BlockImport,
        is_silent: Callable[[], bool],
    ) -> None:
        self._context, self._attendance, self._crimes, self._blocks = context, attendance, crimes, blocks
        self._is_silent = is_silent
        self.draft: Draft | None = None
        """The block that is being mined; None if there is none."""
        self._sorted: tuple[int, tuple[Post, ...]] = -1, ()  # a count of mempool changes, and the posts to count then

    def is_mining(self, header: Header) -> bool:
        """Whether ``header`` is still being mined."""
        return self.draft is not None and self.draft.header == header

    def on_head(self) -> None:
        """Another phase is open."""
        self.draft = None
        self._sorted = -1, ()

    def advance(self) -> None:
        """Draft a block and have it mined, unless a candidate already counts all of its posts."""
        context = self._context
        posts = self._posts_to_count()
        if posts is None:
            return
        changes = context.changes.for_block(context.genesis, context.head)
        if self._is_counted(posts, changes) or not context.head.roster.is_active(context.me) or not self._may_mine():
            self.draft = None
            return
        if self.draft is None or (self.draft.transactions, self.draft.changes) != (posts, changes):
            job = recompute_job(context.head, context.contents_here, posts)
            if not job.is_possible:  # what a late post was made from was lost here: no post is to blame for that
                self.draft = None
                return
            self.draft = Draft(posts, context.ledger.certificate, self._crimes.for_block(), changes)
            context.emit(Compute(job))

    def _may_mine(self) -> bool:
        """Whether our blocks are of use. If a quorum computes otherwise than we do, the others would hold each of them
        against us, and ban us after some."""
        return not self._is_silent() and not self._blocks.is_contradicted

    def _is_counted(self, posts: tuple[Post, ...], changes: tuple[Change, ...]) -> bool:
        """Whether a valid candidate whose parts are here counts the changes, and a post in place of each of ``posts``.

        An equal number of posts is not enough: a miner that shows its own post only in its own block could trade it for
        another member's.
        """
        entries = self._context.ledger.entries.values()
        if not entries:
            return False
        rivals = [entry for entry in entries if entry.is_valid and not entry.lacks_parts]
        if changes:
            rivals = [entry for entry in rivals if not has_room_for(self._context, entry, changes)]
        if any(entry.posts == self._context.head.countable for entry in rivals):
            return True
        keys = {post.key for post in posts} if rivals else set()
        return any(
            entry.posts >= len(posts) and keys <= {post.key for post in entry.block.transactions} for entry in rivals
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
        body = draft.transactions, draft.certificate, draft.evidence, draft.changes
        header = unsealed_header(context.genesis, context.head, result.root, context.me, body)
        self.draft = replace(draft, header=header, knowledge=result)
        context.emit(Mine(header))

    def on_mined(self, sealed: Header) -> None:
        """Our miner sealed a header: publish the block if it is still the one that we want."""
        context, draft = self._context, self.draft
        if draft is None or draft.header is None or draft.knowledge is None:
            return
        if not is_same_work(draft.header, sealed) or not self._may_mine():
            return
        self.draft = None
        body = draft.transactions, draft.certificate, draft.evidence, draft.changes
        block = sign_block(context.key, context.genesis.chain_id, sealed, *body)
        try:
            self._blocks.keep_own(block, draft.knowledge)
        except Refused as error:  # another one is made when something changes
            context.emit(Blame(context.me, error))
            return
        context.emit(Publish(CandidateMessage(block)))

    def _posts_to_count(self) -> tuple[Post, ...] | None:
        """The posts of a block that we could mine now, in the order of blocks; None if it is too early, or not our
        task."""
        context, head = self._context, self._context.head
        has_quorum = context.clock.quorum_ms is not None
        is_ready = has_quorum and (self._attendance.is_complete or is_patience_over(context))
        is_producer = not context.genesis.centralized or context.me == context.head.roster.aggregator_of(head.round)
        fails = not has_quorum or not is_producer
        is_empty = fails and may_close_empty(context.genesis, head) and is_time_to_close_empty(context)
        if (is_ready or is_empty) and context.clock.mining_ms is None:
            context.clock.mining_ms = context.now.ms
        if is_ready and is_producer:
            if self._sorted[0] != context.mempool.changes:
                posts = context.mempool.posts(context.phase)
                counted = [posts[member] for member in by_key(head.roster.contributors) if member in posts]
                if late := context.late_posts():
                    counted = sorted(counted + late, key=lambda post: (post.sender, post.round))
                self._sorted = context.mempool.changes, tuple(counted)
            return self._sorted[1]
        return () if is_empty else None

    def _drop_bad_posts(self, draft: Draft) -> None:
        """Drop posts that the method cannot aggregate although it let them pass: its fault must not stop the chain."""
        context, self.draft = self._context, None
        head, here, run = context.head, context.contents_here, context.checks.run
        alone = {post: run(recompute_job(head, here, (post,))) for post in draft.transactions}
        bad = [post for post, result in alone.items() if isinstance(result, Invalid | MethodFailed)]
        for post in bad:
            if isinstance(alone[post], Invalid):  # otherwise the method's code is wrong
                context.emit(Blame(post.sender, InvalidPayload("aggregate", f"{post.hash.hex()} cannot be aggregated")))
        for post in bad or draft.transactions[-1:]:  # if only the combination is bad, nobody is to blame
            context.mempool.useless[post.key] = post
            context.mempool.drop(post)


def is_same_work(draft: Header, sealed: Header) -> bool:
    """Whether ``sealed`` is ``draft`` with a nonce."""
    return replace(sealed, nonce=draft.nonce) == draft
