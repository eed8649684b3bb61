"""Difficulty for each member: the arithmetic, what blocks make of weights, and the shares that members then win."""

import random
from collections import Counter
from collections.abc import Sequence
from math import log2
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedchain.chain.difficulty import (
    TARGET_MAX,
    bits_from_attempts,
    bits_from_target,
    is_canonical_bits,
    next_bits,
    target_from_bits,
    work_from_bits,
)
from fedchain.chain.exceptions import InvalidBlock
from fedchain.chain.genesis import AggregatorRule
from fedchain.chain.membership.member import WEIGHT_MAX, WEIGHT_MIN, Standing
from fedchain.chain.membership.weights import reweigh, shares_of, weigh, weight_of_newcomers
from fedchain.chain.transition import judge_block
from fedchain.crypto.keys import is_valid_signature
from tests.support.chain.builders import ChainBuilder, double_vote, genesis, keys
from tests.support.chain.changes import joining, living
from tests.support.chain.power import blocks_won, records_of
from tests.support.chain.states import read_anew

HARD = 0x1B0404CB


# --- arithmetic


def weigh_among(bits: int, weight: int, weights: Sequence[int]) -> int:
    return weigh(bits, weight, shares_of(weights), len(weights))


def test_targets_are_in_proportion_to_powers_of_two_and_their_mean_is_the_common_one() -> None:
    weights = [0, -1, 3, 0, -12, 4]
    common, targets = (
        target_from_bits(HARD),
        [target_from_bits(weigh_among(HARD, weight, weights)) for weight in weights],
    )
    assert sum(targets) / (len(targets) * common) == pytest.approx(1, abs=1e-4)  # the compact form rounds
    for weight, target in zip(weights, targets, strict=True):
        assert target / targets[0] == pytest.approx(2.0**weight, rel=1e-4)


@pytest.mark.parametrize("weight", [WEIGHT_MIN, 0, WEIGHT_MAX])
@pytest.mark.parametrize("count", [1, 4, 13])
def test_equal_weights_change_nothing(weight: int, count: int) -> None:
    assert weigh_among(HARD, weight, [weight] * count) == HARD


@given(st.lists(st.integers(WEIGHT_MIN, WEIGHT_MAX), min_size=1, max_size=9), st.integers(1, TARGET_MAX))
def test_every_difficulty_has_one_form(weights: list[int], target: int) -> None:
    assert all(is_canonical_bits(weigh_among(bits_from_target(target), weight, weights)) for weight in weights)


def test_no_weight_leaves_the_possible_targets() -> None:
    easiest = bits_from_target(TARGET_MAX)
    assert weigh_among(easiest, WEIGHT_MAX, [0, WEIGHT_MAX]) == easiest
    assert target_from_bits(weigh_among(bits_from_target(1), WEIGHT_MIN, [0, WEIGHT_MIN])) == 1


# --- what a block makes of weights


def weights_after(weights: list[int], miner: int, active: set[int] | None = None) -> list[int]:
    """Weights after a block of a member."""
    records = records_of(weights)
    counted = {records[seat].key for seat in (range(len(weights)) if active is None else active)}
    return [record.weight for record in reweigh(records, counted, records[miner].key)]


@pytest.mark.parametrize(
    ("before", "miner", "after"),
    [
        ([0, 0, 0, 0], 2, [0, 0, -1, 0]),
        ([0, 0, -1, 0], 0, [0, 1, 0, 1]),  # two are below now: the second lowest counts
        ([0, 1, 0, 1], 1, [0, 0, 0, 1]),
        ([0], 0, [0]),  # one member alone stays where it is
        ([0, 0], 1, [1, 0]),
        ([1, 0], 1, [2, 0]),
        ([0, 0, 0, 0, 0, 0, 0], 3, [0, 0, 0, -1, 0, 0, 0]),
        ([0, -1, 0, 0, 0, -1, 0], 3, [1, 0, 1, 0, 1, 0, 1]),  # three of seven
        ([-12, 0, 0, 0], 0, [-12, 0, 0, 0]),  # the lowest is as low as it gets
        ([-1, 0, 4, 4], 1, [0, 0, 4, 4]),  # and the highest as high
        ([-3, 0, 0, 3], 3, [-3, 0, 0, 2]),  # a block costs a bit, whoever mines it
    ],
)
def test_a_block_costs_its_miner_a_bit(before: list[int], miner: int, after: list[int]) -> None:
    assert weights_after(before, miner) == after


def test_members_that_do_not_count_neither_pay_nor_gain() -> None:
    assert weights_after([0, -1, 0, 3, 0], 0, active={0, 1, 2, 4}) == [0, 0, 1, 3, 1]


def test_who_begins_gets_the_lowest_weight_of_those_that_count() -> None:
    records = records_of([5, -7, 3, -99])
    assert weight_of_newcomers(records, {record.key for record in records[:3]}) == -7
    assert weight_of_newcomers(records, set()) == 0


@given(st.lists(st.integers(WEIGHT_MIN, WEIGHT_MAX), min_size=1, max_size=12), st.data())
def test_weights_keep_their_bounds(weights: list[int], data: st.DataObject) -> None:
    records = records_of(weights)
    miner = data.draw(st.sampled_from(records))
    after = list(reweigh(records, {record.key for record in records}, miner.key))
    assert all(WEIGHT_MIN <= record.weight <= WEIGHT_MAX for record in after)
    assert sorted(record.weight for record in after)[len(after) // 3] == 0
    assert [record.key for record in after] == [record.key for record in records]


# --- on a chain


def test_a_miner_s_next_block_is_harder_and_only_its_own() -> None:
    chain = living(5, initial_bits=bits_from_attempts(64))
    for _ in range(3):
        chain.extend(miner=keys(5)[0])
    state, first, second = chain.state, *chain.genesis.members[:2]
    assert [record.weight for record in state.records] == [-3, 0, 0, 0, 0]
    assert work_from_bits(state.bits_of(first)) == pytest.approx(8 * work_from_bits(state.bits_of(second)), rel=0.03)
    assert state.bits_of(second) == weigh_among(state.bits, 0, [-3, 0, 0, 0, 0])
    again = read_anew(chain.genesis, state)
    assert again.bits_of(first) == state.bits_of(first)
    block = chain.extend(miner=keys(5)[0])
    assert block.header.bits == state.bits_of(first)
    judge_block(chain.genesis, state, block, block.header.knowledge_root, is_valid_signature)
    assert chain.state.work == state.work + work_from_bits(state.bits_of(first)), "work of what was really found"


@pytest.mark.parametrize("miner", [0, 1])
def test_another_member_s_difficulty_is_refused(miner: int) -> None:
    chain = living(5)
    chain.extend_many(2)
    before, other = chain.state, chain.genesis.members[1 - miner]
    block = chain.extend(miner=keys(5)[miner])
    foreign = chain.remake(block, bits=before.bits_of(other), key=keys(5)[miner])
    with pytest.raises(InvalidBlock, match="bits"):
        judge_block(chain.genesis, before, foreign, foreign.header.knowledge_root, is_valid_signature)


def test_members_of_version_2_share_one_difficulty() -> None:
    chain = ChainBuilder(genesis(4))
    chain.extend_many(3)
    assert {chain.state.bits_of(member) for member in chain.genesis.members} == {chain.state.bits}


def test_the_one_producer_of_a_centralized_federation_pays_nothing() -> None:
    chain = ChainBuilder(genesis(4, version=3, aggregator=AggregatorRule.FIXED, centralized=True))
    chain.extend_many(3)
    assert {record.weight for record in chain.state.records} == {0}


def test_a_newcomer_begins_at_the_lowest_weight() -> None:
    chain = living(5)
    chain.extend(changes=[joining(chain, 5)], miner=keys(5)[0])
    chain.extend(miner=keys(5)[0])
    newcomer = chain.state.records[5]
    assert (newcomer.standing, newcomer.weight) == (Standing.ACTIVE, -2)


def test_a_convict_s_weight_counts_no_more() -> None:
    chain = living(4)
    for _ in range(2):
        chain.extend(miner=keys(4)[3])
    chain.extend(miner=keys(4)[0], evidence=[double_vote(keys(4)[3], chain.genesis, 1)])
    # With the convict the second lowest of four would still be the reference.
    chain.extend(miner=keys(4)[0])
    assert [record.weight for record in chain.state.records] == [-2, 0, 0, -1]


# --- what members win, by the rule alone


@pytest.mark.parametrize(("count", "strong"), [(4, 1), (10, 1), (10, 3)])
@pytest.mark.parametrize("rate", [1.0, 30.0, 300.0])
def test_power_buys_a_burst_and_no_share(count: int, strong: int, rate: float) -> None:
    won = blocks_won([rate] * strong + [1.0] * (count - strong), 400, seed=1)
    fair, own = strong / count, [number < strong for number in won]
    assert sum(own) - 400 * fair <= strong * (log2(rate) + 1)
    assert mean(own[150:]) == pytest.approx(fair, abs=0.02)


def test_members_that_mine_share_blocks_evenly_while_most_do_not_mine() -> None:
    rates = [0.0] * 6 + [1.0, 1.0, 1.0, 300.0]
    won = Counter(blocks_won(rates, 400, seed=2)[100:])
    assert all(won[number] == pytest.approx(75, abs=8) for number in range(6, 10)), won


def test_who_comes_back_has_a_few_blocks_in_hand_and_no_more() -> None:
    idle, everybody = [0.0, *[1.0] * 9], [1.0] * 10
    for seed in range(5):
        won = blocks_won([idle] * 1_000 + [everybody] * 30, 1_030, seed=seed)[1_000:]
        assert won.count(0) <= 30 / 10 + WEIGHT_MAX + 1


def test_weights_and_the_retarget_do_not_fight() -> None:
    """DFPL's mean mining time (Eq. 9) stays what it is with one difficulty, whatever the rates."""
    usual = mean(mining_times([1.0], 3_000, seed=3)[300:])
    for rates in ([1.0] * 10, [300.0, *[1.0] * 9]):
        assert mean(mining_times(rates, 3_000, seed=3)[300:]) == pytest.approx(usual, rel=0.05)


def test_power_that_leaves_takes_no_blocks_with_it() -> None:
    """The gaps are those of chance: with one difficulty the next one alone lasts ten times as long as usual."""
    times = mining_times([50.0, *[1.0] * 9], 400, seed=4, leaves=200)
    assert max(times[200:]) < 8 * 4_000


def mining_times(rates: list[float], blocks: int, *, seed: int, leaves: int | None = None) -> list[float]:
    """Mining times in milliseconds, by the real rule and the real retarget; the first member may stop at a block."""
    draw, records, bits = random.Random(seed), records_of([0] * len(rates)), bits_from_target(2**240)
    active, times = {record.key for record in records}, []
    for block in range(blocks):
        weights = [record.weight for record in records]
        found = [
            (draw.expovariate(rate / work_from_bits(weigh_among(bits, record.weight, weights))), record)
            for rate, record in zip(rates, records, strict=True)
        ]
        time_ms, winner = min(found[int(leaves is not None and block >= leaves) :], key=lambda item: item[0])
        times.append(time_ms)
        records = list(reweigh(records, active, winner.key))
        bits = next_bits(bits, round(time_ms), 4_000)
    return times
