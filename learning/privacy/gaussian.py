"""The Gaussian mechanism, exactly: Balle and Wang, "Improving the Gaussian Mechanism for Differential Privacy:
Analytical Calibration and Optimal Denoising", ICML 2018 (arXiv:1805.06530).

A release adds N(0, sigma^2) to every number of a value that one example can move by at most S, its sensitivity, in L2
norm. Only mu = S / sigma matters. Releases compose exactly, chosen one after another or all at once: they are together
as good as one with mu = sqrt(sum of mu_i^2) (Dong, Roth and Su, "Gaussian Differential Privacy", 2022, Corollary 3.3).
So there is one (epsilon, delta) for a whole run, and no bound in it.

The classical sigma = sqrt(2 ln(1.25 / delta)) S / epsilon adds more noise than it must below epsilon = 8.4, at
delta = 10^-5, and promises too much above. It is used nowhere here.

SciPy is imported where it is needed: it would be a sixth of the memory of a trainer that adds no noise.
"""

import math
from collections.abc import Callable, Iterable

from fedchain.learning.exceptions import ConfigurationError

_LOG_ROOT_TWO_PI = 0.5 * math.log(2 * math.pi)

MU_MAX = 1e4
"""A mechanism with a larger mu hides nothing: its epsilon is above 10^7 at any delta."""


def compose(mus: Iterable[float]) -> float:
    """Return the mu of several releases together; 0 of none."""
    return math.sqrt(math.fsum(mu * mu for mu in mus))


def delta_of(mu: float, epsilon: float) -> float:
    """Return the least delta at which a mechanism is (epsilon, delta)-private (Theorem 8), to about 1e-9 of itself."""
    if mu <= 0:
        return 0.0
    return math.exp(_log_delta(mu, epsilon))


def epsilon_of(mu: float, delta: float) -> float:
    """Return the least epsilon at which a mechanism is (epsilon, delta)-private; 0 without any release.

    Raises `ConfigurationError` unless delta lies between 0 and 1; infinite above `MU_MAX`.
    """
    _validate_delta(delta)
    if mu <= 0 or delta_of(mu, 0.0) <= delta:
        return 0.0
    if mu > MU_MAX:
        return math.inf
    high = mu * mu / 2 + mu * math.sqrt(-2 * math.log(delta))  # Phi(-x) <= exp(-x^2 / 2)
    target = math.log(delta)
    return _root(lambda epsilon: _log_delta(mu, epsilon) - target, 0.0, high)


def _log_delta(mu: float, epsilon: float) -> float:
    """log(Phi(a) - e^epsilon Phi(b)), where a = mu / 2 - epsilon / mu and b = a - mu, for mu > 0.

    e^epsilon times the density at b is the density at a, so the second term is that density times Mills' ratio at -b:
    nothing overflows, and far in the tail the common factor leaves only a difference of Mills' ratios.
    """
    from scipy.special import ndtr

    a = mu / 2 - epsilon / mu
    log_density = -a * a / 2 - _LOG_ROOT_TWO_PI
    if a > 0:
        return math.log(float(ndtr(a)) - math.exp(log_density) * _mills(mu - a))
    return log_density + math.log(_mills(-a) - _mills(mu - a))


def _mills(x: float) -> float:
    """(1 - Phi(x)) / density(x), for x >= 0."""
    from scipy.special import erfcx

    return math.sqrt(math.pi / 2) * float(erfcx(x / math.sqrt(2)))


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """Return where a monotonic function is zero, to a few units in the last place."""
    from scipy.optimize import brentq

    if function(low) == 0:
        return low
    return float(brentq(function, low, high, xtol=1e-300, rtol=1e-14, maxiter=500))


def _validate_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise ConfigurationError(f"delta must lie in (0, 1), not {delta}")
