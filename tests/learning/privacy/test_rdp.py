"""Rényi divergences of Poisson batches."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from fedchain.learning.privacy.rdp import ORDERS, epsilon_of_curve, sampled_gaussian


def test_poisson_batches_are_worth_what_the_divergence_of_their_densities_says() -> None:
    """At orders 2 and 5, by integration of Eq. 4 of the sampled Gaussian's analysis."""
    rate, multiplier = 0.2, 0.8

    def moment(alpha: float) -> float:
        def density(x: float) -> float:
            mixture = (1 - rate) * norm.pdf(x, 0, multiplier) + rate * norm.pdf(x, 1, multiplier)
            base = norm.pdf(x, 0, multiplier)
            return float((mixture / base) ** alpha * base)

        return float(quad(density, -12, 18, epsabs=1e-14, epsrel=1e-12, limit=500)[0])

    curve = dict(zip(ORDERS.tolist(), sampled_gaussian(rate, multiplier, 3).tolist(), strict=True))
    for alpha in (2.0, 5.0):
        assert curve[alpha] == pytest.approx(3 * math.log(moment(alpha)) / (alpha - 1), rel=1e-8)


@pytest.mark.parametrize("multiplier", [1e-152, 1e-200, 5e-324])
def test_next_to_no_noise_has_no_epsilon_rather_than_none_to_pay(multiplier: float) -> None:
    assert epsilon_of_curve(sampled_gaussian(0.1, multiplier, 4), 1e-5) == math.inf


def test_a_curve_is_worth_what_the_proposition_says() -> None:
    """The curve is that of the Gaussian mechanism with mu = 1, whose least epsilon is 4.377."""
    assert epsilon_of_curve(ORDERS / 2, 1e-5) == pytest.approx(4.752728, abs=1e-6)


def test_a_little_is_nothing_only_where_no_test_can_tell() -> None:
    """A divergence of 1e-6 allows total variations of 7e-4, far above this delta."""
    assert epsilon_of_curve(np.full_like(ORDERS, 1e-6), 1e-5) > 0.003
    assert epsilon_of_curve(np.full_like(ORDERS, 1e-11), 1e-5) == 0.0


def test_what_rare_batches_cost_is_not_lost_in_rounding() -> None:
    """A step's divergence of order 2 is log(1 + q^2 (e^(1 / z^2) - 1)), which rounds to 0 if 1 is in the sum."""
    for rate, multiplier in ((1e-8, 10.0), (1e-9, 1.0), (1e-6, 300.0)):
        curve = sampled_gaussian(rate, multiplier, 10**6)
        assert curve[0] == pytest.approx(1e6 * rate**2 * math.expm1(multiplier**-2), rel=1e-6)
        assert curve.min() > 0
        assert epsilon_of_curve(curve, 1e-12) > 0
