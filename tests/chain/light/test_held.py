"""A chain that is held has the light block of every height, from one kept for each change of the set."""

from dataclasses import replace
from itertools import pairwise

import pytest

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate, certify
from fedchain.chain.exceptions import InvalidBlock, InvalidCertificate, UnknownParent
from fedchain.chain.light.bisection import MARKS_UNIT, PIVOTS_MAX, PIVOTS_SIZE_MAX, Bisection
from fedchain.chain.light.held import held_light_block, light_block_between, prove_held
from fedchain.chain.light.light_block import LightBlock
from fedchain.chain.light.verification import trust_genesis, verify_skipping
from fedchain.chain.membership.turnout import Turnout
from fedchain.chain.storage.store import MemoryStore
from fedchain.crypto.keys import is_valid_signature
from tests.support.chain.light import Server, renewed_chain

CHAIN = renewed_chain(6, count=8, churn=2)
HEIGHT = CHAIN.state.height
GENESIS = CHAIN.genesis
SERVER = Server(CHAIN)
LIGHTS = {height: SERVER.light_block(height, with_proof=True) for height in range(1, HEIGHT + 1)}
NEW = [height for height, (one, other) in enumerate(pairwise(LIGHTS.values()), 2) if one.members != other.members]


def _final(height: int) -> tuple[Block, Certificate] | None:
    if height not in LIGHTS:
        return None
    block = CHAIN.blocks[LIGHTS[height].header.hash]
    return block, LIGHTS[height].certificate


def _kept(*heights: int) -> MemoryStore:
    store = MemoryStore()
    store.append([LIGHTS[height] for height in heights])
    return store


def test_one_light_block_for_each_new_set_is_enough_for_all_heights() -> None:
    assert len(NEW) >= 5
    kept = _kept(*NEW)
    assert [held_light_block(GENESIS, height, _final, kept) for height in LIGHTS] == list(LIGHTS.values())


def test_a_block_that_is_kept_without_its_proof_gets_it_from_the_block_below() -> None:
    kept = MemoryStore()
    kept.append([LIGHTS[height].alone() for height in NEW])
    assert [held_light_block(GENESIS, height, _final, kept) for height in LIGHTS] == list(LIGHTS.values())


@pytest.mark.parametrize("lost", NEW)
def test_where_the_set_is_lost_nothing_is_said_and_no_other_set_in_its_place(lost: int) -> None:
    kept = _kept(*(height for height in NEW if height != lost))
    above = next((height for height in NEW if height > lost), HEIGHT + 1)
    missing = [height for height in LIGHTS if held_light_block(GENESIS, height, _final, kept) is None]
    assert missing == list(range(lost, above))


def test_without_the_blocks_the_nearest_kept_one_in_the_gap_stands_in_the_lower_first() -> None:
    kept = _kept(3, 6)

    def found(height: int, low: int, high: int) -> int | None:
        block = light_block_between(GENESIS, height, (low, high), lambda _: None, kept)
        return None if block is None else block.header.height

    assert [found(3, 0, 9), found(4, 0, 9), found(4, 3, 9), found(4, 3, 6), found(2, 0, 6), found(2, 0, 3)] == [
        *(3, 3, 6, None),
        *(3, None),
    ]
    assert found(5, 5, 9) is None
    assert found(9, 2, 9) is None


def test_a_chain_that_is_held_is_verified_from_the_founding_document_on() -> None:
    def look(height: int, gap: tuple[int, int]) -> LightBlock | None:
        return light_block_between(GENESIS, height, gap, _final, _kept(*NEW))

    way = prove_held(GENESIS, HEIGHT, look, is_valid_signature)
    assert way.trusted.block_hash == CHAIN.tip
    assert len(way.path) < HEIGHT
    with pytest.raises(UnknownParent, match=r"^light path: no light block between heights 0 and"):
        prove_held(GENESIS, HEIGHT, lambda height, _: LIGHTS[height] if height == HEIGHT else None, is_valid_signature)


# --- bounds of a bisection


def test_blocks_that_wait_are_bounded_in_number_and_in_size(monkeypatch: pytest.MonkeyPatch) -> None:
    far = [LIGHTS[height] for height in range(HEIGHT, 4, -1)]
    way = Bisection(GENESIS, trust_genesis(GENESIS), HEIGHT, is_valid_signature)
    monkeypatch.setattr("fedchain.chain.light.bisection.PIVOTS_MAX", 1)
    way.take(far[0])
    assert way.gap == (0, HEIGHT)
    with pytest.raises(InvalidBlock, match=r"^light path: 2 blocks wait, at most 1 expected"):
        way.take(far[1])
    monkeypatch.undo()
    monkeypatch.setattr("fedchain.chain.light.bisection.PIVOTS_SIZE_MAX", 20)
    way = Bisection(GENESIS, trust_genesis(GENESIS), HEIGHT, is_valid_signature)
    way.take(far[0])
    with pytest.raises(InvalidBlock, match=r"^light path: \d+ members and votes wait, at most 20 expected"):
        way.take(far[1])
    assert (PIVOTS_MAX, PIVOTS_SIZE_MAX) == (64, 2**17)


def test_marks_count_with_the_votes_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A liar's votes are mostly marks, and nobody has judged them yet."""
    far = LIGHTS[HEIGHT]
    size = len(far.certificate.votes) + len(far.members.members if far.members is not None else ())
    monkeypatch.setattr("fedchain.chain.light.bisection.PIVOTS_SIZE_MAX", size)
    Bisection(GENESIS, trust_genesis(GENESIS), HEIGHT, is_valid_signature).take(far)
    marked = Turnout(0, 0, bytes([1]) * MARKS_UNIT, b"")
    votes = (replace(far.certificate.votes[0], turnout=marked), *far.certificate.votes[1:])
    swollen = replace(far, certificate=replace(far.certificate, votes=votes))
    with pytest.raises(InvalidBlock, match=rf"^light path: {size + 1} members and votes wait, at most {size} expected"):
        Bisection(GENESIS, trust_genesis(GENESIS), HEIGHT, is_valid_signature).take(swollen)


def test_a_block_outside_the_gap_leads_nowhere() -> None:
    way = Bisection(GENESIS, trust_genesis(GENESIS), HEIGHT - 1, is_valid_signature)
    with pytest.raises(InvalidBlock, match=rf"^height: {HEIGHT} found, 1 to {HEIGHT - 1} expected"):
        way.take(LIGHTS[HEIGHT])
    way.take(LIGHTS[HEIGHT - 1])
    assert not way.is_done
    with pytest.raises(InvalidBlock, match=rf"^height: {HEIGHT - 1} found, 1 to {HEIGHT - 2} expected"):
        way.take(LIGHTS[HEIGHT - 1])


def test_as_many_known_members_as_may_lie_have_no_strangers_signatures_verified_either() -> None:
    """Those that do lie sign what their leader says: one more has to."""
    checked, far = list[bytes](), LIGHTS[4]
    *liars, _ = (vote for vote in far.certificate.votes if vote.voter in GENESIS.members)
    assert len(liars) == GENESIS.fault_model.faulty(len(GENESIS.members))
    named = max(set(GENESIS.members) - {vote.voter for vote in far.certificate.votes})
    strangers = [vote for vote in far.certificate.votes if vote.voter not in GENESIS.members]
    votes = [*strangers, *liars, replace(liars[0], voter=named)]

    def check(key: bytes, signature: bytes, message: bytes) -> bool:
        checked.append(key)
        return is_valid_signature(key, signature, message)

    with pytest.raises(InvalidCertificate, match=r"^certificate's vote: signature: "):
        verify_skipping(GENESIS, trust_genesis(GENESIS), replace(far, certificate=certify(votes)), check)
    assert set(checked) <= set(GENESIS.members)


@pytest.mark.parametrize("place", range(6))
def test_every_vote_is_verified_though_those_of_trusted_members_come_first(place: int) -> None:
    far = LIGHTS[4]
    votes = [*far.certificate.votes]
    assert len(votes) == 6
    assert sum(vote.voter in GENESIS.members for vote in votes) == 3, "just enough of eight"
    verify_skipping(GENESIS, trust_genesis(GENESIS), far, is_valid_signature)
    votes[place] = replace(votes[place], signature=votes[place - 1].signature)
    forged = replace(far, certificate=certify(votes))
    with pytest.raises(InvalidCertificate, match=r"^certificate's vote: signature: "):
        verify_skipping(GENESIS, trust_genesis(GENESIS), forged, is_valid_signature)


def test_strangers_that_sign_by_the_thousand_cost_no_verification() -> None:
    """None of the founders signed the head: that is seen without a look at a signature."""
    checked = list[bytes]()

    def check(key: bytes, signature: bytes, message: bytes) -> bool:
        checked.append(key)
        return is_valid_signature(key, signature, message)

    way = Bisection(GENESIS, trust_genesis(GENESIS), HEIGHT, check)
    way.take(LIGHTS[HEIGHT])
    assert not way.is_done
    assert checked == []


def test_names_of_known_members_have_no_strangers_signatures_verified() -> None:
    """A liar can name them all beside its own keys, which come first in a certificate if it likes."""
    checked, far = list[bytes](), LIGHTS[HEIGHT]
    assert far.members is not None
    founders = sorted(GENESIS.members)

    def check(key: bytes, signature: bytes, message: bytes) -> bool:
        checked.append(key)
        return is_valid_signature(key, signature, message)

    forged = [replace(far.certificate.votes[0], voter=member) for member in founders]
    named = replace(far, certificate=certify([*far.certificate.votes, *forged]))
    with pytest.raises(InvalidCertificate, match=r"^certificate's vote: signature: "):
        Bisection(GENESIS, trust_genesis(GENESIS), HEIGHT, check).take(named)
    assert checked == founders[:1]
