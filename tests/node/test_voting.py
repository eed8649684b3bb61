"""A node's own votes: when it casts them, what it writes down before, and what it says again after a crash."""

from tests.chain.builders import genesis
from tests.node.stage import PRECOMMIT, PREVOTE, Stage, votes


def test_who_is_alone_decides_at_once() -> None:
    stage = Stage(genesis(1))
    block = stage.chain.extend()
    effects = stage.candidate(block)
    assert votes(effects) == [(PREVOTE, 0, block.hash), (PRECOMMIT, 0, block.hash)]
    assert stage.node.head.block_hash == block.hash, "its own votes are the quorum"


def test_the_own_vote_that_completes_a_quorum_has_its_effect_at_once() -> None:
    stage = Stage(genesis(4))
    block = stage.chain.extend()
    stage.vote(block, stage.others[:2], PREVOTE)
    stage.vote(block, stage.others[:2], PRECOMMIT)
    effects = stage.candidate(block)
    assert votes(effects) == [(PREVOTE, 0, block.hash), (PRECOMMIT, 0, block.hash)]
    assert stage.node.head.block_hash == block.hash


def test_who_is_silent_votes_when_its_silence_is_over() -> None:
    stage = Stage(genesis(4), is_heard=False)
    block = stage.chain.extend()
    assert votes(stage.candidate(block)) == [], "nobody was heard yet"
    assert votes(stage.wait(5)) == []
    stage.receive(stage.status(), stage.others[0])
    effects = stage.receive(stage.status(), stage.others[1])
    assert votes(effects) == [(PREVOTE, 0, block.hash)]
