"""Few blocks lead to a height, and two servers that contradict each other are found out."""

from dataclasses import replace

import pytest

from fedchain.chain.exceptions import (
    InvalidBlock,
    InvalidCertificate,
)
from fedchain.chain.light.bisection import ConflictingBlocks, bisect, compare
from fedchain.chain.light.light_block import LightBlock
from fedchain.chain.light.verification import trust_block, trust_genesis
from fedchain.crypto.keys import is_valid_signature
from tests.support.chain.builders import ChainBuilder, keys
from tests.support.chain.light import HEIGHT, Server, chain_of, light

CHAIN = chain_of()
TIP = light(CHAIN, CHAIN.tip)
FIRST = Server(CHAIN).light_block(1, with_proof=True)
BEGIN = trust_genesis(CHAIN.genesis)
VOTES = TIP.certificate.votes


def test_between_two_far_sets_the_middle_is_asked_for_first() -> None:
    others = tuple(key.public_key for key in keys(8)[4:])
    far, server = replace(BEGIN, members=others), Server(CHAIN)
    with pytest.raises(InvalidCertificate, match="is not one of the 4 electors of height 2"):
        bisect(CHAIN.genesis, far, server, HEIGHT, is_valid_signature)
    assert server.asked == [9, 4, 2, 1], "height 1 is decided by known electors, and the others' turn comes after it"


def test_a_provider_that_answers_for_another_height_or_leaves_the_state_out_is_refused() -> None:
    with pytest.raises(InvalidBlock, match=r"^height: 1 found, 9, which was asked for"):
        bisect(CHAIN.genesis, BEGIN, Server(CHAIN, lies={9: FIRST}), 9, is_valid_signature)
    with pytest.raises(InvalidBlock, match=r"^state: none found with height 9"):
        bisect(CHAIN.genesis, BEGIN, Server(CHAIN, lies={9: replace(TIP, state=b"")}), 9, is_valid_signature)


def test_a_path_has_the_proofs_that_lead_others_along_it_and_no_more() -> None:
    skipping = bisect(CHAIN.genesis, BEGIN, Server(CHAIN), HEIGHT, is_valid_signature)
    assert [block.is_alone for block in skipping.path] == [False]
    chain = chain_of(10, 6, committee_size=3)
    walking = bisect(chain.genesis, trust_genesis(chain.genesis), Server(chain), 6, is_valid_signature)
    assert [block.is_alone for block in walking.path] == [True] * 6


# --- two certificates for one height


def conflicting(attempt: int = 0) -> tuple[ChainBuilder, LightBlock]:
    """A second block at the height of the tip, which the same members certified."""
    parent = CHAIN.blocks[CHAIN.tip].header.parent_hash
    other = ChainBuilder(CHAIN.genesis)
    other.blocks, other.states, other.contents = dict(CHAIN.blocks), dict(CHAIN.states), dict(CHAIN.contents)
    block = other.extend(parent, payload_of=70)
    return other, replace(light(other, block.hash), certificate=other.certificate(block, attempt=attempt))


def test_two_certificates_for_one_height_are_evidence() -> None:
    other, twin = conflicting()
    compare(CHAIN.genesis, BEGIN, TIP, Server(CHAIN), is_valid_signature)
    words = r"height 9 has two certified blocks, .*: 3 members signed both"
    with pytest.raises(ConflictingBlocks, match=words) as caught:
        compare(CHAIN.genesis, BEGIN, TIP, Server(other), is_valid_signature)
    found = caught.value
    assert found.blocks == (TIP, twin)
    assert found.signers == tuple(vote.voter for vote in VOTES)
    assert {crime.culprit for crime in found.crimes} == set(found.signers)
    chain = ChainBuilder(CHAIN.genesis)
    chain.extend(evidence=found.crimes[:1])  # the chain takes it as what it is
    assert len(chain.state.convicted) == 1


def test_votes_of_two_attempts_are_named_and_convict_nobody_alone() -> None:
    other, twin = conflicting(attempt=1)
    with pytest.raises(ConflictingBlocks) as caught:
        compare(CHAIN.genesis, BEGIN, TIP, Server(other, lies={9: twin}), is_valid_signature)
    assert len(caught.value.signers) == 3
    assert caught.value.crimes == ()


def test_another_block_in_the_place_of_the_trusted_one_needs_its_proof_too() -> None:
    other, twin = conflicting()
    trusted = trust_block(CHAIN.genesis, CHAIN.tip, TIP, CHAIN.certificate(TIP.header.parent_hash), is_valid_signature)
    compare(CHAIN.genesis, trusted, TIP, Server(CHAIN), is_valid_signature)
    with pytest.raises(ConflictingBlocks):
        compare(CHAIN.genesis, trusted, TIP, Server(other), is_valid_signature)
    forged = replace(twin, certificate=TIP.certificate)
    with pytest.raises(InvalidCertificate):
        compare(CHAIN.genesis, trusted, TIP, Server(other, lies={9: forged}), is_valid_signature)


def test_a_witness_that_cannot_prove_its_block_lies() -> None:
    other, twin = conflicting()
    forged = replace(twin, certificate=replace(twin.certificate, votes=twin.certificate.votes[:2]))
    with pytest.raises(InvalidCertificate, match="quorum"):
        compare(CHAIN.genesis, BEGIN, TIP, Server(other, lies={9: forged}), is_valid_signature)
