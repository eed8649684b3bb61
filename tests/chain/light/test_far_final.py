"""A final block whose state is not here: each rule that can be asked of it breaks alone, and what is real passes."""

from dataclasses import replace

import pytest

from fedchain.chain.block import Block, sign_block
from fedchain.chain.certificate import Certificate
from fedchain.chain.exceptions import InvalidBlock, InvalidCertificate, InvalidSignature
from fedchain.chain.genesis import FaultModel
from fedchain.chain.light.far_final import may_be_drawn_by_liars, signatures_required, validate_far_final
from fedchain.chain.state import genesis_state, votes_required
from fedchain.chain.vote import VoteKind, sign_vote
from fedchain.crypto.keys import is_valid_signature
from tests.support.chain.builders import ChainBuilder, double_vote, genesis, keys

BUILDER = ChainBuilder(genesis(7))
BELOW, BLOCK = BUILDER.extend_many(2)
FINAL = BUILDER.certificate(BLOCK)
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
        replace(BLOCK, evidence=(double_vote(keys(1)[0], BUILDER.genesis, 1),)),
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


def test_no_more_posts_than_members_are_looked_at() -> None:
    with pytest.raises(InvalidBlock, match="14 found, 7 members make at most 7"):
        judge(replace(BLOCK, transactions=BLOCK.transactions * 2))


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
