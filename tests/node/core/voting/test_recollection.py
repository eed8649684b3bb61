"""A member that loses first its journal and then its store takes back nothing that it said."""

from dataclasses import replace

import pytest

from fedchain.chain.block import Block
from fedchain.chain.genesis import AggregatorRule
from fedchain.chain.storage.store import MemoryStore
from fedchain.chain.vote import NIL
from fedchain.network.messages import PostMessage, VoteMessage
from fedchain.node.core.notices import NotBelieved
from fedchain.node.core.voting.journal import Journal
from fedchain.node.core.voting.twins import LISTENING_MS
from tests.support.chain.builders import GLOBAL, UPDATE, genesis
from tests.support.node.crowd import Crowd
from tests.support.node.driver import check_promises
from tests.support.node.stage import PRECOMMIT, PREVOTE, Stage, published, votes


@pytest.mark.parametrize("is_heard", [False, True])
def test_what_the_store_remembered_outlives_the_store(is_heard: bool) -> None:
    """Everything that a node learns from its store at the start is in the journal before anything else happens."""
    stage = Stage(genesis(4))
    block, rival = stage.block(), stage.block(without=stage.others[:1], miner=stage.chain.key(stage.others[1]))
    assert votes(stage.candidate(block)) == [(PREVOTE, 0, block.hash)]
    (said,) = {message.post for message in published(stage.victim.effects, PostMessage)}
    stage.victim.journal = Journal()
    stage.restart(is_heard=is_heard)
    assert stage.victim.journal.slot == (1, 0, int(PREVOTE))
    assert stage.victim.journal.posts == (said,)
    stage.victim.store = MemoryStore()
    stage.restart()
    stage.wait(LISTENING_MS / 1_000)
    effects = [*stage.candidate(rival), *stage.wait(200)]
    assert (PREVOTE, 0, rival.hash) not in votes(effects)
    check_promises(stage.victim)


def _ahead() -> tuple[Stage, Block]:
    """A node that alone heard that block 1 is final, has voted at height 2, and has lost its store since."""
    stage = Stage(genesis(4, phases=(UPDATE, GLOBAL), aggregator=AggregatorRule.FIXED))
    block = stage.accept()[0]
    stage.mine(stage.victim.effects)
    assert stage.victim.journal.slot == (2, 0, int(PREVOTE))
    stage.victim.store = MemoryStore()
    return stage, block


def test_what_settled_the_block_below_outlives_the_store() -> None:
    """The others may lack a vote, and this member votes at that height no more."""
    stage, block = _ahead()
    stage.restart()
    assert stage.node.head.height == 0
    stage.candidate(block)
    assert stage.node.head.block_hash == block.hash
    check_promises(stage.victim)


@pytest.mark.parametrize("is_heard", [False, True])
def test_what_settled_the_block_below_is_in_a_journal_that_was_made_from_the_store(is_heard: bool) -> None:
    stage = Stage(genesis(4, phases=(UPDATE, GLOBAL), aggregator=AggregatorRule.FIXED))
    block = stage.accept()[0]
    stage.mine(stage.victim.effects)
    before, stage.victim.journal = stage.victim.journal, Journal()
    stage.restart(is_heard=is_heard)
    assert (stage.victim.journal.votes, stage.victim.journal.proof) == (before.votes, before.proof)
    stage.victim.store = MemoryStore()
    stage.restart()
    stage.candidate(block)
    assert stage.node.head.block_hash == block.hash
    check_promises(stage.victim)


def test_a_journal_s_certificate_is_judged_as_one_from_the_network() -> None:
    stage, block = _ahead()
    proof = stage.victim.journal.proof
    assert proof is not None
    few = replace(proof, votes=proof.votes[:1])
    stage.victim.journal = replace(stage.victim.journal, proof=few)
    stage.restart()
    stage.candidate(block)
    assert stage.node.head.height == 0
    assert [item.what for item in stage.victim.notices if isinstance(item, NotBelieved)] == [
        "the journal's certificate of height 1"
    ]


def test_a_journal_s_certificate_decides_no_height_but_its_own() -> None:
    """Otherwise no quorum of the open height would be noticed."""
    stage = Stage(genesis(4))
    blocks = stage.accept(2)
    stage.candidate(stage.block())
    proof = stage.victim.journal.proof
    assert proof is not None
    assert proof.block_hash == blocks[1].hash
    stage.victim.store = MemoryStore()
    stage.restart()
    assert stage.node.voting.agreement.ballots.decision is None
    stage.candidate(blocks[0])
    stage.vote(blocks[0], stage.others, PRECOMMIT)
    assert stage.node.head.block_hash == blocks[0].hash
    stage.candidate(blocks[1])
    assert stage.node.head.block_hash == blocks[1].hash


def test_the_certificate_of_a_head_that_is_there_says_nothing_new() -> None:
    stage = Stage(genesis(4, phases=(UPDATE, GLOBAL), aggregator=AggregatorRule.FIXED))
    stage.accept()
    stage.mine(stage.victim.effects)
    stage.restart()
    assert stage.node.head.height == 1
    assert not [item for item in stage.victim.notices if isinstance(item, NotBelieved)]


def test_a_node_that_passed_over_the_height_of_a_vote_keeps_no_certificate_of_another_block_for_it() -> None:
    """It joined at a head above it: having lost its store, it would tell its operator that its journal is not right."""
    founding = genesis(4)
    absent = max(founding.members)  # in no certificate of the chain
    stage = Stage(founding, founding.members.index(absent), contributes=False)
    crowd = Crowd(stage, stage.chain.extend_many(20))
    stage.receive(VoteMessage(stage.a_vote(stage.me, NIL, PREVOTE, height=2)))
    crowd.add_honest(*stage.others)
    crowd.run(crowd.is_at_head, 30)
    assert (crowd.is_at_head(), stage.victim.journal.slot) == (True, (2, 0, int(PREVOTE)))
    stage.victim.store = MemoryStore()
    stage.restart()
    assert stage.node.head.height == 0
    assert not [item for item in stage.victim.notices if isinstance(item, NotBelieved)]
