"""DFPL's resource model and convergence bounds as formulas: Zhang et al., "DFPL: Decentralized Federated Prototype
Learning Across Heterogeneous Data Distributions", arXiv:2505.04947, 2025, sections III-E and IV.

Equation numbers are the paper's; two signs that its own derivation contradicts are put right, and both places say so.
Plain numbers in, plain numbers out: nothing is measured here. E local steps of a round, R rounds, eta learning rate,
lambda weight of the distance term, Q sum of squared gradient norms over the steps of a round.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

from fedchain.learning.exceptions import ConfigurationError

SECONDS_MAX = 1e12
"""A longer budget is taken for a typing error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The time that training and mining share, and what they take of it."""

    total_s: float
    """Seconds that all rounds have together, t_sum."""

    iteration_s: float
    """Seconds of one local step, alpha (Eq. 8)."""

    mining_s: float
    """Seconds that a block takes to mine, on average, beta (Eq. 9)."""

    def validate(self) -> None:
        """Raise `ConfigurationError` for a time that cannot be, or if not even one round of one step fits."""
        for name, value in (("t_sum", self.total_s), ("alpha", self.iteration_s)):
            if not 0 < value <= SECONDS_MAX:
                raise ConfigurationError(f"{name} is {value} s, it must be above 0 and at most {SECONDS_MAX:g}")
        if not 0 <= self.mining_s <= SECONDS_MAX:
            raise ConfigurationError(f"beta is {self.mining_s} s, it must be between 0 and {SECONDS_MAX:g}")
        if self.rounds_max < 1:
            needed_s = self.iteration_s + self.mining_s
            raise ConfigurationError(
                f"t_sum is {self.total_s:g} s, but one round of one local step takes alpha + beta = {needed_s:g} s"
            )

    def local_steps(self, rounds: int) -> int:
        """E = floor((t_sum / R - beta) / alpha) (Eq. 11); below 1 where R rounds do not fit.

        In fractions of the decimals given: in binary, (0.7 - 0.1) / 0.2 would be one step short.
        """
        total, alpha, beta = (Fraction(str(value)) for value in (self.total_s, self.iteration_s, self.mining_s))
        return math.floor((total / rounds - beta) / alpha)

    def real_steps(self, rounds: int) -> float:
        """E before it is rounded down, (t_sum - beta R) / (alpha R), which the analysis of section IV works with."""
        return (self.total_s - self.mining_s * rounds) / (self.iteration_s * rounds)

    @property
    def rounds_max(self) -> int:
        """The most rounds that leave each a whole local step."""
        total, alpha, beta = (Fraction(str(value)) for value in (self.total_s, self.iteration_s, self.mining_s))
        return math.floor(total / (alpha + beta))


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """The constants of DFPL's assumptions 1 to 4, and what its corollaries ask about the gradients."""

    smoothness: float
    """L1 (Eq. 12): largest change of a client's full gradient per distance between two checkpoints of a round."""

    lipschitz: float
    """L2 (Eq. 17): largest change of an example's embedding per distance between the extractor's parameters."""

    gradient_norm: float
    """G (Eq. 16): largest mean norm of the batch gradients at one checkpoint."""

    variance: float
    """sigma² (Eq. 15): largest mean squared distance of the batch gradients to the full one at one checkpoint."""

    gap: float
    """Delta: largest loss of a client at the beginning of a round; the optimal loss is taken for 0."""

    gradient_square: float
    """Mean squared norm of the full gradient over a round, smallest over clients and rounds; Q is E times this,
    E not rounded, as in the rest of the bounds."""

    first_gradient_square: float
    """Squared norm of the full gradient at the beginning of a round, smallest over clients and rounds."""


def variation_bound(
    constants: Constants, budget: Budget, rounds: int, *, learning_rate: float, weight: float, gradient_sum: float
) -> float:
    """Theorem 1: how much the loss rises over a round at most, j; a negative value promises that it falls."""
    eta, smooth = learning_rate, constants.smoothness
    descent = (smooth * eta**2 / 2 - eta) * gradient_sum
    noise = smooth * eta**2 * constants.variance / 2
    drift = constants.lipschitz * eta * constants.gradient_norm * weight
    return descent + (noise + drift) * budget.real_steps(rounds)


def learning_rate_max(
    constants: Constants, budget: Budget, rounds: int, *, weight: float, gradient_sum: float
) -> float:
    """Corollary 1: the learning rate below which the loss falls; none does if this is not positive.

    Eq. 23 with Q over the whole round, Eq. 25 with the sum up to a step. Eq. 25 prints L2 t_sum + L2 beta R; the sign
    before beta that follows from Eq. 23, and from Theorem 1, is a minus.
    """
    trained_s = budget.total_s - budget.mining_s * rounds  # t_sum - beta R
    descent = budget.iteration_s * rounds * gradient_sum  # alpha R Q
    drift = weight * constants.lipschitz * constants.gradient_norm * trained_s
    curvature = constants.smoothness * (descent + constants.variance * trained_s)
    return 2 * (descent - drift) / curvature if curvature > 0 else math.inf


def weight_max(constants: Constants, budget: Budget, rounds: int, *, gradient_sum: float) -> float:
    """Corollary 1: the weight lambda below which some learning rate is left (Eq. 24; Eq. 26 with the first step)."""
    trained_s = budget.total_s - budget.mining_s * rounds  # t_sum - beta R
    pull = constants.lipschitz * constants.gradient_norm * trained_s
    return budget.iteration_s * rounds * gradient_sum / pull if pull > 0 else math.inf


def descent_rate(constants: Constants, *, learning_rate: float, weight: float, target: float) -> float:
    """Corollary 2's denominator, (2 eta - L1 eta²) chi - eta (L1 eta sigma² + 2 lambda L2 G).

    It promises something only where this is positive: for chi above `target_floor`.
    """
    eta, smooth = learning_rate, constants.smoothness
    noise = smooth * eta * constants.variance + 2 * weight * constants.lipschitz * constants.gradient_norm
    return (2 * eta - smooth * eta**2) * target - eta * noise


def target_floor(constants: Constants, *, learning_rate: float, weight: float) -> float:
    """The mean squared gradient chi that no number of rounds is promised to go below; infinite if eta ≥ 2 / L1."""
    slope = 2 - constants.smoothness * learning_rate
    noise = constants.smoothness * learning_rate * constants.variance
    drift = 2 * weight * constants.lipschitz * constants.gradient_norm
    return (noise + drift) / slope if slope > 0 else math.inf


def rounds_needed(
    constants: Constants, local_steps: int, *, learning_rate: float, weight: float, target: float
) -> float:
    """Eq. 29: more rounds than this, of a given E, bring the mean squared gradient below chi; infinite: none do."""
    rate = descent_rate(constants, learning_rate=learning_rate, weight=weight, target=target)
    return 2 * constants.gap / (local_steps * rate) if rate > 0 else math.inf


def rounds_limit(
    constants: Constants, budget: Budget, *, learning_rate: float, weight: float, target: float
) -> float | None:
    """Corollary 2: (t_sum - 2 Delta alpha / rate) / beta. None where it promises nothing; infinite without mining.

    The paper prints R > this. Put E = (t_sum - beta R) / (alpha R) into its Eq. 29, R E > 2 Delta / rate, and it reads
    (t_sum - beta R) / alpha > 2 Delta / rate: R must stay *below*, for each block takes time from training.
    """
    rate = descent_rate(constants, learning_rate=learning_rate, weight=weight, target=target)
    if rate <= 0:
        return None
    left_s = budget.total_s - 2 * constants.gap * budget.iteration_s / rate
    if budget.mining_s == 0:
        return math.inf if left_s > 0 else 0.0
    return left_s / budget.mining_s
