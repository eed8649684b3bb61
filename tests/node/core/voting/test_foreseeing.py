"""A node foresees the state after the candidate that it would vote for, or is locked on, and says nothing of it."""

from fedchain.node.core.voting.foreseeing import Foreseeing
from tests.support.chain.builders import UPDATE, genesis
from tests.support.node.driver import check_promises
from tests.support.node.stage import PREVOTE, Stage, asked_to_contribute, votes


def test_a_candidate_s_state_is_foreseen_until_it_is_decided() -> None:
    stage = Stage(genesis(4, phases=(UPDATE, UPDATE)), contributes=False)
    assert stage.node.foreseen() is None, "there is no candidate"
    block = stage.block()
    stage.candidate(block)
    after = stage.node.foreseen()
    assert after == stage.chain.states[block.hash]
    assert (after.round, after.phase) == (1, 1)
    assert stage.node.content(after.knowledge_root) is not None
    stage.final(block)
    assert stage.node.head == after
    assert stage.node.foreseen() is None
    assert asked_to_contribute(stage.victim.effects) == [(1, 0), (1, 1)], "as if nothing had been foreseen"
    check_promises(stage.victim)


def test_a_better_candidate_is_foreseen_instead_and_a_worse_one_is_not() -> None:
    stage = Stage(genesis(7))
    stage.post(*stage.others_posts())
    whole, partial = stage.block(), stage.block(without=stage.others[:2])
    stage.candidate(partial)
    assert stage.node.foreseen() is None, "it omits posts that are held: no vote for it"
    stage.candidate(whole)
    assert stage.node.foreseen() == stage.chain.states[whole.hash]


def test_a_candidate_that_is_not_judged_yet_is_not_foreseen() -> None:
    stage = Stage(genesis(4))
    block = stage.block()
    stage.candidate(block, payloads=False)
    assert stage.node.foreseen() is None


def test_a_candidate_with_a_wrong_knowledge_is_not_foreseen() -> None:
    stage = Stage(genesis(4))
    stage.candidate(stage.chain.remake(stage.block(), knowledge_root=bytes(32)))
    assert [entry.is_refuted for entry in stage.node.ledger.entries.values()] == [True]
    assert stage.node.foreseen() is None


def test_the_block_that_it_is_locked_on_counts_and_not_what_it_prefers() -> None:
    stage = Stage(genesis(4))
    start = stage.node.head.block_hash
    pairs = zip(stage.chain.posts(start), stage.chain.posts(start, payload_of=5), strict=True)
    others = [usual if usual.sender == stage.me else changed for usual, changed in pairs]
    first, second = sorted((stage.block(), stage.block(posts=others)), key=lambda block: block.hash)
    stage.candidate(second)
    assert votes(stage.victim.effects)[0] == (PREVOTE, 0, second.hash)
    stage.vote(second, stage.others)
    assert stage.node.voting.agreement.lock == (0, second.hash)
    stage.candidate(first)
    assert stage.node.voting.preferred() == first.hash
    assert stage.node.foreseen() == stage.chain.states[second.hash]


def test_nothing_is_foreseen_after_the_last_round() -> None:
    stage = Stage(genesis(4, rounds=1))
    stage.candidate(stage.block())
    assert stage.node.foreseen() is None


def test_a_member_that_contributes_nothing_there_foresees_nothing() -> None:
    document = genesis(7, contributors_per_round=4, contribution_quorum=3)
    foreseen = set()
    for number in range(7):
        stage = Stage(document, number)
        block = stage.block()
        stage.candidate(block)
        after = stage.chain.states[block.hash]
        assert (stage.node.foreseen() is not None) == (stage.me in after.roster.contributors)
        assert stage.node.expected() == after, "whoever contributes there"
        foreseen.add(stage.node.foreseen() is not None)
    assert foreseen == {True, False}


def test_a_node_that_is_not_to_look_ahead_does_not() -> None:
    stage = Stage(genesis(4))
    stage.candidate(stage.block())
    assert stage.node.foreseen() is not None
    parts = stage.node._parts
    parts.foreseeing = Foreseeing(stage.node._context, parts.voting, lambda: False, is_wanted=False)
    assert stage.node.foreseen() is None
