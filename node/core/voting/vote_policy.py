"""Vote policy: the valid blocks that deserve this peer's vote.

Unlike validity the policy depends on arrivals at this peer and their times, so peers may differ; that is why it decides
about votes only. All times are of this peer's monotonic clock, which no miner can influence.
"""

from collections.abc import Sequence, Set
from itertools import filterfalse

from fedchain.chain.genesis import Contributor
from fedchain.chain.membership.change import Change
from fedchain.chain.membership.turnout import Turnout, mark_seats
from fedchain.chain.state import expected_contributors, may_close_empty, patience_of, phase_rule, posts_required
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey
from fedchain.node.core.context import Context
from fedchain.node.core.deadlines import forgiven_after_ms, opens_after_ms, parts_forgiven_after_ms, patience_ms
from fedchain.node.core.ledger import Entry, preference
from fedchain.node.core.membership.change_pool import REPEAT_MS, fits


def deserves_vote(context: Context, entry: Entry) -> bool:
    """Whether this peer would vote for a valid block now."""
    if entry.lacks_parts and not is_lack_forgiven(context, entry):
        return False
    if omits_changes(context, entry):
        return False
    counted = _counted_in_time(context, entry)
    if entry.posts and entry.posts == context.head.countable and counted >= context.head.roster.contributors:
        return True  # it counts every contributor, and all late posts
    if omits_posts(context, entry):
        return False
    if entry.posts == 0 and may_close_empty(context.genesis, context.head):
        return is_time_to_close_empty(context)
    # A miner that does not wait for the others would replace the aggregate with its own post.
    if not context.head.records:
        return is_patience_over(context) or not expected_contributors(context.head) - counted
    return context.now.ms >= waits_until_ms(context, counted)


def _counted_in_time(context: Context, entry: Entry) -> Set[PublicKey]:
    """Senders whose posts of the open phase the block counts; their late ones say nothing about it.

    In version 3 none is counted whose post is not held here. Otherwise a miner could withhold its own post, and alone
    have a block that counts everybody.
    """
    senders = entry.block.senders
    return senders.intersection(context.mempool.posts(context.phase)) if context.head.records else senders


def rank(context: Context, entry: Entry) -> tuple[int, Hash]:
    """Sort key of candidates, the best first: see :func:`~fedchain.node.core.ledger.preference`.

    In version 3 posts count for it that had been held for ``omission_slack_ms`` when the block came, and late ones that
    are held. A block gains nothing by a post that its miner showed nobody until then; it counts it all the same.
    """
    count, block_hash = preference(entry.block)
    if context.head.records:
        mempool, before_ms = context.mempool, entry.arrived_ms - context.head.rules.omission_slack_ms
        block, shown = entry.block, mempool.held_by(context.phase, before_ms)
        count = -len(block.senders & shown)
        if len(block.senders) < len(block.transactions):
            count -= sum(mempool.holds(post) for post in block.transactions if post.round != context.head.round)
    return count, block_hash


def is_lack_forgiven(context: Context, entry: Entry) -> bool:
    """Whether a block whose parts have not come here has been held back long enough.

    It counts a post whose author withholds parts from us, or from everybody. Members that read none of the parts cannot
    tell, and prefer the block; if we held out for ever and one faulty member stayed silent, the height would never be
    decided. By this time, if enough members lack the parts, somebody has mined a block without the post.
    """
    held_ms = context.now.ms - entry.arrived_ms
    return is_patience_over(context) and held_ms >= parts_forgiven_after_ms(context.head.rules)


def omits_posts(context: Context, entry: Entry) -> bool:
    """Whether the block omits a post that we had held long enough for its miner to hold it, too.

    Blocks that count more posts are preferred, and any miner that holds the post can make one. The omission is forgiven
    only after the time that mining a better block may take.
    """
    genesis, head = context.genesis, context.head
    if context.now.ms - entry.arrived_ms >= forgiven_after_ms(context.head.rules):
        return False
    counted = entry.block.senders
    before_ms = entry.arrived_ms - head.rules.omission_slack_ms
    if head.records and context.clock.mining_ms is not None:
        # A block that was mined while others still waited is judged as one that was mined after that: a miner with
        # much power would otherwise leave out whom it likes by being early.
        before_ms = max(before_ms, context.clock.mining_ms + 1)
    held = head.roster.contributors.intersection(context.mempool.held_before(context.phase, before_ms))
    # A phase may be closed empty although a few members posted, unless they were enough for a block. In a centralized
    # federation it may be closed even then, since the only member that may count the posts may fail to.
    if not counted and (len(held) < posts_required(genesis, head) or genesis.centralized):
        return False
    return bool(held - counted) or _omits_late_posts(context, entry, before_ms)


def _omits_late_posts(context: Context, entry: Entry, before_ms: int) -> bool:
    """Whether the block omits a late post that it could count; for a vote, an omission is an omission."""
    late = context.late_posts(before_ms)
    return bool(late) and not {post.key for post in late} <= {post.key for post in entry.block.transactions}


def omits_changes(context: Context, entry: Entry) -> bool:
    """Whether the block omits a change that we had held complete for long enough, although it had room for it.

    Otherwise a miner could keep members out, or in, for ever. It is forgiven as the omission of a post is. A member may
    show a change of its own to one other alone. No status names changes, so we know that all have it once we have sent
    it to each peer in its turn; before that nobody could be blamed for a block without it, and few could make another.
    """
    genesis, spread_ms = context.genesis, REPEAT_MS * len(context.peers)
    if not len(context.changes) or context.now.ms - entry.arrived_ms >= forgiven_after_ms(context.head.rules):
        return False
    before_ms = entry.arrived_ms - context.head.rules.omission_slack_ms - spread_ms
    held = context.changes.for_block(genesis, context.head, before_ms)
    return has_room_for(context, entry, held)


def has_room_for(context: Context, entry: Entry, changes: Sequence[Change]) -> bool:
    """Whether the block could count one of ``changes`` that it leaves out."""
    counted = {change.hash for change in entry.block.changes}
    omitted = [change for change in changes if change.hash not in counted]
    return any(fits(context.genesis, context.head, (*entry.block.changes, change)) for change in omitted)


def is_patience_over(context: Context) -> bool:
    """Whether this peer has waited long enough for the expected posts that are missing."""
    return context.now.ms >= patience_ends_ms(context)


def patience_ends_ms(context: Context) -> int:
    """Time until which this peer waits for the expected posts that are missing, by the monotonic clock."""
    clock = context.clock
    if context.head.records:
        return waits_until_ms(context, context.mempool.posts(context.phase).keys())
    after_ms = None if clock.quorum_ms is None else clock.quorum_ms - clock.since_ms
    return clock.since_ms + patience_ms(context.head, after_ms)


def waits_until_ms(context: Context, counted: Set[PublicKey]) -> int:
    """Time until which this peer waits for others than ``counted`` in version 3, by the monotonic clock.

    Each is waited for as long as the chain grants it, from when the posts required were in.
    """
    head, clock = context.head, context.clock
    if clock.quorum_ms is None:
        return clock.since_ms + opens_after_ms(head) + head.rules.phase_timeout_ms
    return granted_until_ms(context, clock.quorum_ms, longest_awaited(context, counted))


def granted_until_ms(context: Context, quorum_ms: int, longest: PublicKey | None) -> int:
    """Time until which this peer waits in version 3, where the posts required are in: see :func:`longest_awaited`."""
    return quorum_ms + (0 if longest is None else patience_of(context.head)[longest])


def longest_awaited(context: Context, counted: Set[PublicKey]) -> PublicKey | None:
    """The member to which the chain grants the longest wait in version 3, other than ``counted``; None if none is."""
    return next(filterfalse(counted.__contains__, patience_of(context.head)), None)


def turnout(context: Context, entry: Entry) -> Turnout | None:
    """This peer's account of the open phase's posts, for its precommit of a block; None in version 2.

    Whether a post whose parts others read is there, they alone can tell: it is if the block counts it. Otherwise a
    member that lists parts which nobody has would be waited for in every round, and never charged. A peer without the
    posts required waited for nobody, but is not silent: votes that say nothing are liars'.
    """
    head, clock, mempool = context.head, context.clock, context.mempool
    if not head.records:
        return None
    stopped_ms = context.now.ms if clock.mining_ms is None else clock.mining_ms
    quorum_ms = stopped_ms if clock.quorum_ms is None else clock.quorum_ms
    waited_ms = max(0, stopped_ms - quorum_ms)
    in_time_ms = max(stopped_ms, entry.arrived_ms - context.head.rules.omission_slack_ms)
    sure = entry.block.senders | mempool.demanded(context.phase)
    early = sure.intersection(mempool.held_by(context.phase, quorum_ms + waited_ms // 2))
    awaited = expected_contributors(head) - early if waited_ms else ()
    opened_ms = clock.since_ms + opens_after_ms(head)
    seats = head.roster.seats
    return Turnout(
        quorum_ms=0 if clock.quorum_ms is None else max(0, quorum_ms - opened_ms),
        waited_ms=waited_ms,
        punctual=mark_seats(seats[member] for member in sure.intersection(mempool.held_by(context.phase, in_time_ms))),
        awaited=mark_seats(seats[member] for member in awaited),
    )


def is_time_to_close_empty(context: Context) -> bool:
    """Whether the open phase has waited so long that it may be closed without posts.

    The wait is one timeout for a silent aggregator, and two for contributors: a producer waits one for its stragglers.
    """
    head, timeout_ms = context.head, context.head.rules.phase_timeout_ms
    is_aggregators = phase_rule(context.genesis, head).by is Contributor.AGGREGATOR
    by_aggregator = is_aggregators and not context.mempool.posts(context.phase)
    return context.since_head_ms >= opens_after_ms(head) + timeout_ms * (1 if by_aggregator else 2)
