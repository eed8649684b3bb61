"""Answers are bounded in number, whatever is asked for and however much is held."""

import pytest

from fedchain.chain.block import Block
from fedchain.chain.vote import NIL
from fedchain.network.messages import FinalMessage, GetFinal, GetPosts, GetVotes, PostMessage, VoteMessage
from tests.chain.builders import genesis
from tests.node.stage import PREVOTE, Stage, sent

MANY = 70
"""Members, more than one answer holds votes or posts of."""


def _chain(stage: Stage, height: int) -> list[Block]:
    return [stage.accept()[0] for _ in range(height)]


@pytest.mark.parametrize(
    ("first", "asked", "answered"), [(1, 2**16, 16), (1, 3, 3), (1, 0, 0), (15, 16, 6), (21, 1, 0)]
)
def test_at_most_sixteen_final_blocks_are_handed_out_at_once(first: int, asked: int, answered: int) -> None:
    stage = Stage(genesis(1))
    blocks = _chain(stage, 20)
    answers = sent(stage.receive(GetFinal(first, asked)), FinalMessage)
    assert [answer.block for answer in answers] == blocks[first - 1 : first - 1 + answered]


def test_at_most_64_votes_are_handed_out_at_once() -> None:
    stage = Stage(genesis(MANY))
    stage.vote(NIL, stage.others)
    question = GetVotes(1, PREVOTE, 0, stage.holds(*stage.others))
    first = [answer.vote.voter for answer in sent(stage.receive(question), VoteMessage)]
    rest = [member for member in stage.others if member not in first]
    question = GetVotes(1, PREVOTE, 0, stage.holds(*rest))
    then = [answer.vote.voter for answer in sent(stage.receive(question), VoteMessage)]
    assert (len(first), set(then)) == (64, set(rest)), "a peer that asks again gets the others"


def test_at_most_64_posts_are_handed_out_at_once() -> None:
    stage = Stage(genesis(MANY))
    stage.post(*stage.chain.posts(members=stage.others))
    question = GetPosts(1, 0, stage.holds(*stage.others))
    assert len(sent(stage.receive(question), PostMessage)) == 64
