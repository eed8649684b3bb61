"""A final block whose state is not here: each rule that can be asked of it breaks alone, and what is real passes."""

from dataclasses import replace

import pytest

from fedchain.chain.block import Block, sign_block
from fedchain.chain.certificate import Certificate
from fedchain.chain.evidence import EVIDENCE_MAX
from fedchain.chain.exceptions import InvalidBlock, InvalidCertificate, InvalidSignature
from fedchain.chain.genesis import FaultModel
from fedchain.chain.light.far_final import (
    may_be_drawn_by_liars,
    signatures_required,
    validate_extent,
    validate_far_final,
)
from fedchain.chain.membership.change import CHANGES_MAX, Approval, ChangeKind, sign_change
from fedchain.chain.state import genesis_state, votes_required
from fedchain.chain.vote import VoteKind, sign_vote
from fedchain.crypto.keys import is_valid_signature
from tests.support.chain.builders import ChainBuilder, double_vote, genesis, keys

BUILDER = ChainBuilder(genesis(7))
BELOW, BLOCK = BUILDER.extend_many(2)
FINAL = BUILDER.certificate(BLOCK)
CRIME = double_vote(keys(1)[0], BUILDER.genesis, 1)
CHANGE = sign_change(keys(1)[0], BUILDER.genesis.chain_id, ChangeKind.LEAVE, sequence=0, until=9)
APPROVAL = Approval(keys(2)[1].public_key, bytes(64))
REQUIRED = 3
"""Members of seven, one more than the two that may lie."""


def judge(block: Block = BLOCK, certificate: Certificate = FINAL, builder: ChainBuilder = BUILDER) -> None:
    validate_far_final(builder.genesis, builder.state.roster, block, certificate, is_valid_signature)


def test_what_is_final_passes_also_on_the_word_of_more_than_may_lie() -> None:
    judge()
    judge(certificate=replace(FINAL, votes=FINAL.votes[:REQUIRED]))


def test_fewer_members_than_may_lie_and_one_bind_nothing() -> None:
    with pytest.raises(InvalidCertificate, match=f"{REQUIRED - 1} votes found, {REQUIRED} of 7"):
        judge(certificate=replace(FINAL, votes=FINAL.votes[: REQUIRED - 1]))


@pytest.mark.parametrize(
    "certificate",
    [
        BUILDER.certificate(BLOCK, kind=VoteKind.PREVOTE),
        BUILDER.certificate(BELOW),
        replace(FINAL, votes=(FINAL.votes[0],) * 5),
        replace(FINAL, votes=FINAL.votes[::-1]),
        replace(FINAL, height=FINAL.height + 1),
        replace(FINAL, votes=(replace(FINAL.votes[0], signature=bytes(64)), *FINAL.votes[1:])),
        replace(FINAL, votes=(*FINAL.votes[:-1], replace(FINAL.votes[-1], attempt=1))),
    ],
)
def test_votes_for_something_else_bind_nothing(certificate: Certificate) -> None:
    with pytest.raises(InvalidCertificate):
        judge(certificate=certificate)


def test_votes_of_others_than_members_bind_nothing() -> None:
    chain_id, said = BUILDER.genesis.chain_id, FINAL.votes[0]
    votes = [
        sign_vote(key, chain_id, said.slot, BLOCK.hash, clock_ms=said.clock_ms, mining_ms=1) for key in keys(12)[7:]
    ]
    with pytest.raises(InvalidCertificate):
        judge(certificate=replace(FINAL, votes=tuple(sorted(votes, key=lambda vote: vote.voter))))


def test_a_body_or_signature_of_somebody_else_is_the_fault_of_who_sent_it() -> None:
    for block in (
        replace(BLOCK, transactions=BLOCK.transactions[1:]),
        replace(BLOCK, certificate=BUILDER.certificate(BELOW, attempt=1)),
        replace(BLOCK, evidence=(CRIME,)),
        replace(BLOCK, signature=bytes(64)),
    ):
        with pytest.raises(InvalidSignature):
            judge(block)


def test_a_block_of_who_is_no_member_is_none() -> None:
    stranger = keys(12)[11]
    header = replace(BLOCK.header, miner=stranger.public_key)
    block = sign_block(
        stranger, BUILDER.genesis.chain_id, header, BLOCK.transactions, BLOCK.certificate, BLOCK.evidence
    )
    with pytest.raises(InvalidSignature, match="no member"):
        judge(block, replace(FINAL, block_hash=block.hash))


def test_work_was_spent_on_it() -> None:
    key = keys(1)[0]
    # no target at all, one that takes 2³² hashes, and one that every hash meets
    for bits in (0x0100_0000, 0x1D00_FFFF, 0x2300_FFFF):
        header = replace(BLOCK.header, bits=bits, miner=key.public_key)
        block = sign_block(key, BUILDER.genesis.chain_id, header, BLOCK.transactions, BLOCK.certificate, BLOCK.evidence)
        with pytest.raises(InvalidBlock, match="proof of work"):
            judge(block, replace(FINAL, block_hash=block.hash))


@pytest.mark.parametrize(
    ("swollen", "votes", "message"),
    [
        (replace(BLOCK, transactions=BLOCK.transactions * 2), 7, "posts: 14 found, 7 members make at most 7"),
        (replace(BLOCK, certificate=replace(FINAL, votes=FINAL.votes[:1] * 8)), 7, "votes: 15 found, .* at most 14"),
        (replace(BLOCK, certificate=None), 15, "votes: 15 found, .* at most 14"),
        (replace(BLOCK, evidence=(CRIME,) * (EVIDENCE_MAX + 1)), 7, "evidence: 9 found, .* at most 8"),
        (replace(BLOCK, changes=(CHANGE,) * (CHANGES_MAX + 1)), 7, "changes: 17 found, .* at most 16"),
        (replace(BLOCK, changes=(replace(CHANGE, approvals=(APPROVAL,) * 8),)), 7, "approvals: 8 found, .* at most 7"),
    ],
)
def test_no_more_is_looked_at_than_members_can_make(swollen: Block, votes: int, message: str) -> None:
    with pytest.raises(InvalidBlock, match=message):
        judge(swollen, replace(FINAL, votes=FINAL.votes[:1] * votes))


@pytest.mark.parametrize("votes", [7, 14])
def test_as_much_as_members_can_make_is_looked_at(votes: int) -> None:
    most = replace(BLOCK, evidence=(CRIME,) * EVIDENCE_MAX, certificate=None if votes == 14 else BLOCK.certificate)
    validate_extent(BUILDER.genesis, BUILDER.state.roster, most, replace(FINAL, votes=FINAL.votes[:1] * votes))


@pytest.mark.parametrize("fault_model", list(FaultModel))
@pytest.mark.parametrize("committee", [0, 1, 3, 4, 7])
@pytest.mark.parametrize("members", [1, 2, 3, 4, 5, 7, 10, 20])
def test_whatever_is_final_passes_as_long_as_no_more_are_convicted_than_may_lie(
    members: int, committee: int, fault_model: FaultModel
) -> None:
    founded = genesis(members, committee_size=min(committee, members), fault_model=fault_model)
    faulty = fault_model.faulty(members)
    roster = genesis_state(founded).roster
    required = signatures_required(founded, roster)
    for convicted in range(faulty + 1):
        electors = min(founded.committee_size or members, members - convicted)
        assert required <= fault_model.quorum(electors)
    assert required == faulty + 1 or may_be_drawn_by_liars(founded, roster)
    if not founded.committee_size:
        assert not may_be_drawn_by_liars(founded, roster), "an honest one is in every quorum"
    assert votes_required(founded, frozenset(founded.members)) >= required
