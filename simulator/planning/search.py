"""The search for the number of rounds as an experiment: a cell for each R that a budget allows (arXiv:2505.04947, V-D).

More rounds exchange more often but lose more time to mining: each has E = floor((t_sum / R - beta) / alpha) local
steps. The R with the lowest loss has to be found by experiment; the paper finds four to six.
"""

from collections.abc import Sequence
from typing import Any

from fedchain.learning.convergence.theory import Budget
from fedchain.simulator.planning.plan import PlannedRounds
from fedchain.simulator.reproduction.experiment import Cell, Column, Experiment, Variant
from fedchain.simulator.scenario import Scenario

MINING_S_MIN = 0.004
"""The shortest mining time that the simulator accepts."""

ATTEMPTS_MAX = 128
"""Largest number of real hashes per simulated block: virtual times do not depend on it."""

COLUMNS = (
    Column(name="loss", statistic="last", metric="tal", seek="lowest"),
    Column(name="objective", statistic="last", metric="tal_objective", seek="lowest", is_optional=True),
    Column(name="accuracy", statistic="last", metric="taa", seek="highest"),
)
"""Measures of a number of rounds, after the last one: cross-entropy on the test sets; the method's whole objective
there, if it has more terms; and accuracy. The paper's "test average loss" can mean either of the losses."""


def build_search(
    name: str, scenario: Scenario, budget: Budget, planned: Sequence[PlannedRounds], seeds: int
) -> Experiment:
    """Build the experiment that simulates a scenario for each number of rounds.

    Args:
        name: name of the experiment.
        scenario: its rounds, local steps, times and seed are replaced.
        budget: t_sum, alpha and beta.
        planned: the numbers of rounds, with the local steps that each leaves.
        seeds: number of seeds, from the scenario's on.

    Raises:
        ScenarioError, ConfigurationError: a scenario would be impossible.
    """
    dataset = scenario.task or scenario.dataset
    experiment = Experiment(
        name=name,
        title=f"{scenario.method} on {dataset}: {budget.total_s:g} s for all rounds R together",
        seeds=tuple(range(scenario.seed, scenario.seed + seeds)),
        plots=("lines",),
        scenario=_shared(scenario, budget),
        columns=COLUMNS,
        cells=tuple(_cell(scenario, budget, row) for row in planned),
        variants=(Variant(name=f"α = {budget.iteration_s:g} s, β = {budget.mining_s:g} s"),),
    )
    list(experiment.runs({}))  # raises for impossible runs before anything is written
    return experiment


def _cell(scenario: Scenario, budget: Budget, row: PlannedRounds) -> Cell:
    # A phase is timed from its beginning: time spent on training must not make a peer look missing.
    timeout_s = scenario.phase_timeout_s + row.local_steps * budget.iteration_s
    return Cell(
        name=f"R = {row.rounds}",
        scenario={"rounds": row.rounds, "phase_timeout_s": timeout_s},
        hyperparameters={"local_steps": row.local_steps},
    )


def _shared(scenario: Scenario, budget: Budget) -> dict[str, Any]:
    """Values that all runs share: those of the scenario that are not defaults, and the budget's."""
    default = Scenario().to_dict()
    values = scenario.to_dict().items()
    stated = {name: value for name, value in values if value != default.get(name) and name != "seed"}
    measured = {} if scenario.evaluate_every else {"evaluate_every": Scenario().evaluate_every}  # the loss is sought
    return (stated | measured) | {
        "dataset": scenario.dataset,
        "method": scenario.method,
        "hyperparameters": dict(scenario.hyperparameters) | {"local_epochs": 0},
        "iteration_s": budget.iteration_s,
        "mining_s": max(budget.mining_s, MINING_S_MIN),
        "mining_attempts": min(scenario.mining_attempts, ATTEMPTS_MAX),
        "max_virtual_s": max(scenario.max_virtual_s, 10 * budget.total_s),
        "test_every": 0,
        "workers": 1,
    }
