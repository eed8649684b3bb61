"""Difficulty against Bitcoin's own numbers, and the retarget against simulated miners."""

import ast
import inspect
import math
import random
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedchain.chain import difficulty
from fedchain.chain.difficulty import (
    TARGET_MAX,
    bits_from_attempts,
    bits_from_target,
    is_canonical_bits,
    next_bits,
    target_from_bits,
    work_from_bits,
)

TARGETS = st.integers(0, 255).flatmap(lambda length: st.integers(max(1, 2**length // 2), max(1, 2**length - 1)))


@pytest.mark.parametrize(
    ("bits", "target"),
    [
        (0x1D00FFFF, 0xFFFF << 208),  # Bitcoin's easiest
        (0x1B0404CB, 0x0404CB << 192),  # the example of Bitcoin's developer guide
        (0x05009234, 0x92340000),
        (0x04123456, 0x12345600),
        (0x02123400, 0x1234),
        (0x01120000, 0x12),
        (0x207FFFFF, 0x7FFFFF << 232),  # Bitcoin's regression test network
    ],
)
def test_compact_targets_of_bitcoin(bits: int, target: int) -> None:
    assert target_from_bits(bits) == target
    assert bits_from_target(target) == bits
    assert is_canonical_bits(bits)


def test_work_of_bitcoins_first_block() -> None:
    assert work_from_bits(0x1D00FFFF) == 0x100010001


@pytest.mark.parametrize(
    "bits",
    [
        0,
        -1,
        1,
        0x20800000,  # above the easiest target
        0x2100FFFF,  # the same
        0x1D80FFFF,  # the mantissa would be negative in Bitcoin
        0x1E0000FF,  # a shorter exponent would do
        0x1D000000,  # zero
        0x01123456,  # bits below the point
        0x00123456,
        0xFF7FFFFF,
        2**32,
        2**64 - 1,
    ],
)
def test_other_spellings_are_not_canonical(bits: int) -> None:
    assert not is_canonical_bits(bits)


@given(TARGETS)
def test_a_compact_target_is_canonical_and_rounds_down_by_little(target: int) -> None:
    bits = bits_from_target(target)
    compact = target_from_bits(bits)
    assert is_canonical_bits(bits)
    assert bits_from_target(compact) == bits
    assert compact <= target < compact + max(1, compact >> 14)


@given(st.integers(0, 2**33))
def test_canonical_bits_are_those_that_come_back(bits: int) -> None:
    if is_canonical_bits(bits):
        assert bits_from_target(target_from_bits(bits)) == bits


@given(TARGETS, st.integers(0, 2**64 - 1), st.integers(4, 2**40))
@example(TARGET_MAX, 2**40, 4)  # the easiest, and slow: drawn targets need not come near
def test_the_retarget_is_clamped_and_canonical(target: int, mining_time_ms: int, goal_ms: int) -> None:
    bits = bits_from_target(target)
    before, after = target_from_bits(bits), next_bits(bits, mining_time_ms, goal_ms)
    assert is_canonical_bits(after)
    assert target_from_bits(after) <= TARGET_MAX
    # At most 7/4 easier; at most 13/16 harder, and rounding (T // 4 for T < 8, and 23 bits) takes little more.
    ratio = Fraction(target_from_bits(after), before)
    assert ratio <= Fraction(7, 4)
    if before > 2**24:
        assert ratio >= Fraction(3, 4) * Fraction(2**14 - 1, 2**14)


@pytest.mark.parametrize(
    ("mining_time_ms", "expected"),
    [
        (4_000, 0x1C010000),  # as planned: nothing changes
        (8_000, 0x1C014000),  # twice as long: 5/4
        (16_000, 0x1C01C000),  # four times: 7/4
        (10**9, 0x1C01C000),  # and never more
        (1_000, 0x1C00D000),  # a quarter: 13/16
        (0, 0x1C00D000),  # and never less
    ],
)
def test_retarget_vectors(mining_time_ms: int, expected: int) -> None:
    assert next_bits(0x1C010000, mining_time_ms, 4_000) == expected


def test_the_retarget_stops_at_the_easiest_target() -> None:
    easiest = bits_from_target(TARGET_MAX)
    assert next_bits(easiest, 10**9, 4_000) == easiest
    assert next_bits(bits_from_target(1), 0, 4_000) == bits_from_target(1)


@pytest.mark.parametrize("start", [1 / 64, 1, 64])
def test_mining_times_converge_to_the_goal(start: float) -> None:
    rng, goal_ms = random.Random(7), 4_000
    expected_attempts = 1e9  # of miners that find a block in the goal at this difficulty
    bits = bits_from_attempts(int(expected_attempts * start))
    times = []
    for _ in range(6_000):
        mean_ms = goal_ms * work_from_bits(bits) / expected_attempts
        time_ms = round(-mean_ms * math.log(1 - rng.random()))
        times.append(time_ms)
        bits = next_bits(bits, time_ms, goal_ms)
    settled = times[500:]
    assert sum(settled) / len(settled) == pytest.approx(goal_ms, rel=0.15)
    assert 1 / 8 < work_from_bits(bits) / expected_attempts < 8


@pytest.mark.parametrize("attempts", [2, 3, 100, 12_345, 10**9, 10**30])
def test_bits_from_attempts_take_that_many(attempts: int) -> None:
    assert work_from_bits(bits_from_attempts(attempts)) == pytest.approx(attempts, rel=1e-3)


def test_the_easiest_difficulty_is_two_attempts() -> None:
    assert bits_from_attempts(0) == bits_from_attempts(1) == bits_from_attempts(2)
    assert work_from_bits(bits_from_attempts(0)) == 2


def test_harder_targets_are_more_work() -> None:
    works = [work_from_bits(bits_from_target(2**exponent)) for exponent in range(8, 255)]
    assert all(harder > easier for easier, harder in pairwise(reversed(works)))


def test_no_float_takes_part() -> None:
    nodes = list(ast.walk(ast.parse(inspect.getsource(difficulty))))
    assert not [node.lineno for node in nodes if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)]
    assert not [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, float)]
    assert not [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    assert all(type(next_bits(0x1C010000, time_ms, 4_000)) is int for time_ms in (0, 4_000, 10**12))


def test_the_hardest_difficulty_has_the_target_one() -> None:
    assert target_from_bits(bits_from_attempts(2**255)) == 1
    assert [work_from_bits(bits_from_target(target)) for target in (1, 3, 7)] == [2**255, 2**254, 2**253]
