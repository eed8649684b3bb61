"""DFPL's Eq. 11, Theorem 1 and both corollaries, against numbers worked out by hand."""

import math

import pytest

from fedchain.learning.convergence.theory import (
    Budget,
    Constants,
    descent_rate,
    learning_rate_max,
    rounds_limit,
    rounds_needed,
    target_floor,
    variation_bound,
    weight_max,
)
from fedchain.learning.exceptions import ConfigurationError

BUDGET = Budget(total_s=100.0, iteration_s=1.0, mining_s=4.0)
CONSTANTS = Constants(
    smoothness=2.0,
    lipschitz=0.5,
    gradient_norm=4.0,
    variance=3.0,
    gap=10.0,
    gradient_square=4.0,
    first_gradient_square=8.0,
)
Q = 64.0
"""16 steps of squared norm 4: in five rounds, t_sum - beta R = 80 s and alpha R = 5 s leave E = 16."""


@pytest.mark.parametrize(("rounds", "steps"), [(2, 46), (4, 21), (5, 16), (6, 12), (8, 8), (10, 6), (20, 1), (21, 0)])
def test_the_papers_local_steps(rounds: int, steps: int) -> None:
    assert BUDGET.local_steps(rounds) == steps
    assert BUDGET.rounds_max == 20


@pytest.mark.parametrize(
    ("total_s", "alpha", "beta", "rounds", "steps"),
    [(0.7, 0.2, 0.1, 1, 3), (2.1, 0.1, 0.4, 3, 3), (100, 3, 4, 6, 4), (100, 1, 0, 7, 14), (3, 1, 4, 1, -1)],
)
def test_decimals_lose_no_step(total_s: float, alpha: float, beta: float, rounds: int, steps: int) -> None:
    assert Budget(total_s=total_s, iteration_s=alpha, mining_s=beta).local_steps(rounds) == steps


def test_rounds_max_is_the_last_with_a_step() -> None:
    for alpha, beta in ((1, 4), (2, 4), (3, 4), (4, 4), (1, 5), (1, 6), (1, 7), (0.1, 0.3)):
        budget = Budget(total_s=100, iteration_s=alpha, mining_s=beta)
        assert budget.local_steps(budget.rounds_max) >= 1 > budget.local_steps(budget.rounds_max + 1)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"iteration_s": 0.0}, "alpha is 0.0 s, it must be above 0"),
        ({"iteration_s": math.nan}, "alpha is nan s"),
        ({"total_s": math.inf}, "t_sum is inf s"),
        ({"mining_s": -1.0}, "beta is -1.0 s, it must be between 0"),
        ({"total_s": 4.5}, r"t_sum is 4.5 s, but one round of one local step takes alpha \+ beta = 5 s"),
    ],
)
def test_an_impossible_budget_is_refused(values: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Budget(**({"total_s": 100.0, "iteration_s": 1.0, "mining_s": 4.0} | values)).validate()


def test_theorem_1() -> None:
    # (2·0.01/2 − 0.1)·64 + (2·0.01·3/2 + 0.5·0.1·4·0.1)·80/5 = −5.76 + 0.05·16
    bound = variation_bound(CONSTANTS, BUDGET, 5, learning_rate=0.1, weight=0.1, gradient_sum=Q)
    assert bound == pytest.approx(-4.96, rel=1e-14)


def test_corollary_1() -> None:
    # 2·(5·64 − 0.1·0.5·4·80) / (2·(5·64 + 3·80)) = 608 / 1120, and 5·64 / (0.5·4·80)
    limit = learning_rate_max(CONSTANTS, BUDGET, 5, weight=0.1, gradient_sum=Q)
    assert limit == pytest.approx(608 / 1120, rel=1e-14)
    assert weight_max(CONSTANTS, BUDGET, 5, gradient_sum=Q) == pytest.approx(2.0, rel=1e-14)


@pytest.mark.parametrize("rounds", [1, 2, 5, 9])
@pytest.mark.parametrize("weight", [0.0, 0.1, 0.5])
def test_at_corollary_1s_limits_theorem_1_promises_nothing(rounds: int, weight: float) -> None:
    """Both limits are where j changes its sign; with the plus that Eq. 25 prints they would not be."""
    limit = learning_rate_max(CONSTANTS, BUDGET, rounds, weight=weight, gradient_sum=Q)
    at_limit = variation_bound(CONSTANTS, BUDGET, rounds, learning_rate=limit, weight=weight, gradient_sum=Q)
    assert at_limit == pytest.approx(0.0, abs=1e-12)
    heaviest = weight_max(CONSTANTS, BUDGET, rounds, gradient_sum=Q)
    none_left = learning_rate_max(CONSTANTS, BUDGET, rounds, weight=heaviest, gradient_sum=Q)
    assert none_left == pytest.approx(0.0, abs=1e-15)


def test_corollary_2() -> None:
    # (0.2 − 0.02)·4 − 0.1·(2·0.1·3 + 2·0.1·0.5·4) = 0.72 − 0.1
    settings = {"learning_rate": 0.1, "weight": 0.1}
    assert descent_rate(CONSTANTS, **settings, target=4.0) == pytest.approx(0.62, rel=1e-14)
    limit = rounds_limit(CONSTANTS, BUDGET, **settings, target=4.0)
    assert limit == pytest.approx((100 - 20 / 0.62) / 4, rel=1e-14)
    assert rounds_needed(CONSTANTS, 16, **settings, target=4.0) == pytest.approx(20 / (16 * 0.62), rel=1e-14)
    assert target_floor(CONSTANTS, **settings) == pytest.approx(1 / 1.8, rel=1e-14)


def test_corollary_2_limits_the_rounds_from_above() -> None:
    """With E taken from the budget, Eq. 29 holds exactly for the R below the limit."""
    settings = {"learning_rate": 0.1, "weight": 0.1, "target": 4.0}
    limit = rounds_limit(CONSTANTS, BUDGET, **settings)
    assert limit is not None
    rate = descent_rate(CONSTANTS, **settings)
    for rounds in range(1, 21):
        is_enough = rounds > 2 * CONSTANTS.gap / (BUDGET.real_steps(rounds) * rate)
        assert is_enough == (rounds < limit)


def test_corollary_2_promises_nothing_below_the_floor_or_at_too_large_a_step() -> None:
    floor = target_floor(CONSTANTS, learning_rate=0.1, weight=0.1)
    for learning_rate, target in ((0.1, 0.99 * floor), (1.0, 1e9), (1.5, 1e9)):
        settings = {"learning_rate": learning_rate, "weight": 0.1, "target": target}
        assert rounds_limit(CONSTANTS, BUDGET, **settings) is None
        assert rounds_needed(CONSTANTS, 16, **settings) == math.inf
    assert target_floor(CONSTANTS, learning_rate=1.0, weight=0.1) == math.inf


def test_without_mining_nothing_limits_the_rounds() -> None:
    free = Budget(total_s=100.0, iteration_s=1.0, mining_s=0.0)
    settings = {"learning_rate": 0.1, "weight": 0.1}
    assert rounds_limit(CONSTANTS, free, **settings, target=4.0) == math.inf
    assert rounds_limit(CONSTANTS, free, **settings, target=0.6) == 0.0
