"""A light client follows members that change: each height is decided by the set that the header below it names."""

from dataclasses import replace
from functools import cache

import pytest

from fedchain.chain import roster
from fedchain.chain.certificate import certify
from fedchain.chain.exceptions import Invalid, InvalidBlock, InvalidCertificate, OutOfWindow, UnknownParent
from fedchain.chain.genesis import FaultModel
from fedchain.chain.light.bisection import ConflictingBlocks, bisect, compare
from fedchain.chain.light.light_block import LightBlock
from fedchain.chain.light.verification import (
    TRUST_PERIOD_MS,
    Trusted,
    trust_block,
    trust_genesis,
    validate_period,
    verify_adjacent,
    verify_skipping,
)
from fedchain.chain.membership.amendment import amendment_of
from fedchain.chain.membership.change import propose_amendment, sign_rekey
from fedchain.chain.membership.member_set import MemberSet
from fedchain.chain.state import genesis_state
from fedchain.chain.transition import judge_final
from fedchain.chain.vote import VoteKind, sign_vote
from fedchain.crypto.keys import is_valid_signature
from tests.support.chain.builders import ChainBuilder, double_vote, keys
from tests.support.chain.changes import UNTIL, approved, joining, living, own
from tests.support.chain.light import Server, light, renewed_chain

FAULTY = FaultModel.BYZANTINE.faulty


def moved(count: int = 8, height: int = 5, **fields: object) -> ChainBuilder:
    """A chain whose first block counts that one key joins and member 0 leaves: both hold from height 3 on."""
    chain = living(count, **fields)
    chain.extend(changes=[joining(chain, count), own(chain, 0)])
    chain.extend_many(height - 1)
    return chain


CHAIN = moved()
BEGIN = trust_genesis(CHAIN.genesis)
SERVER = Server(CHAIN)
SET = CHAIN.state.member_set


def at(height: int) -> LightBlock:
    return SERVER.light_block(height, with_proof=True)


def walked(chain: ChainBuilder, height: int) -> Trusted:
    """Trust in a height that was reached one by one."""
    trusted = trust_genesis(chain.genesis)
    for number in range(1, height + 1):
        block = Server(chain).light_block(number, with_proof=False)
        trusted = verify_adjacent(chain.genesis, trusted, block, is_valid_signature)
    return trusted


def test_the_set_of_each_height_is_the_one_that_replay_has() -> None:
    for height, block_hash in enumerate(_hashes(CHAIN), 1):
        trusted = verify_skipping(CHAIN.genesis, BEGIN, at(height), is_valid_signature)
        assert trusted == walked(CHAIN, height)
        before = CHAIN.states[CHAIN.blocks[block_hash].header.parent_hash]
        assert (trusted.members, trusted.deciders) == (before.member_set.members, before.roster.electors)
    assert set(trusted.members) == {key.public_key for key in keys(9)[1:]}


@pytest.mark.parametrize(("size", "drawn"), [(7, 7), (0, 8)])
def test_committees_of_an_amended_size_are_followed_and_skipped_to(size: int, drawn: int) -> None:
    """Where nobody is drawn any more, headers say that, too: the document says otherwise."""
    chain = living(8, committee_size=6)
    values = approved(chain, propose_amendment(amendment_of({"committee_size": size}), "", sequence=0, until=UNTIL))
    chain.extend(changes=[values])
    chain.extend_many(4)
    assert [len(chain.states[block].deciders) for block in _hashes(chain)] == [6, 6, drawn, drawn, drawn]
    reached = walked(chain, 5)
    assert reached == verify_skipping(
        chain.genesis, trust_genesis(chain.genesis), Server(chain).light_block(5, with_proof=True), is_valid_signature
    )
    block = Server(chain).light_block(5, with_proof=False)
    assert block.members is not None
    forged = replace(block, members=replace(block.members, committee_size=4))
    with pytest.raises(InvalidBlock, match="member set: "):
        verify_adjacent(chain.genesis, walked(chain, 4), forged, is_valid_signature)
    assert LightBlock.decode(block.encode(), 2**20) == block


def test_a_trusted_block_may_be_one_of_another_set_than_the_founders() -> None:
    below = at(3).certificate
    begin = trust_block(CHAIN.genesis, at(4).header.hash, at(4), below, is_valid_signature)
    assert begin == replace(walked(CHAIN, 4), time_ms=below.clock_ms)
    assert verify_skipping(CHAIN.genesis, begin, at(5), is_valid_signature).block_hash == CHAIN.tip


def test_convicted_members_are_in_no_set() -> None:
    chain = living(7)
    chain.extend(evidence=[double_vote(keys(7)[6], chain.genesis, 1)])
    chain.extend_many(2)
    for verify in (verify_skipping, verify_adjacent):
        begin = BEGIN = trust_genesis(chain.genesis) if verify is verify_skipping else walked(chain, 2)
        trusted = verify(chain.genesis, begin, light(chain, chain.tip), is_valid_signature)
        assert keys(7)[6].public_key not in trusted.members
        assert len(BEGIN.members) >= len(trusted.members) == 6


@pytest.mark.parametrize("committee", [0, 3])
def test_another_key_of_a_member_is_in_the_set_of_the_next_height(committee: int) -> None:
    chain, (old, new) = living(8, committee_size=committee), keys(12)[2:12:8]
    chain.extend_many(2)
    chain.extend(changes=[sign_rekey(old, new, chain.genesis.chain_id, sequence=0, until=9)])
    chain.extend_many(2)
    assert old.public_key in walked(chain, 3).members
    trusted = walked(chain, 4)
    assert trusted.members.index(new.public_key) == 2
    assert trusted.deciders == chain.states[_hashes(chain)[2]].roster.electors
    assert bisect(chain.genesis, trust_genesis(chain.genesis), Server(chain), 4, is_valid_signature).trusted == trusted


@pytest.mark.parametrize("committee", [1, 3, 5])
def test_committees_are_drawn_from_the_set_by_their_height(committee: int) -> None:
    chain = moved(8, 6, committee_size=committee)
    found = bisect(chain.genesis, trust_genesis(chain.genesis), Server(chain), 6, is_valid_signature)
    assert found.trusted == walked(chain, 6)
    assert found.trusted.deciders == chain.states[chain.blocks[chain.tip].header.parent_hash].roster.electors
    # A quorum of three may all be liars, of two in eight: such heights are walked one by one.
    assert (found.certificates == 6) is (committee <= 3)


# --- lies


@pytest.mark.parametrize("committee", [0, 7])
def test_a_set_that_somebody_claims_is_not_remembered(committee: int) -> None:
    """Otherwise a stranger that invents large ones could fill the memory."""
    block = at(5)
    assert block.below is not None
    invented = MemberSet(tuple(key.public_key for key in keys(50)), tuple(range(50)), committee)
    below = replace(block.below, members_root=invented.root)
    forged = replace(block, header=replace(block.header, parent_hash=below.hash), below=below, members=invented)
    held = [kept.cache_info().misses for kept in (roster._draw, roster.member_set)]
    with pytest.raises((Invalid, UnknownParent)):
        verify_skipping(CHAIN.genesis, BEGIN, forged, is_valid_signature)
    assert [kept.cache_info().misses for kept in (roster._draw, roster.member_set)] == held


def test_a_forged_set_is_refused() -> None:
    other, moved_places = (*SET.members[:-1], keys(20)[19].public_key), (0, *SET.places[1:])
    for set_ in (replace(SET, members=other), replace(SET, places=moved_places), None):
        found = "none" if set_ is None else set_.root.hex()
        with pytest.raises(InvalidBlock, match=f"^member set: {found} found with height 5, {SET.root.hex()} expected"):
            verify_skipping(CHAIN.genesis, BEGIN, replace(at(5), members=set_), is_valid_signature)


def test_yesterdays_set_is_refused_at_the_next_height() -> None:
    trusted, founders = walked(CHAIN, 2), genesis_state(CHAIN.genesis).member_set
    lie = replace(at(3), members=founders, below=None)
    with pytest.raises(InvalidBlock, match=f"^member set: {founders.root.hex()} found with height 3"):
        verify_adjacent(CHAIN.genesis, trusted, lie, is_valid_signature)


def test_a_change_is_not_skipped_by_the_header_of_an_earlier_set() -> None:
    founders, below = genesis_state(CHAIN.genesis).member_set, at(1).header
    lie = replace(at(5), members=founders, below=below)
    with pytest.raises(InvalidBlock, match=f"^header below: {below.hash.hex()} found"):
        verify_skipping(CHAIN.genesis, BEGIN, lie, is_valid_signature)
    with pytest.raises(OutOfWindow, match="height: 5 found, 2 is trusted and 3 next"):
        verify_adjacent(CHAIN.genesis, walked(CHAIN, 2), at(5), is_valid_signature)


def test_a_certificate_by_yesterdays_set_is_refused() -> None:
    slot, tip = (5, 0, VoteKind.PRECOMMIT), at(5)
    votes = (sign_vote(key, CHAIN.genesis.chain_id, slot, CHAIN.tip, clock_ms=1, mining_ms=1) for key in keys(6))
    lie = replace(tip, certificate=certify(votes))
    words = rf"^certificate's vote: electorate: {keys(1)[0].public_key.hex()[:16]}… is not one of the 8 electors"
    for begin, verify in ((BEGIN, verify_skipping), (walked(CHAIN, 4), verify_adjacent)):
        with pytest.raises(InvalidCertificate, match=words):
            verify(CHAIN.genesis, begin, lie, is_valid_signature)


def test_a_block_above_the_first_needs_the_header_below_to_be_skipped_to() -> None:
    with pytest.raises(UnknownParent, match=r"^header below: none came with height 5"):
        verify_skipping(CHAIN.genesis, BEGIN, replace(at(5), below=None), is_valid_signature)
    server = Server(CHAIN, lies={5: replace(at(5), below=None)})
    with pytest.raises(InvalidBlock, match=r"^header below: none found with height 5"):
        bisect(CHAIN.genesis, BEGIN, server, 5, is_valid_signature)
    assert bisect(CHAIN.genesis, BEGIN, SERVER, 1, is_valid_signature).certificates == 1


def test_a_trusted_set_is_trusted_for_a_while() -> None:
    trusted = walked(CHAIN, 3)
    validate_period(trusted, trusted.time_ms + TRUST_PERIOD_MS)
    with pytest.raises(OutOfWindow, match="trust period: the block below height 3 became final"):
        validate_period(trusted, trusted.time_ms + TRUST_PERIOD_MS + 1)


def test_liars_of_the_trusted_set_cannot_invent_another_one() -> None:
    """Two of eight may lie. Keys of their own make them a quorum of any set, but nobody honest signs with them."""
    chain = CHAIN
    for liars in (2, 3):
        league = (*keys(8)[:liars], *keys(30)[20:])
        invented = MemberSet(tuple(key.public_key for key in league), tuple(range(len(league))))
        below = replace(at(4).header, members_root=invented.root)
        header = replace(at(5).header, parent_hash=below.hash)
        slot = (5, 0, VoteKind.PRECOMMIT)
        votes = [sign_vote(key, chain.genesis.chain_id, slot, header.hash, clock_ms=1, mining_ms=1) for key in league]
        lie = LightBlock(chain.genesis.chain_id, header, certify(votes), members=invented, below=below)
        if liars > FAULTY(8):  # more than the federation bears: nothing but a witness finds them out
            verify_skipping(chain.genesis, BEGIN, lie, is_valid_signature)
            with pytest.raises(ConflictingBlocks, match="height 5 has two certified blocks"):
                compare(chain.genesis, BEGIN, lie, SERVER, is_valid_signature)
            continue
        with pytest.raises(UnknownParent, match=r"2 of the 8 members that are trusted signed height 5, 2 may lie"):
            verify_skipping(chain.genesis, BEGIN, lie, is_valid_signature)
        with pytest.raises(InvalidBlock, match=r"^parent: "):
            bisect(chain.genesis, walked(chain, 4), Server(chain, lies={5: lie}), 5, is_valid_signature)


# --- a thousand changes

ROUNDS = 100


@cache
def renewed() -> ChainBuilder:
    """1,000 changes: in 100 rounds a quarter of twenty members goes and as many come."""
    return renewed_chain(ROUNDS)


def test_a_thousand_changes_take_the_certificates_that_theory_gives() -> None:
    chain = renewed()
    height = chain.state.height
    assert sum(len(block.changes) for block in chain.blocks.values()) == 1_000
    found = bisect(chain.genesis, trust_genesis(chain.genesis), Server(chain), height, is_valid_signature)
    # 7 of 14 votes have to be known, so a step bears at least 7 newcomers and at most 13: one round's 5, or two's.
    assert ROUNDS / 2 <= found.certificates <= ROUNDS
    assert found.certificates == steps(chain, 0, height)
    assert found.skipped == height - found.certificates


def test_a_thousand_changes_lead_to_the_set_that_replay_finds() -> None:
    chain = renewed()
    found = bisect(chain.genesis, trust_genesis(chain.genesis), Server(chain), chain.state.height, is_valid_signature)
    state = genesis_state(chain.genesis)
    for block_hash in _hashes(chain):
        before, block = state, chain.blocks[block_hash]
        state = judge_final(chain.genesis, before, block, chain.certificate(block), None, is_valid_signature)
    assert (found.trusted.block_hash, found.trusted.members) == (state.block_hash, before.member_set.members)
    header = found.trusted.header
    assert header is not None
    assert header.members_root == state.member_set.root
    assert not set(state.member_set.members) & set(chain.genesis.members)


def steps(chain: ChainBuilder, low: int, high: int) -> int:
    """Number of certificates between two heights: one, if enough of the lower set signed the higher, or two halves'."""
    hashes = [chain.genesis.chain_id, *_hashes(chain)]
    states = [chain.states[hashes[max(0, height - 1)]] for height in (low, high)]
    known = set(states[0].member_set.members)
    if high == low + 1 or sum(vote.voter in known for vote in chain.certificate(hashes[high]).votes) > FAULTY(20):
        return 1
    middle = (low + high) // 2
    return steps(chain, low, middle) + steps(chain, middle, high)


def _hashes(chain: ChainBuilder) -> list[bytes]:
    """Hashes of the blocks, the first first."""
    found = [chain.tip]
    while (parent := chain.blocks[found[-1]].header.parent_hash) != chain.genesis.chain_id:
        found.append(parent)
    return found[::-1]
