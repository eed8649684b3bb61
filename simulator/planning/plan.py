"""Numbers of rounds in a time budget, by DFPL's resource model (arXiv:2505.04947, sections III-E and IV).

Alpha and beta are measured on this machine, and the corollaries are applied with constants estimated on the
scenario's data.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch

from fedchain.chain.block import Header
from fedchain.chain.difficulty import bits_from_attempts, bits_from_target, work_from_bits
from fedchain.chain.genesis import GENESIS_VERSION
from fedchain.chain.proof_of_work import search_nonce
from fedchain.crypto.hashing import ZERO_HASH
from fedchain.learning.bulk import PartAccess, kinds_of
from fedchain.learning.convergence.estimates import estimate_constants
from fedchain.learning.convergence.theory import (
    Budget,
    Constants,
    learning_rate_max,
    rounds_limit,
    rounds_needed,
    target_floor,
    variation_bound,
    weight_max,
)
from fedchain.learning.device import DEVICE
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.methods.dfpl import Dfpl
from fedchain.learning.round import Round
from fedchain.learning.worker.learner import Learner
from fedchain.node.founding.task import with_shapes
from fedchain.simulator.run import load_learner
from fedchain.simulator.scenario import Scenario

Clock = Callable[[], float]
"""Seconds from an arbitrary origin, like ``time.perf_counter``."""

TIMED_STEPS = 20
"""Number of local steps in one measurement of alpha."""

REPEATS = 5
"""Number of measurements, whose median counts; one more precedes them as a warm-up."""

TIMED_HASHES = {"scrypt": 128, "sha256d": 32_768}
"""Number of hashes in one measurement of the hash rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRounds:
    """Division of the budget for one number of rounds."""

    rounds: int
    """R."""
    local_steps: int
    """E (Eq. 11)."""
    mined_s: float
    """beta · R."""
    trained_s: float
    """E · alpha · R."""
    left_s: float
    """t_sum − beta · R, which the paper's Tables III and IV print under the name E·alpha·R, without the floor in E."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Corollary 1 and Theorem 1 for one number of rounds; a limit of 0 or less admits no value."""

    rounds: int
    weight_max: float
    """Limit of lambda below which the loss can fall over a round (Eq. 24)."""
    weight_max_first: float
    """Limit of lambda below which it can already fall in the first step (Eq. 26)."""
    learning_rate_max: float
    """Limit of eta below which it falls over a round, at the scenario's lambda (Eq. 23)."""
    learning_rate_max_first: float
    """Limit of eta below which it already falls in the first step (Eq. 25, with its sign corrected)."""
    variation: float
    """Upper bound of the loss's change over a round, at the scenario's eta and lambda (Theorem 1)."""
    rounds_needed: float
    """Number of rounds of this E above which the target of Corollary 2 is reached (Eq. 29); infinite if it never is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Theory:
    """Results of DFPL's analysis for a scenario."""

    learning_rate: float
    """eta."""
    weight: float
    """lambda."""
    target: float
    """chi: the mean squared gradient that Corollary 2 is applied to."""
    constants: Constants
    bounds: tuple[Bounds, ...]
    rounds_limit: float | None
    """Corollary 2: R must be less than this; None if it promises the target for no R."""
    target_floor: float
    """The smallest chi that Corollary 2 can promise; infinite if it can promise none."""


def plan_rounds(budget: Budget, rounds_max: int) -> list[PlannedRounds]:
    """The feasible numbers of rounds up to ``rounds_max``; raises ConfigurationError if there is none."""
    budget.validate()
    return [
        PlannedRounds(
            rounds=rounds,
            local_steps=steps,
            mined_s=budget.mining_s * rounds,
            trained_s=steps * budget.iteration_s * rounds,
            left_s=budget.total_s - budget.mining_s * rounds,
        )
        for rounds in range(1, rounds_max + 1)
        if (steps := budget.local_steps(rounds)) >= 1
    ]


def measure_iteration_s(scenario: Scenario, clock: Clock) -> float:
    """Seconds of a local step (alpha) of peer 0, on one thread: the median over some rounds of ``TIMED_STEPS`` steps.

    Time runs from the forward pass of the first step to that of the last, so a method's work before and after its steps
    does not count.
    """
    settings = dict(scenario.hyperparameters) | {"local_steps": TIMED_STEPS, "local_epochs": 0}
    settings.pop("epsilon_budget", None)  # nothing of it is posted
    learner = load_learner(replace(scenario, hyperparameters=settings, device=DEVICE))
    members, material = learner.plan.members, dict(learner.config.material)
    round = Round(0, None, clients=scenario.peers, members=members, me=members[0], material=material, info=learner.info)
    method = learner.method
    phase, kinds = method.phases[0], kinds_of(method, learner.info)
    seconds = []
    for number in range(1, REPEATS + 2):
        starts: list[float] = []

        def note(model: torch.nn.Module, inputs: Any, starts: list[float] = starts) -> None:
            if model.training:
                starts.append(clock())

        with learner.lend(0, number) as client:
            hook = client.model.register_forward_pre_hook(note)
            access = PartAccess(learner.parts(0), kinds, phase.name, {}) if kinds else None
            method.work(phase)(client, replace(round, number=number, bulk=access))
            hook.remove()
        if len(starts) < 2:
            raise ConfigurationError(f"{scenario.method} does not train its model step by step; state alpha")
        seconds.append((starts[-1] - starts[0]) / (TIMED_STEPS - 1))
    return statistics.median(seconds[1:])


def measure_hashes_per_s(proof_function: str, clock: Clock) -> float:
    """Hashes per second of one core, searching a nonce for a target that none meets."""
    header = Header(
        version=GENESIS_VERSION,
        parent_hash=ZERO_HASH,
        height=1,
        round=1,
        phase=0,
        transactions_root=ZERO_HASH,
        certificate_root=ZERO_HASH,
        evidence_root=ZERO_HASH,
        state_root=ZERO_HASH,
        knowledge_root=ZERO_HASH,
        bits=bits_from_target(1),
        miner=bytes(32),
        nonce=0,
    )
    attempts = TIMED_HASHES[proof_function]
    times = [clock()]
    for repeat in range(REPEATS + 1):
        search_nonce(proof_function, header, repeat * attempts, attempts)
        times.append(clock())
    return attempts / statistics.median(end - begin for begin, end in pairwise(times[1:]))


def expected_mining_s(scenario: Scenario, hashes_per_s: float) -> float:
    """Eq. 9: hashes per block, divided by the hash rate of all miners, each with one such core."""
    miners = 1 if scenario.centralized else scenario.members
    return work_from_bits(bits_from_attempts(scenario.mining_attempts)) / (hashes_per_s * miners)


def apply_theory(scenario: Scenario, budget: Budget, planned: Sequence[PlannedRounds], target: float | None) -> Theory:
    """Estimate the constants on the scenario's data and put them into both corollaries.

    Without a ``target``, Corollary 2 is applied to the mean squared gradient that was measured. Raises
    ConfigurationError unless the method is DFPL.
    """
    learner = Learner(with_shapes(scenario.learning_config()))
    constants = estimate_constants(learner, scenario.peers)
    assert isinstance(learner.method, Dfpl), "other methods have no constants"
    eta, weight = learner.method.learning_rate, learner.method.regularizer_weight
    asked = constants.gradient_square if target is None else target
    return theory_of(constants, budget, planned, learning_rate=eta, weight=weight, target=asked)


def theory_of(
    constants: Constants,
    budget: Budget,
    planned: Sequence[PlannedRounds],
    *,
    learning_rate: float,
    weight: float,
    target: float,
) -> Theory:
    """Apply both corollaries to known constants."""
    settings = {"learning_rate": learning_rate, "weight": weight}
    return Theory(
        learning_rate=learning_rate,
        weight=weight,
        target=target,
        constants=constants,
        bounds=tuple(_bounds(constants, budget, row, learning_rate, weight, target) for row in planned),
        rounds_limit=rounds_limit(constants, budget, **settings, target=target),
        target_floor=target_floor(constants, **settings),
    )


def _bounds(
    constants: Constants, budget: Budget, row: PlannedRounds, eta: float, weight: float, target: float
) -> Bounds:
    whole, first = budget.real_steps(row.rounds) * constants.gradient_square, constants.first_gradient_square
    return Bounds(
        rounds=row.rounds,
        weight_max=weight_max(constants, budget, row.rounds, gradient_sum=whole),
        weight_max_first=weight_max(constants, budget, row.rounds, gradient_sum=first),
        learning_rate_max=learning_rate_max(constants, budget, row.rounds, weight=weight, gradient_sum=whole),
        learning_rate_max_first=learning_rate_max(constants, budget, row.rounds, weight=weight, gradient_sum=first),
        variation=variation_bound(constants, budget, row.rounds, learning_rate=eta, weight=weight, gradient_sum=whole),
        rounds_needed=rounds_needed(constants, row.local_steps, learning_rate=eta, weight=weight, target=target),
    )
