"""What the chain says after a block: whose turn it is, who votes, how hard the next block is."""

from collections import Counter
from dataclasses import replace

import pytest

from fedchain.chain.difficulty import bits_from_attempts, next_bits, work_from_bits
from fedchain.chain.genesis import AggregatorRule, Contributor, PhaseRule
from fedchain.chain.state import (
    MEDIAN_WINDOW,
    State,
    apply_block,
    draw,
    expected_contributors,
    genesis_state,
    mining_time_ms,
    phase_rule,
    votes_required,
)
from fedchain.crypto.hashing import sha256
from tests.chain.builders import CREATED_MS, EASY_BITS, GLOBAL, UPDATE, ChainBuilder, genesis, keys

MEMBERS = [key.public_key for key in keys(8)]
KEY_SHARES = PhaseRule("key_shares", Contributor.PARTICIPANT)


def _tip(builder: ChainBuilder) -> State:
    return builder.states[builder.tip]


def test_the_state_before_the_first_block() -> None:
    document = genesis(4)
    state = genesis_state(document)
    assert state.block_hash == state.parent_hash == state.round_seed == document.chain_id
    assert (state.height, state.round, state.phase, state.finished) == (0, 1, 0, False)
    assert (state.work, state.bits) == (0, EASY_BITS)
    assert state.knowledge_root == sha256(b"")
    assert state.timestamp_ms == state.median_time_ms == CREATED_MS
    assert state.missed == (0, 0, 0, 0)
    assert state.contributors == state.electors == set(MEMBERS[:4])


def test_a_state_follows_from_its_block() -> None:
    builder = ChainBuilder(genesis(4))
    before = _tip(builder)
    block = builder.extend()
    state = _tip(builder)
    assert state.block_hash == block.hash
    assert state.parent_hash == before.block_hash
    assert state.height == 1
    assert state.knowledge_root == block.header.knowledge_root
    assert state.work == before.work + work_from_bits(block.header.bits) == 2
    assert state.timestamp_ms == block.header.timestamp_ms
    assert state.round_seed == block.hash
    assert before == genesis_state(builder.genesis)  # untouched


def _steps(builder: ChainBuilder, count: int) -> list[tuple[int, int]]:
    steps = []
    for _ in range(count):
        steps.append((_tip(builder).round, _tip(builder).phase))
        builder.extend()
    return steps


def test_each_block_closes_a_phase() -> None:
    phases = (UPDATE, PhaseRule("share", Contributor.PARTICIPANT), UPDATE)
    assert _steps(ChainBuilder(genesis(2, phases=phases)), 7) == [
        (1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2), (3, 0),
    ]  # fmt: skip


def test_the_setup_is_round_0_and_happens_once() -> None:
    builder = ChainBuilder(genesis(2, setup=(KEY_SHARES, UPDATE), phases=(UPDATE,)))
    assert phase_rule(builder.genesis, _tip(builder)) == KEY_SHARES
    assert _steps(builder, 5) == [(0, 0), (0, 1), (1, 0), (2, 0), (3, 0)]


def test_the_federation_ends_with_its_last_round() -> None:
    builder = ChainBuilder(genesis(2, setup=(KEY_SHARES,), phases=(UPDATE, UPDATE), rounds=2))
    finished = []
    for _ in range(5):
        finished.append(_tip(builder).finished)
        builder.extend()
    assert finished == [False] * 5
    assert _tip(builder).finished


def test_without_a_last_round_it_never_ends() -> None:
    builder = ChainBuilder(genesis(2, setup=(KEY_SHARES,)))
    builder.extend_many(5)
    assert not any(state.finished for state in builder.states.values())


def test_the_seed_changes_with_the_round_not_with_the_phase() -> None:
    builder = ChainBuilder(genesis(2, phases=(UPDATE, UPDATE)))
    first, second, third = builder.extend_many(3)
    assert builder.states[first.hash].round_seed == builder.genesis.chain_id
    assert builder.states[second.hash].round_seed == builder.states[third.hash].round_seed == second.hash


# --- time and difficulty


def test_the_median_is_that_of_the_last_eleven_blocks() -> None:
    state = genesis_state(genesis(2))
    for times, median in (
        ((5,), 5),
        ((5, 9), 9),
        ((9, 5), 9),
        ((1, 9, 5), 5),
        ((11, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10), 6),
    ):
        assert replace(state, timestamps_ms=times).median_time_ms == median


def test_only_the_last_timestamps_are_kept() -> None:
    builder = ChainBuilder(genesis(2))
    blocks = builder.extend_many(MEDIAN_WINDOW + 3)
    assert _tip(builder).timestamps_ms == tuple(block.header.timestamp_ms for block in blocks[-MEDIAN_WINDOW:])


def test_mining_time_runs_from_the_newest_post() -> None:
    builder = ChainBuilder(genesis(3))
    parent = _tip(builder)
    early = builder.posts(members=MEMBERS[:1], timestamp_ms=CREATED_MS + 100)
    late = builder.posts(members=MEMBERS[1:2], timestamp_ms=CREATED_MS + 700)
    posts = sorted((*early, *late), key=lambda item: item.sender)
    block = builder.extend(posts=posts, timestamp_ms=CREATED_MS + 1_700)
    assert mining_time_ms(parent, block) == 1_000
    assert _tip(builder).bits == next_bits(EASY_BITS, 1_000, 4_000) != EASY_BITS


def test_mining_time_of_an_empty_block_runs_from_its_parent() -> None:
    builder = ChainBuilder(genesis(3, aggregator=AggregatorRule.FIXED, centralized=True))
    parent = _tip(builder)
    block = builder.extend(posts=(), timestamp_ms=CREATED_MS + 60_000)
    assert mining_time_ms(parent, block) == 60_000


def test_mining_time_is_never_negative() -> None:
    builder = ChainBuilder(genesis(3))
    block = builder.extend(posts=builder.posts(timestamp_ms=CREATED_MS + 9_000), timestamp_ms=CREATED_MS + 10)
    assert mining_time_ms(builder.states[builder.genesis.chain_id], block) == 0


def test_work_adds_up() -> None:
    builder = ChainBuilder(genesis(2, initial_bits=bits_from_attempts(10)))
    blocks = builder.extend_many(3)
    assert _tip(builder).work == sum(work_from_bits(block.header.bits) for block in blocks)


# --- who posts and who votes


def test_missed_phases_are_counted_and_forgiven() -> None:
    builder = ChainBuilder(genesis(4, inactive_after=2))
    counts = []
    for absent in ({0, 1}, {0}, {0, 1}, {1}, {1}):
        members = [member for place, member in enumerate(MEMBERS[:4]) if place not in absent]
        builder.extend(posts=builder.posts(members=members))
        state = _tip(builder)
        counts.append(state.missed)
        assert state.electors == {m for m, times in zip(MEMBERS[:4], state.missed, strict=True) if times < 2}
        assert state.contributors == set(MEMBERS[:4])  # a member out of the electorate may post and come back
        assert expected_contributors(builder.genesis, state) == set(members)
    assert counts == [(1, 1, 0, 0), (2, 0, 0, 0), (3, 1, 0, 0), (0, 2, 0, 0), (0, 3, 0, 0)]


def test_only_members_that_were_drawn_can_miss() -> None:
    builder = ChainBuilder(genesis(6, contributors_per_round=3))
    drawn = sorted(_tip(builder).contributors)
    builder.extend(posts=builder.posts(members=drawn[:1]))
    missed = dict(zip(builder.genesis.members, _tip(builder).missed, strict=True))
    assert {member for member, times in missed.items() if times} == set(drawn[1:])


def test_an_aggregators_phase_counts_for_nobody() -> None:
    builder = ChainBuilder(genesis(3, phases=(UPDATE, GLOBAL), aggregator=AggregatorRule.FIXED))
    builder.extend(posts=builder.posts(members=MEMBERS[:2]))
    before = _tip(builder).missed
    builder.extend(posts=(), timestamp_ms=_tip(builder).timestamp_ms + 60_000)
    assert _tip(builder).missed == before == (0, 0, 1)


def test_an_empty_block_counts_for_nobody() -> None:
    builder = ChainBuilder(genesis(3, aggregator=AggregatorRule.FIXED, centralized=True, inactive_after=2))
    for _ in range(4):
        builder.extend(posts=(), timestamp_ms=_tip(builder).timestamp_ms + 60_000)
        assert _tip(builder).electors == set(MEMBERS[:3])


def test_the_aggregator_alone_posts_in_its_phase_and_takes_turns() -> None:
    builder = ChainBuilder(genesis(3, phases=(UPDATE, GLOBAL), aggregator=AggregatorRule.ROTATING))
    seen = []
    for _ in range(6):
        if _tip(builder).phase == 1:
            seen.append(_tip(builder).contributors)
        else:
            assert _tip(builder).contributors == set(MEMBERS[:3])
        builder.extend()
    assert seen == [{MEMBERS[1]}, {MEMBERS[2]}, {MEMBERS[0]}]


@pytest.mark.parametrize(
    ("members", "percent", "required"),
    [(1, 50, 1), (2, 50, 2), (3, 50, 2), (4, 50, 3), (5, 50, 3), (4, 66, 3), (4, 75, 4), (3, 99, 3), (8, 99, 8)],
)
def test_votes_required_are_more_than_the_percentage(members: int, percent: int, required: int) -> None:
    document = genesis(members, vote_quorum_percent=percent)
    assert votes_required(document, genesis_state(document)) == required


def test_a_committee_votes_and_changes_with_the_block() -> None:
    builder = ChainBuilder(genesis(8, committee_size=3))
    committees = [_tip(builder).electors]
    for _ in range(20):
        builder.extend()
        committees.append(_tip(builder).electors)
    assert {len(committee) for committee in committees} == {3}
    assert len(set(committees)) > 10
    assert set().union(*committees) == set(MEMBERS)
    assert votes_required(builder.genesis, _tip(builder)) == 2


def test_a_committee_is_drawn_from_the_active_members() -> None:
    builder = ChainBuilder(genesis(8, committee_size=3, inactive_after=1))
    for _ in range(10):
        builder.extend(posts=builder.posts(members=MEMBERS[:4]))
        assert _tip(builder).electors <= set(MEMBERS[:4])


def test_contributors_are_drawn_once_a_round() -> None:
    builder = ChainBuilder(genesis(8, phases=(UPDATE, UPDATE), contributors_per_round=3))
    drawn = []
    for _ in range(10):
        first = _tip(builder).contributors
        builder.extend()
        assert _tip(builder).contributors == first
        builder.extend()
        drawn.append(first)
    assert {len(item) for item in drawn} == {3}
    assert len(set(drawn)) > 5


def test_a_draw_is_fair_and_independent_of_the_order() -> None:
    members = tuple(MEMBERS)
    assert draw(members, 3, b"seed") == draw(members[::-1], 3, b"seed")
    assert draw(members, 0, b"seed") == draw(members, 8, b"seed") == draw(members, 9, b"seed") == set(members)
    counts = Counter(member for seed in range(800) for member in draw(members, 3, b"%d" % seed))
    assert all(240 < counts[member] < 360 for member in members)  # 300 on average, ± 4.4 standard deviations


def test_a_vector_of_the_draw() -> None:
    ranked = sorted(MEMBERS, key=lambda member: sha256(b"seed" + member))
    assert draw(tuple(MEMBERS), 3, b"seed") == set(ranked[:3])


def test_contributors_and_committee_are_drawn_apart() -> None:
    document = genesis(8, committee_size=4, contributors_per_round=4)
    state = genesis_state(document)
    assert state.electors == draw(document.members, 4, document.chain_id + b"committee")
    assert state.contributors == draw(document.members, 4, document.chain_id + b"contributors")
    assert state.electors != state.contributors


def test_applying_a_block_is_a_pure_function() -> None:
    builder = ChainBuilder(genesis(4))
    block = builder.extend()
    start = genesis_state(builder.genesis)
    assert apply_block(builder.genesis, start, block) == apply_block(builder.genesis, start, block) == _tip(builder)
