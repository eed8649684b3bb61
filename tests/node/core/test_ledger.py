"""Which blocks of an open height are kept."""

from itertools import permutations

import pytest

from fedchain.chain.storage.store import Candidate, MemoryStore
from fedchain.chain.vote import NIL
from fedchain.network.messages import (
    CANDIDATES_MAX,
)
from fedchain.node.core.ledger import CANDIDATES_OF_MINER_MAX, Ledger
from fedchain.node.core.voting.journal import Journal
from tests.support.chain.builders import ChainBuilder, genesis
from tests.support.node.stage import PRECOMMIT, PREVOTE, Stage, votes
from tests.support.node.variants import entries, keep, variants


def test_of_a_miner_the_best_blocks_are_kept_in_whatever_order_they_come() -> None:
    """One that shows everybody other blocks, each with a low hash, would otherwise split the votes for ever."""
    stage = Stage(genesis(4))
    blocks = variants(stage, stage.block(), CANDIDATES_OF_MINER_MAX + 2)
    best = {block.hash for block in blocks[:CANDIDATES_OF_MINER_MAX]}
    for order in permutations(entries(stage, blocks)):
        assert keep(stage, order) == best


def test_of_a_miner_blocks_with_more_posts_are_kept() -> None:
    stage = Stage(genesis(5))
    few = variants(stage, stage.block(without=stage.others[:1]), CANDIDATES_OF_MINER_MAX)
    full = stage.block()
    assert full.hash in keep(stage, entries(stage, [*few, full]))
    assert len(keep(stage, entries(stage, [*few, full]))) == CANDIDATES_OF_MINER_MAX


def test_what_votes_name_stays_and_takes_no_room() -> None:
    stage = Stage(genesis(4))
    blocks = variants(stage, stage.block(), CANDIDATES_OF_MINER_MAX + 2)
    worst = blocks[-1].hash
    best = {block.hash for block in blocks[:CANDIDATES_OF_MINER_MAX]}
    for order in permutations(entries(stage, blocks), len(blocks)):
        assert keep(stage, order, {worst}) == best | {worst}


def test_better_blocks_of_its_miner_do_not_push_out_what_was_voted_for() -> None:
    """Else a miner could let everybody vote for a block, and then make everybody forget it."""
    stage = Stage(genesis(4))
    *better, block = variants(stage, stage.block(), CANDIDATES_OF_MINER_MAX + 3)
    assert votes(stage.candidate(block)) == [(PREVOTE, 0, block.hash)]
    for other in better:
        stage.candidate(other)
    assert block.hash in stage.node.ledger.entries
    assert votes(stage.vote(block, stage.others[:2])) == [(PRECOMMIT, 0, block.hash)]


@pytest.mark.parametrize("is_listed_first", [True, False])
def test_a_restart_does_not_push_out_the_block_that_the_journal_is_locked_on(is_listed_first: bool) -> None:
    """Its votes need not name it: a node that heard of them from others may know the newest alone."""
    stage = Stage(genesis(4))
    *better, locked = variants(stage, stage.block(), CANDIDATES_OF_MINER_MAX + 3)
    ordered = [locked, *better] if is_listed_first else [*better, locked]
    newest = stage.a_vote(stage.me, NIL, PRECOMMIT, attempt=1)
    stage.victim.journal = Journal(slot=newest.slot, votes=(newest,), lock=(0, locked.hash))
    stage.victim.store = MemoryStore()
    stage.victim.store.append([Candidate(block, is_own=False) for block in ordered])
    stage.restart()
    assert locked.hash in stage.node.ledger.entries
    assert len(stage.node.ledger.entries) == CANDIDATES_OF_MINER_MAX + 1


def test_a_restart_does_not_push_out_the_block_that_was_voted_for() -> None:
    """The store lists it behind better blocks of its miner, and no quorum names it yet."""
    stage = Stage(genesis(4))
    *better, block = variants(stage, stage.block(), CANDIDATES_OF_MINER_MAX + 3)
    said = stage.a_vote(stage.me, block.hash, PREVOTE)
    stage.victim.journal = Journal(slot=said.slot, votes=(said,))
    stage.victim.store = MemoryStore()
    stage.victim.store.append([Candidate(known, is_own=False) for known in (*better, block)])
    stage.restart()
    assert block.hash in stage.node.ledger.entries


def test_the_block_that_the_journal_is_locked_on_is_taken_after_better_ones_of_its_miner() -> None:
    """A member lost its folder and was told of its lock by others, without the prevotes. A liar whose block that is
    makes better ones before the member gets it again: it votes for none of them, and could not vote for its own."""
    stage = Stage(genesis(4))
    *better, locked = variants(stage, stage.block(), CANDIDATES_OF_MINER_MAX + 3)
    newest = stage.a_vote(stage.me, NIL, PRECOMMIT, attempt=1)
    stage.victim.journal = Journal(slot=newest.slot, votes=(newest,), lock=(0, locked.hash))
    stage.victim.store = MemoryStore()
    stage.restart()
    for block in (*better, locked):
        stage.candidate(block)
    assert locked.hash in stage.node.ledger.entries
    assert len(stage.node.ledger.entries) == CANDIDATES_OF_MINER_MAX + 1


def test_a_status_tells_first_of_what_a_quorum_voted_for() -> None:
    stage = Stage(genesis(7, phase_timeout_ms=1_000))
    stage.tick(2)
    block = stage.block(without=stage.others[:2])
    stage.candidate(block)
    for miner in stage.others:
        for better in variants(stage, stage.block(miner=stage.chain.key(miner)), CANDIDATES_OF_MINER_MAX):
            stage.candidate(better)
    assert len(stage.node.ledger.entries) > CANDIDATES_MAX
    shown = stage.node._parts.answers.status(stage.node.voting.agreement).candidates
    assert (len(shown), block.hash in shown) == (CANDIDATES_MAX, False)
    stage.vote(block, stage.others[:5])
    shown = stage.node._parts.answers.status(stage.node.voting.agreement).candidates
    assert (len(shown), shown[0]) == (CANDIDATES_MAX, block.hash)


def test_behind_a_head_that_was_joined_at_memory_holds_no_older_block() -> None:
    """The blocks between are missing: what was known below them says nothing of what the head was made from."""
    chain = ChainBuilder(genesis(4))
    ledger, blocks = Ledger(chain.genesis, MemoryStore()), chain.extend_many(6)
    for block in (*blocks[:2], blocks[5]):
        before = chain.states[block.header.parent_hash]
        ledger.advance(block, chain.certificate(block), before, chain.states[block.hash])
    assert [*ledger.window()] == [blocks[5]]
    assert ledger.base_knowledge() == blocks[4].header.knowledge_root
