"""Policy: which valid blocks deserve this peer's vote.

Unlike validity it may depend on what this peer saw and when, so peers may differ; that is why it decides about votes
only. A peer that is slower or luckier than others never calls a block invalid that they accept.
"""

from enum import Enum

from fedchain.chain.fork_choice import BlockTree

from fedchain.chain.block import Block
from fedchain.chain.genesis import Genesis
from fedchain.chain.state import State, expected_contributors
from fedchain.node.core.mempool import Mempool


class Opinion(Enum):
    """What a peer makes of a valid block."""

    VOTE = "vote"
    """It deserves the vote."""
    LATER = "later"
    """It closes the phase too early: look again when the phase timed out."""
    NEVER = "never"
    """It does not deserve the vote."""


def judge(
    genesis: Genesis, tree: BlockTree, mempool: Mempool, parent: State, block: Block, since_head_ms: int
) -> Opinion:
    """What to make of a valid ``block`` on ``parent``, ``since_head_ms`` after our head moved."""
    # Accepted is accepted: one vote more says nothing.
    if tree.is_accepted(block.hash):
        return Opinion.NEVER
    # With an honest majority, what lies deeper than this stays.
    depth = tree.fork_depth(parent)
    if depth > genesis.reorg_depth_max:
        return Opinion.NEVER
    # Two miners may be lucky at once; who is lucky later is digging up an accepted block for its lower hash.
    if depth and since_head_ms > genesis.omission_slack_ms:
        return Opinion.NEVER
    if _omits_posts(genesis, mempool, parent, block) or _swaps_own_post(mempool, block):
        return Opinion.NEVER
    # A miner that does not wait for the others would replace the aggregate with its own post.
    counted = {transaction.sender for transaction in block.transactions}
    waited = depth == 0 and since_head_ms >= genesis.phase_timeout_ms
    if not waited and not expected_contributors(genesis, parent) <= counted:
        return Opinion.LATER
    return Opinion.VOTE


def _omits_posts(genesis: Genesis, mempool: Mempool, parent: State, block: Block) -> bool:
    """Whether the block leaves out a post that we, and so surely its miner, had held for long when it was sealed."""
    counted = {transaction.sender for transaction in block.transactions}
    held_since_ms = block.header.timestamp_ms - genesis.omission_slack_ms
    since_parent_ms = block.header.timestamp_ms - parent.timestamp_ms
    held = [
        post.sender
        for post in mempool.held_before((parent.round, parent.phase), held_since_ms)
        if post.sender in parent.contributors
    ]
    # A phase may be closed empty although a few posted, but not when they were enough for a block.
    if not counted and len(held) < genesis.contribution_quorum:
        return False
    # Where only the aggregator may count them, they do not keep the others from going on without it.
    if not counted and genesis.centralized and since_parent_ms >= 2 * genesis.phase_timeout_ms:
        return False
    return any(sender not in counted for sender in held)


def _swaps_own_post(mempool: Mempool, block: Block) -> bool:
    """Whether the miner counts another post of its own than the one it sent us, say one with a later timestamp."""
    header = block.header
    sent = mempool.get((header.round, header.phase), header.miner)
    return sent is not None and any(
        post.sender == header.miner and post.hash != sent.hash for post in block.transactions
    )
