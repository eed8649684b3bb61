"""Two statements where one is allowed: how they become evidence, a conviction, and a smaller federation."""

import pytest

from fedchain.chain.evidence import EVIDENCE_MAX, Evidence
from fedchain.chain.membership.change import ChangeKind, sign_rekey
from fedchain.chain.membership.member import Standing
from fedchain.chain.post import Post
from fedchain.chain.vote import NIL
from fedchain.crypto.hashing import sha256
from fedchain.network.messages import (
    CandidateMessage,
    Chunk,
    EvidenceMessage,
    FinalMessage,
    GetContent,
    PostMessage,
    VoteMessage,
)
from fedchain.node.core.effects import Effect
from fedchain.node.core.notices import Convicted
from tests.support.chain.builders import double_post, double_vote, genesis, keys, payload, post
from tests.support.chain.changes import UNTIL, living_genesis, own
from tests.support.node.stage import PRECOMMIT, PREVOTE, Stage, blamed, published, refused, sent


def _evidence(effects: list[Effect]) -> list[Evidence]:
    return [message.evidence for message in published(effects, EvidenceMessage)]


# --- noticed


def test_two_votes_for_one_slot_are_told_to_everybody_once() -> None:
    stage = Stage(genesis(4))
    culprit = stage.others[0]
    stage.vote(NIL, [culprit])
    effects = stage.vote(sha256(b"another"), [culprit])
    assert refused(effects) == ["Equivocation"], "it is ignored, not held against who passed it on"
    assert [item.culprit for item in _evidence(effects)] == [culprit]
    effects = stage.vote(sha256(b"a third"), [culprit])
    assert (refused(effects), _evidence(effects)) == (["LimitReached"], [])


def test_two_precommits_that_measure_differently_are_no_crime() -> None:
    stage = Stage(genesis(4))
    block, voter = stage.block(), stage.others[0]
    stage.vote(block, [voter], PRECOMMIT)
    stage.now_ms += 1_000
    effects = stage.vote(block, [voter], PRECOMMIT)
    assert (refused(effects), _evidence(effects)) == (["AlreadyKnown"], [])


def test_two_posts_for_one_phase_are_told_to_everybody_and_the_first_counts() -> None:
    stage = Stage(genesis(4))
    culprit = stage.others[0]
    one, two = (post(stage.chain.key(culprit), stage.genesis, 1, payload(number)) for number in (1, 2))
    stage.receive(PostMessage(one, payload(1)))
    effects = stage.receive(PostMessage(two, payload(2)))
    assert refused(effects) == ["Equivocation"]
    assert [item.culprit for item in _evidence(effects)] == [culprit]
    assert stage.node._context.mempool.get((1, 0), culprit) == one


@pytest.mark.parametrize("first_is_whole", [True, False])
def test_the_second_post_is_noticed_while_the_firsts_payload_is_on_its_way(first_is_whole: bool) -> None:
    stage = Stage(genesis(4, inline_size_max=0))
    culprit = stage.others[0]
    one, two = (post(stage.chain.key(culprit), stage.genesis, 1, payload(number)) for number in (1, 2))
    assert sent(stage.receive(PostMessage(one, None)), GetContent)[0].content_hash == one.payload_hash
    effects = stage.receive(PostMessage(two, payload(2) if first_is_whole else None))
    assert [item.culprit for item in _evidence(effects)] == [culprit]
    stage.receive(Chunk(one.payload_hash, 0, payload(1)))
    assert stage.node._context.mempool.get((1, 0), culprit) == one


def test_a_block_that_counts_another_post_than_was_sent_to_us_is_evidence_too() -> None:
    stage = Stage(genesis(4))
    culprit = stage.others[0]
    stage.receive(PostMessage(post(stage.chain.key(culprit), stage.genesis, 1, payload(99)), payload(99)))
    effects = stage.candidate(stage.block())
    assert [item.culprit for item in _evidence(effects)] == [culprit]
    assert len(stage.node.ledger.valid()) == 1, "the block itself is valid"


def test_of_a_member_s_crimes_the_first_is_told_and_no_other() -> None:
    """One is enough to convict it; it could make others without end."""
    stage = Stage(genesis(4))
    culprit = stage.others[0]
    stage.vote(NIL, [culprit])
    (first,) = _evidence(stage.vote(sha256(b"another"), [culprit]))
    for attempt in range(1, 4):
        stage.vote(NIL, [culprit], attempt=attempt)
        assert _evidence(stage.vote(sha256(b"another"), [culprit], attempt=attempt)) == []
    for number in (1, 2):
        item = post(stage.chain.key(culprit), stage.genesis, 1, payload(number))
        assert _evidence(stage.receive(PostMessage(item, payload(number)))) == []
    assert stage.node._parts.crimes.open == {culprit: first}


def test_a_member_that_a_block_convicts_is_not_accused_by_the_proof_of_that_block() -> None:
    """Its evidence would stand in our blocks for ever, and make each of them invalid."""
    stage = Stage(genesis(4))
    culprit = stage.others[0]
    crime = double_vote(stage.chain.key(culprit), stage.genesis, 1, attempt=5)
    block = stage.block(evidence=[crime], miner=stage.chain.key(stage.others[1]))
    stage.candidate(block)
    stage.receive(VoteMessage(stage.chain.vote(culprit, stage.block(miner=stage.chain.key(stage.others[1])))))
    effects = stage.receive(FinalMessage(block, stage.chain.certificate(block, stage.others)))
    assert not stage.node.head.roster.is_active(culprit)
    assert (_evidence(effects), stage.node._parts.crimes.open) == ([], {})


def test_evidence_that_is_told_is_checked_once() -> None:
    stage = Stage(genesis(4))
    culprit = stage.chain.key(stage.others[0])
    forged = double_vote(stage.chain.key(stage.others[1]), genesis(4, name="another"), 1)
    assert refused(stage.receive(EvidenceMessage(forged))) == ["InvalidEvidence"]
    assert refused(stage.receive(EvidenceMessage(double_vote(culprit, stage.genesis, 1)))) == []
    assert refused(stage.receive(EvidenceMessage(double_post(culprit, stage.genesis, 1)))) == ["AlreadyKnown"]
    assert len(stage.node._parts.crimes.open) == 1


def test_evidence_against_a_stranger_is_no_evidence() -> None:
    """Anybody can make it up; a peer that passes it on knows the members as well as we do."""
    stage = Stage(genesis(4))
    stranger = double_vote(keys(5)[4], stage.genesis, 1)
    assert refused(stage.receive(EvidenceMessage(stranger))) == ["InvalidEvidence"]
    assert stage.node._parts.crimes.open == {}


def test_nobody_accuses_itself() -> None:
    """Another node has our key: that is for our operator to end."""
    stage = Stage(genesis(4))
    for number in (1, 2):
        stage.receive(VoteMessage(stage.a_vote(stage.me, sha256(bytes([number])), PREVOTE)))
    assert _evidence(stage.victim.effects) == []
    assert stage.node._parts.crimes.open == {}


# --- proven


def _mined(stage: Stage) -> CandidateMessage:
    """Let the victim mine a block over everybody's posts."""
    (message,) = published(stage.mine(stage.post(*_posts_of_others(stage))), CandidateMessage)
    return message


def _posts_of_others(stage: Stage) -> list[Post]:
    posts = stage.chain.posts(stage.node.head.block_hash)
    return [item for item in posts if item.sender != stage.me]


def test_the_next_block_proves_the_crime_and_its_member_is_out() -> None:
    stage = Stage(genesis(4))
    culprit = stage.chain.key(stage.others[0])
    stage.receive(EvidenceMessage(double_vote(culprit, stage.genesis, 1)))
    block = _mined(stage).block
    assert [item.culprit for item in block.evidence] == [culprit.public_key]
    for kind in (PREVOTE, PRECOMMIT):
        stage.vote(block, stage.others[:2], kind)
    head = stage.node.head
    assert head.block_hash == block.hash
    assert (stage.node.votes_required(), stage.node.posts_required(), len(head.roster.electors)) == (2, 2, 3)
    assert stage.node._parts.crimes.open == {}
    assert [type(notice) for notice in stage.victim.notices] == [Convicted]

    vote = stage.a_vote(culprit.public_key, NIL, PREVOTE)
    assert refused(stage.receive(VoteMessage(vote))) == ["InvalidSignature"]
    late = post(culprit, stage.genesis, 2, payload(1))
    effects = stage.receive(PostMessage(late, payload(1)))
    assert (refused(effects), blamed(effects)) == (["OutOfWindow"], [])
    stage.adopt(block)
    bad = stage.chain.extend(posts=(), certificate=stage.node.certificate, miner=culprit)
    assert refused(stage.receive(CandidateMessage(bad))) == ["InvalidSignature"]
    assert refused(stage.receive(EvidenceMessage(double_post(culprit, stage.genesis, 2)))) == ["AlreadyKnown"]


def test_a_member_that_is_away_is_convicted_before_it_comes_back() -> None:
    """Its two votes are for the last height that it decides; nobody looked at them once it was away."""
    stage = Stage(living_genesis(6))
    stage.accept()
    stage.final(stage.block(changes=[own(stage.chain, 3, ChangeKind.AWAY)]))
    culprit = stage.genesis.members[3]
    settled = stage.accept()[0]
    assert stage.node.head.records[3].standing is Standing.AWAY
    crime = double_vote(stage.chain.key(culprit), stage.genesis, settled.header.height, attempt=2)
    stage.receive(EvidenceMessage(crime))
    stage.accept()
    assert stage.node._parts.crimes.for_block() == (crime,)
    stage.final(stage.block(evidence=[crime]))
    assert stage.node.head.roster.culprits == {culprit}
    stage.receive(EvidenceMessage(crime))
    assert stage.node._parts.crimes.for_block() == ()


def test_nobody_is_accused_that_is_gone_for_good() -> None:
    stage = Stage(living_genesis(6))
    stage.accept()
    stage.final(stage.block(changes=[own(stage.chain, 3)]))
    stage.accept(2)
    culprit = stage.genesis.members[3]
    assert culprit in stage.node.head.roster.gone
    stage.receive(EvidenceMessage(double_vote(stage.chain.key(culprit), stage.genesis, 2)))
    stage.accept()
    assert stage.node._parts.crimes.for_block() == ()


def test_a_post_that_came_early_of_a_member_that_is_out_is_dropped() -> None:
    stage = Stage(genesis(4))
    culprit = stage.chain.key(stage.others[0])
    stage.receive(PostMessage(post(culprit, stage.genesis, 2, payload(1)), payload(1)))
    block = stage.block(evidence=[double_vote(culprit, stage.genesis, 1)])
    stage.candidate(block)
    stage.final(block)
    assert stage.node._context.mempool.get((2, 0), culprit.public_key) is None
    assert culprit.public_key not in stage.node.waiting_for()


def test_a_block_proves_few_crimes_and_the_next_one_the_others() -> None:
    stage = Stage(genesis(31))
    culprits = [stage.chain.key(member) for member in stage.others[:10]]
    for culprit in culprits:
        stage.receive(EvidenceMessage(double_vote(culprit, stage.genesis, 1)))
    block = _mined(stage).block
    assert len(block.evidence) == EVIDENCE_MAX
    assert [item.hash for item in block.evidence] == sorted(item.hash for item in block.evidence)
    stage.adopt(block)
    stage.final(block)
    assert len(stage.node._parts.crimes.open) == 2


def test_of_the_crimes_of_a_member_by_two_keys_a_block_proves_one() -> None:
    """Two convictions of one member make a block invalid: with them a liar would keep everybody from mining."""
    stage = Stage(living_genesis(6))
    stage.accept()
    had, following = stage.chain.key(stage.genesis.members[3]), keys(10)[9]
    stage.final(stage.block(changes=[sign_rekey(had, following, stage.genesis.chain_id, sequence=0, until=UNTIL)]))
    for key in (had, following):
        stage.receive(EvidenceMessage(double_vote(key, stage.genesis, 1)))
    assert len(stage.node._parts.crimes.open) == 2
    assert len(stage.node._parts.crimes.for_block()) == 1


def test_a_crime_that_was_proven_while_we_were_away_is_forgotten() -> None:
    """A node that joins at the head skips the block that proved it, and would put it into invalid blocks for ever."""
    stage = Stage(genesis(5))
    culprit = stage.chain.key(stage.others[0])
    evidence = double_vote(culprit, stage.genesis, 1)
    stage.receive(EvidenceMessage(evidence))
    stage.chain.extend(posts=_without(stage), evidence=[evidence], miner=stage.chain.key(stage.others[1]))
    for _ in range(12):
        stage.chain.extend(
            posts=_without(stage),
            certificate=stage.certificate(stage.chain.blocks[stage.chain.tip]),
            miner=stage.chain.key(stage.others[1]),
        )
    block = stage.chain.blocks[stage.chain.tip]
    stage.receive(stage.status(height=13, head_hash=block.hash), stage.others[1])
    stage.receive(FinalMessage(block, stage.certificate(block)), stage.others[1])
    before = stage.chain.states[block.header.parent_hash]
    stage.receive(Chunk(before.root, 0, before.encode()), stage.others[1])
    assert stage.node.head.height == 13
    assert stage.node._parts.crimes.open == {}


def _without(stage: Stage) -> tuple[Post, ...]:
    """Posts of all but the victim and the culprit."""
    return stage.chain.posts(members=stage.others[1:])
