"""A header names the members that decide the next height, and a block whose header names others is refused."""

from dataclasses import replace
from typing import Any

import pytest

from fedchain.chain.applying import apply_block
from fedchain.chain.exceptions import InvalidBlock, InvalidEncoding
from fedchain.chain.membership.member_set import MemberSet
from fedchain.chain.state import genesis_state
from fedchain.chain.transition import judge_block, naming_members
from fedchain.crypto.keys import is_valid_signature
from tests.support.chain.builders import ChainBuilder, double_vote, genesis, keys
from tests.support.chain.changes import joining, living, own, silent_for

KEYS = tuple(key.public_key for key in keys(5))
PLACES = tuple(range(5))


def test_a_header_names_those_that_count_behind_its_block() -> None:
    chain = living(5)
    crime = double_vote(keys(5)[4], chain.genesis, 1)
    blocks = [chain.extend(changes=[joining(chain, 5), own(chain, 0)], evidence=[crime]), *chain.extend_many(3)]
    for block in blocks:
        members = chain.states[block.hash].member_set
        assert block.header.members_root == members.root
        judge_block(chain.genesis, chain.states[block.header.parent_hash], block, None, is_valid_signature)
    sets = [chain.states[block.hash].member_set.members for block in blocks]
    assert sets == [KEYS[:4], (*KEYS[1:4], keys(6)[5].public_key), sets[1], sets[1]]


@pytest.mark.parametrize("lie", [bytes(32), genesis_state(living(5).genesis).member_set.root], ids=["none", "old"])
def test_a_block_whose_header_names_others_is_refused(lie: bytes) -> None:
    chain = living(5)
    chain.extend(changes=[own(chain, 0)])
    below = chain.state
    forged = chain.remake(chain.extend(), members_root=lie)
    with pytest.raises(InvalidBlock, match=f"^members root: {lie.hex()} found, {chain.state.member_set.root.hex()}"):
        judge_block(chain.genesis, below, forged, None, is_valid_signature)


def test_a_draft_names_the_same_members_whoever_mines_it_and_others_for_other_contents() -> None:
    chain = living(5)
    chain.extend(changes=[own(chain, 0)])
    state, block = chain.state, chain.extend()
    for key in KEYS:
        draft = replace(block, header=replace(block.header, miner=key, bits=1, nonce=7))
        found = naming_members(chain.genesis, state, draft).members_root
        assert found == apply_block(chain.genesis, state, draft).member_set.root == block.header.members_root
    crime = double_vote(keys(5)[4], chain.genesis, 1)
    other = replace(block, evidence=(crime,))
    assert naming_members(chain.genesis, state, other).members_root != block.header.members_root


@pytest.mark.parametrize("sign_of_life", ["a vote", "a post"])
def test_a_draft_names_those_that_its_own_posts_and_votes_send_away(sign_of_life: str) -> None:
    """Two peers may hold votes of different members for one head, and posts of different ones."""
    chain = living(5, away_after=2)
    silent = keys(3)[2].public_key
    others = [member for member in chain.genesis.members if member != silent]
    silent_for(chain, 2, 1)
    state, roots = chain.state, set[bytes]()
    for signs in ([], [silent]):  # as many each time
        those = [*others[:3], *signs] if signs else others
        voters, posters = (those, others) if sign_of_life == "a vote" else (others, those)
        posts = chain.posts(state.block_hash, members=posters)
        certificate = chain.certificate(state.block_hash, sorted(voters))
        block = chain.extend(state.block_hash, posts=posts, certificate=certificate)
        found = naming_members(chain.genesis, state, block).members_root
        assert found == apply_block(chain.genesis, state, block).member_set.root
        roots.add(found)
    assert len(roots) == 2


def test_headers_before_version_3_name_nobody() -> None:
    chain = ChainBuilder(genesis())
    block = chain.extend()
    state = chain.states[chain.genesis.chain_id]
    assert naming_members(chain.genesis, state, block).members_root == bytes(32)


def test_a_set_has_one_form() -> None:
    members = MemberSet(KEYS, PLACES)
    assert MemberSet.from_record(members.to_record()) == members
    assert MemberSet(KEYS[::-1], PLACES).root != members.root
    assert MemberSet(KEYS, (0, 1, 2, 3, 5)).root != members.root


def test_a_set_names_how_many_of_it_are_drawn_if_that_was_amended() -> None:
    members = MemberSet(KEYS, PLACES, 0)
    assert MemberSet.from_record(members.to_record()) == members
    assert members.to_record() == [[0], *MemberSet(KEYS, PLACES).to_record()]
    assert len({MemberSet(KEYS, PLACES, size).root for size in (None, 0, 3)}) == 3


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ([], "0 keys"),
        ([[0, KEYS[0]], [1, KEYS[0]]], "2 keys of 1"),
        ([[1, KEYS[0]], [0, KEYS[1]]], "2 keys of 2 members found at"),
        ([[1, KEYS[0]], [1, KEYS[1]]], "2 keys of 2 members found at"),
        ([[0, KEYS[0]], [1, 7]], "field 1 is int"),
        ([KEYS[0]], "bytes found"),
        ([[0, b"x"]], "1 bytes found"),
        ([[3]], "0 keys"),
        ([[0, KEYS[0]], [3]], "1 fields"),
        ([[b"x"], [0, KEYS[0]]], "field 0 is bytes"),
    ],
)
def test_what_is_no_set_is_refused(record: list[Any], words: str) -> None:
    with pytest.raises(InvalidEncoding, match=words):
        MemberSet.from_record(record)
