"""Several releases add up."""

import json
import math

import numpy as np
import pytest

from fedchain.learning.privacy.gaussian import MU_MAX, compose, delta_of, epsilon_of
from fedchain.learning.privacy.releases import Release, Sampling, rounds_within, total_epsilon
from tests.learning.privacy.reference_schedules import (
    PATH,
    POISSON,
    POISSON_DELTA,
    POISSON_PATH,
    SCHEDULES,
    random_schedules,
)

ANSWERS = json.loads(PATH.read_text())


def test_totals_of_random_schedules_are_an_independent_accountants() -> None:
    assert len(ANSWERS) == SCHEDULES
    for ((kinds, delta), target, _), answer in zip(random_schedules(), ANSWERS, strict=True):
        releases = [Release("any", sigma, size, count) for size, sigma, count in kinds]
        assert total_epsilon(releases, delta) == pytest.approx(answer[0], rel=1e-6, abs=1e-9)
        assert epsilon_of(1 / answer[1], delta) == pytest.approx(target, rel=1e-6), "at the noise that it needs"


def test_totals_of_poisson_batches_are_an_independent_accountants() -> None:
    checked = 0
    for (_, _, sampled), answer in zip(random_schedules(), ANSWERS, strict=True):
        if sampled is not None:
            steps, delta = sampled
            releases = [Release("any", z, 1.0, count, Sampling.POISSON, rate) for rate, z, count in steps]
            assert total_epsilon(releases, delta) == pytest.approx(answer[2], rel=1e-6, abs=1e-9)
            checked += 1
    assert checked == SCHEDULES // 5


def test_poisson_batches_cost_more_here_than_by_loss_distributions_and_never_less() -> None:
    """By how much stands in docs/privacy.md, and in `rdp.py`."""
    trainings = json.loads(POISSON_PATH.read_text())
    assert [(rate, z, steps) for rate, z, steps, _ in trainings] == POISSON
    ratios = [
        total_epsilon([Release("any", z, 1.0, steps, Sampling.POISSON, rate)], POISSON_DELTA) / tighter
        for rate, z, steps, tighter in trainings
    ]
    assert (round(min(ratios), 2), round(max(ratios), 2)) == (1.08, 1.41)
    assert round(float(np.median(ratios)), 2) == 1.12
    rate, z, steps, tighter = trainings[int(np.argmax(ratios))]
    assert (len(trainings), rate, z, steps, round(tighter, 2)) == (14, 0.002, 0.7, 5000, 1.90)
    assert round(max(ratios) * tighter, 2) == 2.68


def test_releases_add_up_over_the_rounds() -> None:
    """One release a round, (1, 1e-5) each: what ten, fifty and a hundred rounds are worth."""
    mu = 0.26806
    totals = [epsilon_of(compose([mu] * rounds), 1e-5) for rounds in (1, 10, 50, 100)]
    assert np.round(totals, 2).tolist() == [1.0, 3.62, 9.36, 14.43]


def test_no_more_rounds_fit_into_an_epsilon_than_there_are_and_than_it_is_worth() -> None:
    one = Release("any", 1 / 0.26806, 1.0)
    for rounds, expected in ((3, 3), (5, 5), (10, 10), (11, 10), (0, 10)):
        assert rounds_within([one], total_epsilon([one] * 10, 1e-5), 1e-5, rounds) == expected
    assert rounds_within([one], 0.9, 1e-5, 3) == 0


def test_nothing_costs_nothing_and_no_noise_costs_all() -> None:
    assert (epsilon_of(0.0, 1e-5), delta_of(0.0, 0.0), compose([]), total_epsilon([], 1e-5)) == (0.0, 0.0, 0.0, 0.0)
    assert epsilon_of(2 * MU_MAX, 1e-5) == math.inf
    assert epsilon_of(MU_MAX, 1e-5) > 1e7
    assert epsilon_of(1e-9, 1e-5) == 0.0
    for noise in (1e-154, 5e-324):
        assert total_epsilon([Release("a", noise, 2.0), Release("b", noise, 1.0)], 1e-5) == math.inf


def test_poisson_batches_and_full_ones_add_up_on_the_safe_side() -> None:
    full, sampled = Release("a", 4.0, 1.0, 1, Sampling.POISSON, 1.0), Release("b", 2.0, 1.0, 50, Sampling.POISSON, 0.01)
    both = total_epsilon([full, sampled], 1e-5)
    assert both > max(total_epsilon([full], 1e-5), total_epsilon([sampled], 1e-5))
    assert both < total_epsilon([full, Release("b", 2.0, 1.0, 50)], 1e-5), "a secret coin still helps"
    assert total_epsilon([sampled], 1e-5) < total_epsilon([Release("b", 2.0, 1.0, 50)], 1e-5)
