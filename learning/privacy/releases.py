"""A member's releases, and the privacy that they cost together: the arithmetic behind a privacy ledger."""

from __future__ import annotations

import enum
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedchain.learning.privacy.gaussian import MU_MAX, compose, epsilon_of
from fedchain.learning.privacy.rdp import MULTIPLIER_MIN, ORDERS, epsilon_of_curve, sampled_gaussian


class Sampling(enum.Enum):
    """Which examples a release is computed from. Neighbouring data sets differ accordingly."""

    ALL = "all"
    """All of them. Neighbours differ by one example replaced by another of its class."""

    SHUFFLED = "shuffled"
    """Disjoint batches of passes in an order that everybody knows: an example is in one batch of each pass. Neighbours
    differ by one example replaced by another, in its place. Keeping an example's batch secret would amplify privacy; no
    such amplification is claimed."""

    POISSON = "poisson"
    """Batches that each example joins by a coin of its own, which is kept private. Neighbours differ by one example
    added or removed."""


@dataclass(frozen=True, slots=True)
class Release:
    """Gaussian noise that was added to values of one kind, all in one phase of one round."""

    mechanism: str
    """Kind of the released values: prototypes, gradients."""

    sigma: float
    """Standard deviation of the noise, in units of the value."""

    sensitivity: float
    """How far neighbouring data sets move one value at most, in L2 norm and the same units."""

    count: int = 1
    """How many values one example moves; with Poisson batches, how many values there are."""

    sampling: Sampling = Sampling.ALL
    """How examples were chosen."""

    rate: float = 1.0
    """Probability that an example joins a Poisson batch, q; 1 otherwise."""

    @property
    def multiplier(self) -> float:
        """Sigma over sensitivity."""
        return self.sigma / self.sensitivity


def rounds_within(releases: Sequence[Release], epsilon: float, delta: float, rounds: int) -> int:
    """Return how many rounds of these releases fit into an epsilon, at most so many; 0 rounds: until it is spent."""

    def fits(count: int) -> bool:
        return total_epsilon([replace(each, count=count * each.count) for each in releases], delta) <= epsilon

    most = 1
    while fits(most) and not 0 < rounds <= most:
        most *= 2
    most = min(most, rounds) if rounds else most
    return bisect_left(range(1, most + 1), True, key=lambda count: not fits(count))


def total_epsilon(releases: Iterable[Release], delta: float) -> float:
    """Return the least known epsilon at which all releases together are (epsilon, delta)-private; 0 of none.

    Exact by Gaussian composition, unless there are Poisson batches: their Rényi curves give an upper bound.
    """
    groups = Counter[tuple[float, float]]()  # by rate and multiplier
    for release in releases:
        groups[release.rate, release.multiplier] += release.count
    if not groups:
        return 0.0
    if all(rate == 1.0 for rate, _ in groups):
        # Beyond MU_MAX nothing is hidden; the squares of larger ones may be no numbers.
        mus = (math.sqrt(count) / max(multiplier, MULTIPLIER_MIN) for (_, multiplier), count in groups.items())
        return epsilon_of(compose(min(mu, 2 * MU_MAX) for mu in mus), delta)
    curve = np.zeros_like(ORDERS)
    for (rate, multiplier), count in groups.items():
        curve = curve + sampled_gaussian(rate, multiplier, count)
    return epsilon_of_curve(curve, delta)
