"""Policy: which valid blocks deserve this peer's vote.

Unlike validity it depends on what this peer saw and when, so peers may differ; that is why it decides about votes
only. All times are of this peer's monotonic clock: what a miner writes cannot move them.
"""

from fedchain.chain.genesis import Contributor
from fedchain.chain.state import expected_contributors, may_close_empty, phase_rule, posts_required
from fedchain.node.core.context import Context
from fedchain.node.core.deadlines import forgiven_after_ms, opens_after_ms, parts_forgiven_after_ms, patience_ms
from fedchain.node.core.ledger import Entry


def deserves_vote(context: Context, entry: Entry) -> bool:
    """Whether this peer would vote for a valid block now."""
    if entry.lacks_parts and not is_lack_forgiven(context, entry):
        return False
    if entry.posts and entry.posts == len(context.head.roster.contributors):
        return True  # nobody is left to wait for
    if omits_posts(context, entry):
        return False
    if entry.posts == 0 and may_close_empty(context.genesis, context.head):
        return is_time_to_close_empty(context)
    # A miner that does not wait for the others would replace the aggregate with its own post.
    return is_patience_over(context) or not (
        expected_contributors(context.head) - {post.sender for post in entry.block.transactions}
    )


def is_lack_forgiven(context: Context, entry: Entry) -> bool:
    """Whether a block whose parts have not come here has been held back long enough.

    It counts a post whose author does not give us what it gives others, or gives nobody. Those who read nothing of it
    cannot tell, and prefer the block; if we never joined them, and a faulty member kept silent, the height would wait
    for ever. By then a block without that post has been mined, if enough members lack its parts.
    """
    held_ms = context.now.ms - entry.arrived_ms
    return is_patience_over(context) and held_ms >= parts_forgiven_after_ms(context.genesis)


def omits_posts(context: Context, entry: Entry) -> bool:
    """Whether the block leaves out a post that we had held for long when it came; so surely its miner held it, too.

    Whoever holds the post mines it, and a block that counts more is preferred. Only if none has come in all the time
    that mining one may take is the height closed without it.
    """
    genesis, head = context.genesis, context.head
    if context.now.ms - entry.arrived_ms >= forgiven_after_ms(genesis):
        return False
    counted = {post.sender for post in entry.block.transactions}
    before_ms = entry.arrived_ms - genesis.omission_slack_ms
    held = head.roster.contributors.intersection(context.mempool.held_before(context.phase, before_ms))
    # A phase may be closed empty although a few posted, but not when they were enough for a block; in a centralized
    # federation they may be, if the only member that may count them does not.
    if not counted and (len(held) < posts_required(genesis, head) or genesis.centralized):
        return False
    return bool(held - counted)


def is_patience_over(context: Context) -> bool:
    """Whether the expected posts that are not in have been waited for long enough."""
    return context.now.ms >= patience_ends_ms(context)


def patience_ends_ms(context: Context) -> int:
    """Until when the expected posts that are not in are waited for, by the monotonic clock."""
    clock = context.clock
    after_ms = None if clock.quorum_ms is None else clock.quorum_ms - clock.since_ms
    return clock.since_ms + patience_ms(context.genesis, context.head, after_ms)


def is_time_to_close_empty(context: Context) -> bool:
    """Whether the open phase has waited so long that it may be closed without posts.

    A silent aggregator is waited for once; contributors twice, because a producer waits once for its stragglers.
    """
    head, timeout_ms = context.head, context.genesis.phase_timeout_ms
    is_aggregators = phase_rule(context.genesis, head).by is Contributor.AGGREGATOR
    by_aggregator = is_aggregators and not context.mempool.posts(context.phase)
    return context.since_head_ms >= opens_after_ms(context.genesis, head) + timeout_ms * (1 if by_aggregator else 2)
