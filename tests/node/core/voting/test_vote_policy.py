"""Which valid blocks deserve a vote: by what arrived here, and when; never by what a miner writes."""

from typing import Any

import pytest

from fedchain.chain.block import Block
from fedchain.chain.genesis import AggregatorRule
from fedchain.chain.membership.turnout import Turnout, mark_seats
from fedchain.chain.post import Post
from fedchain.chain.vote import Vote
from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import VoteMessage
from fedchain.node.core.deadlines import (
    MINING_TIMES,
    forgiven_after_ms,
    parts_forgiven_after_ms,
)
from fedchain.node.core.effects import Effect, Publish
from fedchain.node.core.voting.vote_policy import rank
from tests.support.chain.builders import GLOBAL, UPDATE, genesis
from tests.support.chain.changes import living_genesis
from tests.support.node.stage import PRECOMMIT, PREVOTE, Stage, votes

TIMEOUT_S, SLACK_S, MINING_S = 60, 2, 4
GATHER_S = 0.25


def _prevotes(effects: list[Effect], block: Block) -> bool:
    """Whether a block was voted for, rather than nothing."""
    return (PREVOTE, 0, block.hash) in votes(effects)


# --- deadlines


def test_what_is_held_against_a_block_is_forgiven_after_other_blocks_could_have_been_mined() -> None:
    founding = genesis(4, phase_timeout_ms=50_000, target_mining_time_ms=3_000)
    assert forgiven_after_ms(founding) == 50_000 + 8 * 3_000
    assert parts_forgiven_after_ms(founding) == 8_000 + 2 * 3_000


# --- waiting for the others


def test_a_block_without_an_expected_post_is_waited_with() -> None:
    stage = Stage(genesis(4))
    block = stage.block(without=stage.others[:1])
    assert votes(stage.candidate(block)) == []
    assert votes(stage.wait(TIMEOUT_S - 1)) == []
    assert _prevotes(stage.wait(1 + 1), block)


def test_a_member_that_missed_a_phase_is_not_waited_for() -> None:
    stage = Stage(genesis(4))
    late = stage.others[0]
    first = stage.block(without=[late])
    stage.candidate(first)
    stage.final(first)
    block = stage.block(without=[late])
    assert _prevotes([*stage.candidate(block), *stage.tick(GATHER_S)], block)


def _after_a_miss(*rounds_on_time: bool) -> tuple[Stage, PublicKey]:
    stage = Stage(genesis(4))
    late = stage.others[0]
    for on_time in (False, *rounds_on_time):
        block = stage.block(without=[] if on_time else [late])
        stage.candidate(block)
        stage.final(block)
    return stage, late


def test_it_is_waited_for_again_after_two_rounds_on_time() -> None:
    for rounds, is_expected in (((True,), False), ((True, True), True), ((True, False, True), False)):
        stage, late = _after_a_miss(*rounds)
        assert (late in stage.node.waiting_for()) == is_expected


def test_its_post_counts_whenever_it_is_in() -> None:
    stage, late = _after_a_miss()
    posts = [post for post in stage.chain.posts(stage.node.head.block_hash) if post.sender == late]
    stage.post(*posts)
    stage.tick(SLACK_S + 1)
    block = stage.block(without=[late])
    assert not _prevotes([*stage.candidate(block), *stage.wait(5)], block)


# --- omission


@pytest.mark.parametrize(("held_s", "deserves"), [(SLACK_S - 1, True), (SLACK_S, True), (SLACK_S + 0.001, False)])
def test_a_block_must_count_what_was_held_here_for_long_when_it_came(held_s: float, deserves: bool) -> None:
    stage, late = _after_a_miss()
    stage.post(*(post for post in stage.chain.posts(stage.node.head.block_hash) if post.sender == late))
    stage.tick(held_s)
    block = stage.block(without=[late])
    assert _prevotes([*stage.candidate(block), *stage.tick(GATHER_S)], block) == deserves


def test_a_post_of_a_member_that_was_not_drawn_is_no_omission() -> None:
    """Its posts are kept, since it may be drawn by the time that they are looked at; no block may count them."""
    stage = Stage(genesis(7, contributors_per_round=4))
    drawn = stage.node.head.roster.contributors
    uninvited = next(member for member in stage.others if member not in drawn)
    missing = next(member for member in stage.others if member in drawn)
    stage.post(*stage.chain.posts(members=[uninvited]))
    assert stage.node._context.mempool.get((1, 0), uninvited) is not None
    stage.wait(TIMEOUT_S)
    block = stage.block(without=[missing])
    assert _prevotes([*stage.candidate(block), *stage.tick(GATHER_S)], block)


def test_what_comes_after_the_block_is_no_omission() -> None:
    stage, late = _after_a_miss()
    block = stage.block(without=[late])
    stage.candidate(block)
    stage.post(*(post for post in stage.chain.posts(stage.node.head.block_hash) if post.sender == late))
    assert _prevotes(stage.wait(10), block)


def test_a_block_that_omits_gets_a_vote_if_nothing_better_comes_for_long() -> None:
    stage, late = _after_a_miss()
    stage.post(*(post for post in stage.chain.posts(stage.node.head.block_hash) if post.sender == late))
    stage.tick(SLACK_S + 1)
    block = stage.block(without=[late])
    wait_s = forgiven_after_ms(stage.genesis) // 1000
    assert wait_s == TIMEOUT_S + MINING_TIMES * MINING_S
    effects = [*stage.candidate(block), *stage.wait(wait_s - 1)]
    assert not _prevotes(effects, block)
    assert _prevotes(stage.wait(2), block)


def test_a_censor_loses_to_whoever_counts_more() -> None:
    stage, late = _after_a_miss()
    posts = stage.chain.posts(stage.node.head.block_hash)
    stage.post(*(post for post in posts if post.sender != stage.me))
    stage.tick(SLACK_S + 1)
    censored = stage.block(without=[late])
    fair = stage.block(miner=stage.chain.key(stage.others[1]))
    effects = [*stage.candidate(censored), *stage.candidate(fair)]
    assert votes(effects) == [(PREVOTE, 0, fair.hash)]


def test_two_blocks_that_omit_each_others_posts_are_judged_by_what_is_held() -> None:
    stage = Stage(genesis(7, phase_timeout_ms=5_000))
    one, two = stage.others[:2]
    posts = {post.sender: post for post in stage.chain.posts()}
    stage.post(*(posts[member] for member in stage.others if member != two))
    stage.wait(6)
    without_one, without_two = stage.block(without=[one]), stage.block(without=[two])
    effects = [*stage.candidate(without_one), *stage.candidate(without_two), *stage.tick(GATHER_S)]
    assert votes(effects) == [(PREVOTE, 0, without_two.hash)]


# --- phases that may be closed empty


def _empty(stage: Stage) -> Block:
    return stage.block(posts=())


def test_where_all_members_post_no_phase_is_closed_empty() -> None:
    stage = Stage(genesis(4))
    assert votes([*stage.candidate(_empty(stage)), *stage.wait(3 * TIMEOUT_S)]) == []


@pytest.mark.parametrize("rule", [AggregatorRule.FIXED, AggregatorRule.ROTATING])
def test_a_silent_aggregator_is_waited_for_once(rule: AggregatorRule) -> None:
    stage = Stage(genesis(4, phases=(UPDATE, GLOBAL), aggregator=rule), 3)
    stage.accept()
    block = _empty(stage)
    assert votes([*stage.candidate(block), *stage.wait(TIMEOUT_S - 1)]) == []
    assert _prevotes(stage.wait(2), block)


def test_an_aggregator_that_posted_is_not_passed_over() -> None:
    stage = Stage(genesis(4, phases=(UPDATE, GLOBAL), aggregator=AggregatorRule.FIXED), 3)
    stage.accept()
    stage.post(*stage.chain.posts(stage.node.head.block_hash))
    stage.tick(SLACK_S + 1)
    block = _empty(stage)
    assert not _prevotes([*stage.candidate(block), *stage.wait(TIMEOUT_S - 5)], block)


def test_drawn_contributors_are_waited_for_twice() -> None:
    stage = Stage(genesis(6, contributors_per_round=2))
    block = _empty(stage)
    assert votes([*stage.candidate(block), *stage.wait(2 * TIMEOUT_S - 1)]) == []
    assert _prevotes(stage.wait(2), block)


def test_a_phase_is_not_closed_empty_where_enough_posted() -> None:
    stage = Stage(genesis(6, contributors_per_round=2), 5)
    stage.post(*(post for post in stage.chain.posts() if post.sender != stage.me))
    stage.wait(2 * TIMEOUT_S)
    block = _empty(stage)
    assert not _prevotes([*stage.candidate(block), *stage.wait(TIMEOUT_S - 5)], block)


def test_where_one_member_counts_and_is_silent_the_phase_is_closed_although_all_posted() -> None:
    stage = Stage(genesis(4, centralized=True, aggregator=AggregatorRule.FIXED), 3)
    stage.post(*(post for post in stage.chain.posts() if post.sender != stage.me))
    stage.wait(2 * TIMEOUT_S)
    block = stage.block(posts=(), miner=stage.chain.key(stage.others[1]))
    assert _prevotes([*stage.candidate(block), *stage.tick(GATHER_S)], block)


# --- version 3: patience is a budget


def _budgeted(**fields: Any) -> tuple[Stage, Post]:
    """A stage of version 3 that has all posts of the others but one, which is given."""
    stage = Stage(living_genesis(5, **fields))
    *others, late = stage.others_posts()
    stage.post(*others)
    return stage, late


def test_the_rest_is_waited_for_as_long_as_it_has_patience_left_and_no_longer() -> None:
    stage, late = _budgeted()
    block = stage.block(without=[late.sender])
    assert votes(stage.candidate(block)) == []
    assert votes(stage.wait(TIMEOUT_S - 1)) == []
    assert _prevotes(stage.wait(1 + 1), block)


def test_a_block_is_not_preferred_for_a_post_that_its_miner_showed_nobody() -> None:
    stage, late = _budgeted()
    stage.tick(SLACK_S + 1)
    complete, rest = stage.block(), stage.block(without=[late.sender], miner=stage.chain.key(stage.others[1]))
    for block in (complete, rest):
        assert votes(stage.candidate(block)) == []
    better = min((complete, rest), key=lambda block: block.hash)
    assert votes(stage.wait(TIMEOUT_S - SLACK_S - 2)) == [], "its post is still missing"
    assert _prevotes(stage.wait(3), better)


@pytest.mark.parametrize(("held_s", "counts"), [(SLACK_S, True), (SLACK_S - 0.001, False)])
def test_a_post_counts_for_preference_that_was_held_for_the_slack_when_the_block_came(
    held_s: float, counts: bool
) -> None:
    stage, late = _budgeted()
    stage.post(late)
    stage.tick(held_s)
    stage.candidate(stage.block())
    (entry,) = stage.node.ledger.entries.values()
    assert rank(stage.node._context, entry) == (-5 if counts else 0, entry.hash)


def test_a_complete_block_is_voted_for_once_its_last_post_is_here() -> None:
    stage, late = _budgeted()
    block = stage.block()
    assert votes(stage.candidate(block)) == []
    assert _prevotes(stage.post(late), block)


def test_an_early_block_must_count_what_came_in_time() -> None:
    stage, late = _budgeted()
    block = stage.block(without=[late.sender])
    stage.candidate(block)
    stage.post(late)
    assert not _prevotes(stage.wait(TIMEOUT_S + 5), block)
    assert _prevotes(stage.wait(MINING_TIMES * MINING_S), block), "it is forgiven at last"


def _precommit(effects: list[Effect]) -> Vote:
    (vote,) = [
        effect.message.vote
        for effect in effects
        if isinstance(effect, Publish) and isinstance(effect.message, VoteMessage)
        if effect.message.vote.kind is PRECOMMIT
    ]
    return vote


def test_a_precommit_says_how_long_was_waited_and_for_whom() -> None:
    stage = Stage(living_genesis(6, phase_timeout_ms=20_000))
    *first, slow, slower = stage.others_posts()
    stage.tick(1)
    stage.post(*first)
    stage.tick(2)
    stage.post(slow)
    stage.tick(8)
    stage.post(slower)
    stage.tick(5)
    block = stage.block()
    effects = [*stage.candidate(block), *stage.vote(block, stage.others)]
    seats = stage.node.head.roster.seats
    assert _precommit(effects).turnout == Turnout(
        1_000, 10_000, mark_seats(range(6)), mark_seats([seats[slower.sender]])
    )


def test_a_precommit_says_who_was_late() -> None:
    stage, late = _budgeted(phase_timeout_ms=20_000)
    stage.tick(21)
    stage.tick(1)
    stage.post(late)
    stage.tick(1)
    block = stage.block()
    effects = [*stage.candidate(block), *stage.vote(block, stage.others)]
    seats, said = stage.node.head.roster.seats, _precommit(effects).turnout
    marks = mark_seats(seat for member, seat in seats.items() if member != late.sender)
    assert said is not None
    assert (said.waited_ms // 1_000, said.punctual) == (21, marks)


def test_a_precommit_says_who_was_late_and_had_reached_the_miner_all_the_same() -> None:
    stage, late = _budgeted(phase_timeout_ms=20_000)
    stage.tick(21)
    stage.tick(1)
    stage.post(late)
    stage.tick(SLACK_S + 1)
    block = stage.block()
    said = _precommit([*stage.candidate(block), *stage.vote(block, stage.others)]).turnout
    assert said is not None
    assert said.punctual == mark_seats(range(5))


def test_the_interval_before_a_round_is_no_time_that_its_posts_took() -> None:
    stage = Stage(living_genesis(5, phase_timeout_ms=20_000, round_interval_ms=30_000))
    stage.accept()
    stage.tick(31)
    stage.post(*stage.others_posts())
    block = stage.block()
    said = _precommit([*stage.candidate(block), *stage.vote(block, stage.others)]).turnout
    assert said is not None
    assert said.quorum_ms == 1_000


def test_a_precommit_without_the_posts_required_says_whose_are_here() -> None:
    """A node that was just started lacks most of them. If it said nothing, it could not be told from a liar."""
    stage = Stage(living_genesis(7), contributes=False)
    post, *_ = stage.others_posts()
    stage.post(post)
    block = stage.block(without=[stage.me])
    effects = [*stage.candidate(block), *stage.vote(block, stage.others)]
    seats = stage.node.head.roster.seats
    assert _precommit(effects).turnout == Turnout(0, 0, mark_seats([seats[post.sender]]), b"")


def test_version_2_says_nothing_of_turnout() -> None:
    stage = Stage(genesis(4))
    block = stage.block()
    assert _precommit([*stage.candidate(block), *stage.vote(block, stage.others)]).turnout is None
