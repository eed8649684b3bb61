"""A voter's word on how long a block was mined: the difficulty follows it, so nothing else may be in it."""

import pytest

from fedchain.network.messages import VoteMessage
from fedchain.node.core.effects import Effect
from tests.support.chain.builders import genesis
from tests.support.node.stage import PRECOMMIT, Stage, published

TRAINING_S, STRAGGLER_S, MINING_S = 12, 30, 3


def _measured(effects: list[Effect]) -> list[int]:
    """Mining times in the precommits that were cast, in milliseconds."""
    found = published(effects, VoteMessage)
    return [message.vote.mining_ms for message in found if message.vote.kind is PRECOMMIT]


@pytest.mark.parametrize("waits_for_straggler", [False, True])
def test_mining_begins_when_a_block_could_be_mined_and_not_when_the_head_moved(waits_for_straggler: bool) -> None:
    """Else a round of long training would look like one of slow mining, and the difficulty would fall to nothing."""
    stage = Stage(genesis(4))
    *rest, straggler = (post for post in stage.chain.posts() if post.sender != stage.me)
    stage.tick(TRAINING_S)
    stage.post(*rest)
    if waits_for_straggler:
        stage.tick(STRAGGLER_S)
    stage.post(straggler)
    stage.tick(MINING_S)
    block = stage.block()
    effects = stage.candidate(block)
    stage.tick(1)  # votes that take long are no mining
    assert _measured([*effects, *stage.vote(block, stage.others[:2])]) == [1_000 * MINING_S]


def test_a_block_that_came_before_the_posts_took_no_time() -> None:
    """A node that lacks the posts cannot tell how long the others have mined."""
    stage = Stage(genesis(4))
    stage.tick(TRAINING_S)
    block = stage.block()
    effects = stage.candidate(block)
    assert _measured([*effects, *stage.vote(block, stage.others[:2])]) == [0]
