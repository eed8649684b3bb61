"""The content of a store is judged like messages from others: wrong heads, certificates, votes, posts, candidates."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from fedchain.chain.block import Block
from fedchain.chain.genesis import Genesis
from fedchain.chain.membership.change import sign_rekey
from fedchain.chain.storage.sqlite import Store
from fedchain.chain.storage.store import Candidate, Final, MemoryStore
from fedchain.chain.vote import NIL, Vote
from fedchain.network.messages import FinalMessage, GetFinal, VoteMessage
from fedchain.node.core.effects import Publish, Tell
from fedchain.node.core.notices import NotBelieved
from fedchain.node.core.voting.journal import Journal
from tests.support.chain.builders import ChainBuilder, genesis, keys, payload, post
from tests.support.chain.changes import UNTIL, living_genesis
from tests.support.chain.forgeries import FORGED, Forge
from tests.support.node.driver import Federation, check_agreement, check_promises
from tests.support.node.stage import PRECOMMIT, PREVOTE, Stage, sent

VICTIM = 0


def not_believed(stage: Stage) -> list[str]:
    """The operator's notices since the last start."""
    found = [effect.notice for effect in stage.victim.effects if isinstance(effect, Tell)]
    return [f"{notice.what}: {notice.reason}" for notice in found if isinstance(notice, NotBelieved)]


def reopened(folder: Path, records: Sequence[Final], document: Genesis) -> Store:
    """A store as a bug or its operator may have written it, as a node finds it when it starts."""
    with Store.create(folder, document) as store:
        store.append(records)
    return Store.open(folder, document)


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
def test_a_node_whose_head_is_not_final_goes_on_below_it(tmp_path: Path, forge: Forge) -> None:
    at = Stage(genesis(4))
    blocks = at.accept(3)
    records = [at.chain.final(block, at.certificate(block)) for block in blocks[:-1]]
    wrong = at.chain.final(blocks[-1], forge(at.chain, blocks[-1]))
    with reopened(tmp_path, [*records, wrong], at.genesis) as store:
        at.victim.store = cast(MemoryStore, store)
        at.restart(is_heard=False)
        assert at.node.head.block_hash == blocks[1].hash
        at.final(blocks[2])
        at.restart()
        assert at.node.head.block_hash == blocks[2].hash


def wrong_head(federation: Federation, height: int) -> list[Final]:
    """A chain whose head is a block that a quorum prevoted and nobody decided on."""
    chain = ChainBuilder(federation.genesis)
    blocks = [chain.keep(block) for block in federation.blocks()]
    rival = chain.remake(blocks[height - 1], key=keys(4)[3])
    rival = rival if rival.hash != blocks[height - 1].hash else chain.remake(blocks[height - 1], key=keys(4)[2])
    below = [chain.final(block) for block in blocks[: height - 1]]
    return [*below, chain.final(rival, chain.certificate(rival, kind=PREVOTE))]


@pytest.mark.parametrize("ahead", [1, 4])
@pytest.mark.parametrize("is_needed", [False, True])
def test_a_polka_that_was_stored_as_a_decision_stops_nobody(tmp_path: Path, is_needed: bool, ahead: int) -> None:
    """Also where the federation cannot go on without this member, whose head is where the others' is, or just below."""
    federation = Federation(genesis(4))
    federation.run_to_height(6)
    federation.crash(VICTIM)
    if is_needed:
        federation.crash(3)
    victim, height = federation.peers[VICTIM], max(peer.node.head.height for peer in federation.peers)
    federation.peers[VICTIM].up = False
    stored = federation.running[0].node.head.height - ahead + 1
    with reopened(tmp_path, wrong_head(federation, stored), federation.genesis) as store:
        victim.store = cast(MemoryStore, store)
        federation.restart(VICTIM)
        assert victim.node.head.height == stored - 1
        federation.run_to_height(height + 3, 120)
        check_agreement(federation)
        for peer in federation.running:
            check_promises(peer)


BLOCKS = 12
"""So many that some lie below those that are kept in memory."""


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
def test_a_wrong_certificate_below_the_head_of_a_store_is_handed_out_to_nobody(forge: Forge) -> None:
    """The proof of each block is handed out in its place, so that a peer far behind can follow."""
    at = Stage(genesis(4))
    blocks = at.accept(BLOCKS)
    at.victim.store = MemoryStore()
    kept = [at.chain.certificate(blocks[0]), *(forge(at.chain, block) for block in blocks[1:-1])]
    kept.append(at.certificate(blocks[-1]))
    at.victim.store.append([at.chain.final(block, item) for block, item in zip(blocks, kept, strict=True)])
    at.restart()
    assert not not_believed(at)
    newcomer = Stage(at.genesis, 1)
    for first in range(1, BLOCKS + 1):
        answers = sent(at.receive(GetFinal(first, BLOCKS)), FinalMessage)
        assert [answer.block for answer in answers] == blocks[first - 1 :]
        newcomer.receive(answers[0])
        assert newcomer.node.head.block_hash == blocks[first - 1].hash


def test_a_certificate_in_a_store_that_its_header_does_not_name_is_handed_out_to_nobody() -> None:
    """The body of a block was exchanged on the disk: those below it prove nothing."""
    at = Stage(genesis(4))
    blocks = at.accept(BLOCKS)
    at.victim.store = MemoryStore()
    altered = replace(blocks[4], certificate=at.certificate(blocks[3], PREVOTE))
    records = [at.chain.final(block, at.certificate(block)) for block in (*blocks[:4], *blocks[5:])]
    at.victim.store.append([*records[:4], at.chain.final(blocks[4], at.certificate(blocks[4])), *records[4:]])
    at.victim.store._finals[5] = replace(at.victim.store._finals[5], block=altered)
    at.restart()
    answers = sent(at.receive(GetFinal(1, BLOCKS)), FinalMessage)
    assert [answer.block for answer in answers] == blocks[:3]


# --- own statements


def votes_of(stage: Stage) -> list[Vote]:
    """Votes that the node counts or shows at the open height."""
    ballots = stage.node.voting.agreement.ballots
    found = (ballots.ballot(attempt, kind) for attempt, kind in ballots.slots(0))
    return [vote for ballot in found for vote in (*ballot.first.values(), *ballot.second.values())]


def nobodys(vote: Vote) -> Vote:
    """A vote that nobody signed."""
    return replace(vote, signature=bytes(64))


def as_own(stage: Stage, vote: Vote) -> Vote:
    """A vote in the node's name that somebody else signed."""
    return replace(vote, voter=stage.me)


def test_votes_in_the_store_that_our_key_did_not_sign_are_left_out() -> None:
    stage = Stage(genesis(4))
    stage.accept(1)
    block = stage.block()
    foreign = [stage.a_vote(member, block, PRECOMMIT) for member in stage.others]
    forged = as_own(stage, stage.a_vote(stage.others[0], NIL, PREVOTE, 5))
    stage.victim.store.append([*foreign, nobodys(foreign[0]), forged])
    journal = stage.victim.journal
    stage.victim.effects.clear()
    stage.restart()
    assert stage.node.journal == stage.victim.journal == journal
    assert len(not_believed(stage)) == 2, "others' votes may be there, since ours rest on them"
    assert sum("our key did not sign it" in line for line in not_believed(stage)) == 1
    told = [item.message for item in stage.victim.effects if isinstance(item, Publish)]
    assert not [item for item in told if isinstance(item, VoteMessage) and item.vote in foreign]


def test_the_words_of_a_member_s_former_key_alarm_nobody() -> None:
    stage, following = Stage(living_genesis(4)), keys(9)[8]
    former = stage.chain.key(stage.me)
    change = sign_rekey(former, following, stage.genesis.chain_id, sequence=0, until=UNTIL)
    stage.final(stage.adopt(stage.block(changes=[change])))
    others = nobodys(stage.a_vote(stage.others[0], NIL, PREVOTE))
    stage.victim.store.append(
        [stage.a_vote(stage.me, NIL, PREVOTE), post(former, stage.genesis, 2, payload(9)), others]
    )
    stage.victim.key, stage.victim.journal = following, Journal()
    stage.victim.effects.clear()
    stage.restart()
    assert stage.node.head.roster.current(former.public_key) == following.public_key
    assert [line.partition(":")[0] for line in not_believed(stage)] == ["a prevote at height 2, attempt 0"]
    assert stage.others[0].hex()[:16] in not_believed(stage)[0]
    assert stage.victim.journal.height == 0, "it is no word of the key that the member has now"


def test_forged_votes_in_the_store_decide_nothing() -> None:
    """A quorum of precommits that nobody signed, beside one vote of our own at that height."""
    stage = Stage(genesis(4))
    stage.accept(1)
    block = stage.block()
    stage.candidate(block)
    assert stage.node.journal.height == 2
    signatures = [nobodys(stage.a_vote(member, block, PRECOMMIT)) for member in stage.others]
    strangers = [replace(vote, voter=keys(9)[5 + n].public_key) for n, vote in enumerate(signatures)]
    stage.victim.store.append([*signatures, *strangers])
    stage.restart()
    assert stage.node.head.height == 1
    assert {vote.voter for vote in votes_of(stage)} == {stage.me}


def test_posts_in_the_store_that_are_not_ours_are_not_posted() -> None:
    """The folder of another member, or what its operator wrote into it."""
    stage = Stage(genesis(4), contributes=False)
    stage.accept(1)
    stage.victim.effects.clear()
    content = payload(9)
    foreign = post(stage.chain.key(stage.others[0]), stage.genesis, 2, content)
    forged = replace(foreign, sender=stage.me)
    stage.victim.store.append([foreign, forged])
    stage.restart()
    stage.wait(3)
    assert {kept.round for kept in stage.node.journal.posts} == {1}
    assert len(not_believed(stage)) == 2
    assert stage.node.open_posts() == ()


# --- candidates


def another_body(stage: Stage, block: Block) -> Block:
    return replace(block, transactions=())


def unsigned(stage: Stage, block: Block) -> Block:
    return replace(block, signature=bytes(64))


def wrong_round(stage: Stage, block: Block) -> Block:
    return stage.chain.remake(block, round=block.header.round + 1)


def proved_by_prevotes(stage: Stage, block: Block) -> Block:
    parent = stage.chain.blocks[block.header.parent_hash]
    return stage.chain.remake(block, certificate=stage.certificate(parent, PREVOTE))


@pytest.mark.parametrize("alter", [another_body, unsigned, wrong_round, proved_by_prevotes])
def test_a_candidate_in_the_store_that_breaks_a_rule_is_left_out(alter: object) -> None:
    assert callable(alter)
    stage = Stage(genesis(4))
    stage.accept(1)
    block = stage.block()
    stage.victim.store.append([Candidate(alter(stage, block), is_own=False)])
    stage.victim.effects.clear()
    stage.restart()
    assert not stage.node.ledger.entries
    (line,) = not_believed(stage)
    assert line.startswith("candidate ")
    stage.candidate(block)
    assert stage.node.ledger.entries


def test_a_good_candidate_in_the_store_is_taken() -> None:
    stage = Stage(genesis(4))
    stage.accept(1)
    block = stage.block()
    stage.victim.store.append([Candidate(block, is_own=False)])
    stage.restart()
    assert list(stage.node.ledger.entries) == [block.hash]
    assert not not_believed(stage)


def test_of_candidates_above_the_open_height_nobody_hears() -> None:
    """They are left in a store whose head was damaged, and that was cut back."""
    stage = Stage(genesis(4))
    first, _, third = stage.chain.extend_many(3)
    stage.candidate(first)
    stage.final(first)
    stage.victim.store.append([Candidate(third, is_own=True)])
    stage.victim.effects.clear()
    stage.restart()
    assert not stage.node.ledger.entries
    assert not not_believed(stage)
