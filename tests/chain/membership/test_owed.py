"""Owed posts: how they are written, when a block may count a late post, and what the state makes of it."""

from dataclasses import replace
from typing import Any

import pytest

from fedchain.chain.block import Block
from fedchain.chain.exceptions import InvalidBlock, InvalidEncoding, MissingPayload, OutOfWindow
from fedchain.chain.genesis import AggregatorRule, Contributor, PhaseRule
from fedchain.chain.knowledge import base_of, missing_contents, recompute
from fedchain.chain.membership.owed import Owed, owed_by
from fedchain.chain.post import Post
from fedchain.chain.state import State, decode_state, expected_contributors
from fedchain.chain.transition import judge_block
from fedchain.chain.validation import validate_window
from fedchain.crypto.hashing import sha256
from fedchain.crypto.keys import is_valid_signature
from tests.support.chain.builders import UPDATE, ChainBuilder, double_vote
from tests.support.chain.changes import own
from tests.support.chain.late import extend_with, late_chain, late_genesis, place, skip, without
from tests.support.chain.states import read_anew

ROOT = sha256(b"knowledge")


def judge(chain: ChainBuilder, block: Block) -> State:
    """The state after a block by every rule, its knowledge recomputed."""
    before = chain.states[block.header.parent_hash]
    data = recompute(chain.genesis, chain.rules, before, block.transactions, chain.contents.get)
    return judge_block(chain.genesis, before, block, sha256(data), is_valid_signature)


def refusal(chain: ChainBuilder, *posts: Post) -> str:
    """Why a block of these posts for the open phase is refused."""
    block = chain.extend(posts=posts)
    with pytest.raises(InvalidBlock) as caught:
        judge_block(chain.genesis, chain.states[block.header.parent_hash], block, None, is_valid_signature)
    chain.tip = block.header.parent_hash
    return str(caught.value)


# --- encoding


def test_owed_posts_survive_being_encoded() -> None:
    owed = owed_by(3, 1, ROOT, [0, 9, 17])
    assert Owed.from_record(owed.to_record()) == owed
    assert (owed.due, len(owed), list(owed.seats)) == (bytes([1, 2, 2]), 3, [0, 9, 17])
    assert [seat for seat in range(40) if seat in owed] == [0, 9, 17]
    assert owed.without([9, 17, 3]).due == b"\x01"
    assert not owed.without([0, 9, 17]).due


@pytest.mark.parametrize("due", [b"", b"\x01\x00"])
def test_a_set_of_seats_has_one_form(due: bytes) -> None:
    with pytest.raises(InvalidEncoding, match="the last byte of the seats is not 0"):
        Owed.from_record([3, 0, ROOT, due])


def test_a_state_with_owed_posts_survives_being_encoded() -> None:
    chain = late_chain()
    skip(chain, 1, 4)
    state = chain.state
    assert [(item.round, item.phase, list(item.seats)) for item in state.owed] == [(2, 0, [1, 4])]
    assert read_anew(chain.genesis, state) == state


@pytest.mark.parametrize(
    ("owed", "message"),
    [
        ([owed_by(3, 0, ROOT, [1]), owed_by(2, 0, ROOT, [1])], "owed posts of 2 phases are not in their order"),
        ([owed_by(2, 0, ROOT, [1]), owed_by(2, 0, ROOT, [1])], "owed posts of 2 phases are not in their order"),
        ([owed_by(1, 0, ROOT, [1])], "posts owed to phase 0 of round 1 by 5 members fit no state"),
        ([owed_by(4, 0, ROOT, [1])], "posts owed to phase 0 of round 4 by 5 members fit no state"),
        ([owed_by(3, 1, ROOT, [1])], "posts owed to phase 1 of round 3 by 5 members fit no state"),
        ([owed_by(3, 0, ROOT, [5])], "posts owed to phase 0 of round 3 by 5 members fit no state"),
        ([owed_by(3, 0, ROOT, [8])], "posts owed to phase 0 of round 3 by 5 members fit no state"),
    ],
)
def test_other_owed_posts_fit_no_state(owed: list[Owed], message: str) -> None:
    chain = late_chain()
    chain.extend_many(2)
    with pytest.raises(InvalidEncoding, match=message):
        decode_state(chain.genesis, replace(chain.state, owed=tuple(owed)).encode())


def test_no_post_of_the_setup_is_owed() -> None:
    chain = late_chain()
    assert chain.state.round == 2
    with pytest.raises(InvalidEncoding, match="posts owed to phase 0 of round 0 by 5 members fit no state"):
        decode_state(chain.genesis, replace(chain.state, owed=(owed_by(0, 0, ROOT, [1]),)).encode())


# --- who owes what


def test_whoever_is_not_counted_owes_a_post_for_late_rounds_rounds() -> None:
    chain = late_chain(late_rounds=2)
    root = chain.state.knowledge_root
    skip(chain, 3)
    assert chain.state.owed == (owed_by(2, 0, root, [3]),)
    chain.extend()
    assert chain.state.owed == (owed_by(2, 0, root, [3]),), "a block of round 4 may still count it"
    chain.extend()
    assert not chain.state.owed


def test_nothing_is_owed_where_late_posts_do_not_count() -> None:
    chain = late_chain(late_rounds=0)
    skip(chain, 3)
    assert chain.state.owed == ()


def test_nothing_is_owed_to_a_phase_that_began_without_knowledge() -> None:
    chain = ChainBuilder(late_genesis())
    skip(chain, 3)
    assert chain.state.owed == (), "nobody can tell what a post of the first round changed"


def test_nothing_is_owed_to_the_setup_or_to_the_aggregators_phase() -> None:
    setup = (PhaseRule("keys", Contributor.PARTICIPANT), UPDATE)
    phases = (UPDATE, PhaseRule("global", Contributor.AGGREGATOR))
    chain = ChainBuilder(late_genesis(phases=phases, setup=setup, aggregator=AggregatorRule.FIXED))
    for _ in setup:
        skip(chain, 3)
    assert (chain.state.round, chain.state.owed) == (1, ())
    skip(chain, 3)
    assert [(item.round, item.phase) for item in chain.state.owed] == [(1, 0)]
    chain.extend(posts=())
    assert [(item.round, item.phase) for item in chain.state.owed] == [(1, 0)]


def test_owed_posts_of_each_phase_are_kept_apart_and_counted_in_the_same_phase() -> None:
    chain = late_chain(late_rounds=1, phases=(UPDATE, PhaseRule("refine", Contributor.PARTICIPANT)))
    first, second = skip(chain, 3), skip(chain, 3)
    assert [(item.round, item.phase) for item in chain.state.owed] == [(2, 0), (2, 1)]
    assert "post's phase" in refusal(chain, *sorted((*without(chain), *second), key=place))
    judge(chain, extend_with(chain, first))
    assert [(item.round, item.phase) for item in chain.state.owed] == [(2, 1)]
    judge(chain, extend_with(chain, second))
    assert chain.state.owed == ()


def test_a_post_to_another_phase_or_round_pays_no_debt() -> None:
    refine = PhaseRule("refine", Contributor.PARTICIPANT)
    chain = late_chain(phases=(UPDATE, refine))
    (late,) = skip(chain, 3)
    chain.extend()
    assert [(item.round, item.phase) for item in chain.state.owed] == [(2, 0)], "it posted to the second phase alone"
    (first,) = chain.state.owed
    assert chain.state.knowledge_roots == {chain.state.knowledge_root, first.knowledge_root}
    assert chain.state.owed_to(late.key) == first
    assert chain.state.owed_to((2, 1, late.sender)) is None
    block = extend_with(chain, [late], 3)
    assert chain.state.posts == len(block.transactions) == 5
    assert [(item.round, item.phase) for item in chain.state.owed] == [(3, 0)], "its late post is none for this round"
    assert chain.state.countable == 5, "the open phase is another one"


# --- blocks


def test_a_late_post_counts_once_beside_that_of_the_round_and_by_what_it_was_made_from() -> None:
    chain = late_chain()
    (late,) = skip(chain, 3)
    block = extend_with(chain, [late])
    after = judge(chain, block)
    assert after == chain.state
    assert [post.round for post in block.transactions if post.sender == late.sender] == [2, 3]
    assert after.owed == ()
    with pytest.raises(OutOfWindow):
        validate_window(after, late)
    assert "post's phase: (2, 0) found, the block closes (4, 0)" in refusal(
        chain, *sorted((*without(chain, 0), late), key=place)
    )


def test_a_replayed_post_of_a_round_that_counted_it_is_refused() -> None:
    chain = late_chain()
    skip(chain, 3)
    counted = next(post for post in chain.blocks[chain.tip].transactions if post.sender == chain.genesis.members[0])
    assert "post's phase" in refusal(chain, *sorted((*chain.posts(), counted), key=place))


def test_a_late_post_is_refused_after_its_last_round() -> None:
    chain = late_chain(late_rounds=1)
    (late,) = skip(chain, 3)
    validate_window(chain.state, late)
    chain.extend()
    with pytest.raises(OutOfWindow, match="post's round"):
        validate_window(chain.state, late)
    assert "post's phase" in refusal(chain, *sorted((*without(chain, 0), late), key=place))


def test_late_posts_do_not_make_up_for_the_posts_required() -> None:
    chain = late_chain(7)
    late = skip(chain, 5, 6)
    assert "contribution quorum: 4 posts found, at least 5" in refusal(
        chain, *sorted((*without(chain, 0, 1, 2), *late), key=place)
    )
    judge(chain, extend_with(chain, late, 0, 1))


@pytest.mark.parametrize("by_round", [False, True])
def test_posts_stand_in_order_of_sender_and_round(by_round: bool) -> None:
    chain = late_chain()
    (late,) = skip(chain, 3)
    posts = sorted((*chain.posts(), late), key=lambda post: (post.sender, -post.round))
    if by_round:
        posts = sorted(posts, key=lambda post: (post.round, post.sender))
    assert "transaction order" in refusal(chain, *posts)


def test_a_late_post_stands_once_in_a_block() -> None:
    chain = late_chain()
    (late,) = skip(chain, 3)
    assert "posts: 7 found, 6 may post" in refusal(chain, *sorted((*chain.posts(), late, late), key=place))
    assert "transaction order" in refusal(chain, *sorted((*without(chain, 0), late, late), key=place))


def test_a_member_that_does_not_count_now_is_not_counted_late() -> None:
    chain = late_chain()
    (late,) = skip(chain, 3)
    crime = double_vote(chain.key(late.sender), chain.genesis, chain.state.height)
    chain.extend(posts=without(chain, 3), evidence=[crime])
    assert "was convicted" in refusal(chain, *sorted((*chain.posts(), late), key=place))


def test_a_late_post_is_no_punctuality_but_a_sign_of_life() -> None:
    chain = late_chain(late_rounds=3)
    late = skip(chain, 3)
    late += skip(chain, 3)
    assert chain.state.records[3].idle == 2
    extend_with(chain, late, 3)
    assert chain.state.records[3].idle == 0
    assert chain.genesis.members[3] not in expected_contributors(chain.state)


def test_a_place_is_owed_by_its_seat_also_when_members_come_and_go() -> None:
    chain = late_chain(6, late_rounds=3)
    late = skip(chain, 5)
    chain.extend(changes=[own(chain, 1)])
    chain.extend()
    assert not chain.state.roster.is_active(chain.genesis.members[1]) or chain.state.round == 4
    assert chain.state.owed_to(late[0].key) is not None
    judge(chain, extend_with(chain, late))


# --- what a late post is made from


def test_recomputing_needs_what_late_posts_were_made_from() -> None:
    chain = late_chain()
    (late,) = skip(chain, 3)
    state, base = chain.state, chain.state.owed[0].knowledge_root
    posts = sorted((*chain.posts(), late), key=place)
    assert [base_of(state, post) for post in posts].count(base) == 1
    held = {item: data for item, data in chain.contents.items() if item != base}
    assert missing_contents(state, posts, held.get) == [base]
    assert missing_contents(state, chain.posts(), held.get) == []
    with pytest.raises(MissingPayload):
        recompute(chain.genesis, chain.rules, state, posts, held.get)


def test_a_late_post_is_checked_with_its_own_round_and_knowledge() -> None:
    chain, asked = late_chain(), []

    class Asking(type(chain.rules)):  # type: ignore[misc]
        def check(self, occasion: Any, sender: bytes, knowledge: bytes, payload: bytes) -> None:
            asked.append((occasion.round, sha256(knowledge)))

    (late,) = skip(chain, 3)
    posts = sorted((*chain.posts(), late), key=place)
    recompute(chain.genesis, Asking(), chain.state, posts, chain.contents.get)
    assert asked.count((2, chain.state.owed[0].knowledge_root)) == 1
    assert asked.count((3, chain.state.knowledge_root)) == 5


def test_the_state_stays_bounded() -> None:
    chain = late_chain(7, late_rounds=4)
    sizes = []
    for _ in range(30):
        skip(chain, 5, 6)
        sizes.append((len(chain.state.owed), len(chain.state.encode())))
    assert max(count for count, _ in sizes) == 4
    assert sizes[20][1] + 8 >= sizes[-1][1], "numbers grow by a byte, and nothing else"
