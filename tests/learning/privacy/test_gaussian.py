"""Epsilon and delta are computed as an independent accountant does, and as their definition says."""

import math
from statistics import NormalDist

import pytest
from scipy.integrate import quad
from scipy.stats import norm

from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.privacy.gaussian import delta_of, epsilon_of


@pytest.mark.parametrize(("mu", "epsilon"), [(0.3, 0.5), (1.0, 1.0), (2.0, 0.0), (4.0, 12.0)])
def test_delta_is_what_its_definition_says(mu: float, epsilon: float) -> None:
    """delta = integral of max(0, density of N(mu, 1) - e^epsilon density of N(0, 1))."""

    def excess(x: float) -> float:
        return max(0.0, float(norm.pdf(x, mu) - math.exp(epsilon) * norm.pdf(x)))

    begin = epsilon / mu + mu / 2  # where the densities' ratio is e^epsilon
    expected, _ = quad(excess, begin, begin + 40, epsabs=1e-14, epsrel=1e-12, limit=500)
    assert delta_of(mu, epsilon) == pytest.approx(expected, rel=1e-9)


def test_each_function_is_the_others_inverse() -> None:
    for mu in (1e-3, 0.5, 2.0, 18.0):
        for delta in (1e-10, 1e-5, 1e-4):
            epsilon = epsilon_of(mu, delta)
            assert delta_of(mu, epsilon) == pytest.approx(delta, rel=1e-8)


def test_a_mechanism_that_hides_more_than_delta_asks_has_an_epsilon_of_zero() -> None:
    """Its delta at 0 is 2 Phi(mu / 2) - 1, about mu / sqrt(2 pi)."""
    for delta in (1e-5, 0.1, 0.9):
        mu = 2 * NormalDist().inv_cdf((1 + delta) / 2)
        assert epsilon_of(mu * (1 - 1e-6), delta) == epsilon_of(mu * 1e-9, delta) == 0.0
        assert 0 < epsilon_of(mu * (1 + 1e-3), delta) < 1e-2
    assert epsilon_of(0.0, 1e-5) == 0.0, "nothing was let out"


@pytest.mark.parametrize(
    ("delta", "message"),
    [(0.0, r"delta must lie in \(0, 1\), not 0"), (1.0, r"delta must lie in \(0, 1\), not 1")],
)
def test_a_delta_that_cannot_be_is_refused(delta: float, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        epsilon_of(1.0, delta)
