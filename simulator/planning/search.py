"""The search for the number of rounds: DFPL simulated for every R that a time budget allows (arXiv:2505.04947, V-D).

More rounds exchange more often but lose more time to mining: E = floor((t_sum / R - beta) / alpha) local steps are
left of each. Which R ends with the lowest loss is an experimental question; the paper's answer is four to six.
"""

import csv
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedchain.learning.convergence.theory import Budget
from fedchain.simulator.palette import colour, line_style
from fedchain.simulator.reproduction.experiment import key_of
from fedchain.simulator.reproduction.parallel import run_all, write_result
from fedchain.simulator.reproduction.table import read_result
from fedchain.simulator.scenario import Scenario, ScenarioError
from fedchain.terminal import Console

MINING_S_MIN = 0.004
"""The shortest mining time that the simulator takes."""

ATTEMPTS_MAX = 128
"""Real hashes behind a simulated block: virtual times do not depend on their number."""


CRITERIA = ("loss", "objective")
"""How good a trial is: cross-entropy on the test sets, or there too all that the method minimises. The paper's "test
average loss" can mean either."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One number of rounds, simulated under every seed."""

    rounds: int
    """R."""
    local_steps: int
    """E, of Eq. 11."""
    mined_s: float
    """Seconds of mining, beta · R."""
    trained_s: float
    """Seconds of training, E · alpha · R: what the floor leaves of t_sum − beta · R."""
    losses: tuple[float, ...]
    """TAL after the last round, in nats, by seed."""
    objectives: tuple[float | None, ...]
    """What the method minimises on the same test sets, in nats, by seed; None where it adds nothing to the loss."""
    accuracies: tuple[float, ...]
    """TAA after the last round, as a fraction, by seed."""

    @property
    def loss(self) -> float:
        """Mean loss over the seeds, in nats."""
        return statistics.mean(self.losses)

    @property
    def loss_deviation(self) -> float | None:
        """Standard deviation of the loss over the seeds (n − 1); None for one seed, which has none."""
        return statistics.stdev(self.losses) if len(self.losses) > 1 else None

    @property
    def objective(self) -> float:
        """Mean over the seeds of what the method minimises, in nats: the loss where that is all."""
        pairs = zip(self.objectives, self.losses, strict=True)
        return statistics.mean(loss if objective is None else objective for objective, loss in pairs)

    @property
    def accuracy(self) -> float:
        """Mean accuracy over the seeds, as a fraction."""
        return statistics.mean(self.accuracies)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        values = {name: getattr(self, name) for name in ("rounds", "local_steps", "mined_s", "trained_s")}
        means = {name: getattr(self, name) for name in ("loss", "loss_deviation", "objective", "accuracy")}
        return values | means | {name: list(getattr(self, name)) for name in ("losses", "objectives", "accuracies")}


def search(
    scenario: Scenario,
    budget: Budget,
    rounds: Sequence[int],
    seeds: Sequence[int],
    jobs: int,
    *,
    results: Path | None = None,
    console: Console | None = None,
) -> list[Trial]:
    """Simulate the scenario for each R in ``rounds`` that leaves a local step, under each seed.

    Args:
        scenario: its rounds, local steps, times and seed are replaced.
        budget: t_sum, alpha and beta.
        rounds: candidates for R; those with E < 1 are left out.
        seeds: at least one.
        jobs: simulations at a time.
        results: folder that keeps each finished run, and from which it is taken the next time; None: in memory only.
        console: where progress goes; None: nowhere.

    Raises:
        ScenarioError: no R is feasible, or a simulation did not end.
        LearningError: the data cannot be spread like that, or training diverged.
    """
    budget.validate()
    feasible = [count for count in rounds if budget.local_steps(count) >= 1]
    if not feasible:
        raise ScenarioError(f"R = {_span(rounds)} leaves no local step; at most {budget.rounds_max} rounds fit")
    scenarios = {(count, seed): trial_scenario(scenario, budget, count, seed) for seed in seeds for count in feasible}
    outcomes = _run_missing(scenarios, jobs, results, console or Console(quiet=True))
    return [
        Trial(
            rounds=count,
            local_steps=budget.local_steps(count),
            mined_s=budget.mining_s * count,
            trained_s=budget.local_steps(count) * budget.iteration_s * count,
            losses=tuple(outcomes[count, seed]["tal"] for seed in seeds),
            objectives=tuple(outcomes[count, seed].get("tal_objective") for seed in seeds),
            accuracies=tuple(outcomes[count, seed]["taa"] for seed in seeds),
        )
        for count in feasible
    ]


def best_trial(trials: Sequence[Trial], criterion: str = "loss") -> Trial:
    """The one with the lowest mean in one of ``CRITERIA``, which is what the paper's Tables III and IV call optimal."""
    return min(trials, key=lambda trial: getattr(trial, criterion))


def trial_scenario(scenario: Scenario, budget: Budget, rounds: int, seed: int) -> Scenario:
    """The scenario with R rounds of E local steps, one of which takes alpha and a block beta virtual seconds."""
    steps = budget.local_steps(rounds)
    settings = dict(scenario.hyperparameters) | {"local_steps": steps, "local_epochs": 0}
    trial = replace(
        scenario,
        rounds=rounds,
        seed=seed,
        hyperparameters=settings,
        iteration_s=budget.iteration_s,
        mining_s=max(budget.mining_s, MINING_S_MIN),
        mining_attempts=min(scenario.mining_attempts, ATTEMPTS_MAX),
        # A phase is timed from its beginning: training alone must not make anybody look missing.
        phase_timeout_s=scenario.phase_timeout_s + steps * budget.iteration_s,
        max_virtual_s=max(scenario.max_virtual_s, 10 * budget.total_s),
        test_every=0,
        shared_verification=True,
        workers=1,
    )
    trial.validate()
    return trial


def write_trials(folder: Path, trials: Sequence[Trial], title: str) -> None:
    """Write ``search.csv`` and ``search.png``."""
    seeds = len(trials[0].losses)
    with (folder / "search.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(
            ["rounds", "local_steps", "mined_s", "trained_s", "loss", "loss_sd", "objective", "accuracy"]
            + [f"loss {place}" for place in range(seeds)]
        )
        for trial in trials:
            measured = [trial.loss, trial.loss_deviation, trial.objective, trial.accuracy, *trial.losses]
            times = [f"{value:g}" for value in (trial.mined_s, trial.trained_s)]
            shown = ("" if value is None else f"{value:.6f}" for value in measured)
            writer.writerow([trial.rounds, trial.local_steps, *times, *shown])
    draw_trials({title: trials}, folder / "search.png")


def draw_trials(curves: Mapping[str, Sequence[Trial]], path: Path) -> None:
    """Loss against the number of rounds, as in the paper's Figs. 5 and 6; the best of each curve is marked.

    Where the method minimises more than the loss, that is drawn beside it.
    """
    from matplotlib.figure import Figure  # slow to import
    from matplotlib.ticker import MaxNLocator

    has_objective = any(None not in trial.objectives for trials in curves.values() for trial in trials)
    shown = CRITERIA if has_objective else CRITERIA[:1]
    figure = Figure(figsize=(6.0 * len(shown), 4.0), layout="constrained")
    for axes, criterion in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
        for place, (label, trials) in enumerate(curves.items()):
            at, values = ([getattr(trial, name) for trial in trials] for name in ("rounds", criterion))
            axes.plot(at, values, label=label, **line_style(place, len(curves)))
            best = best_trial(trials, criterion)
            axes.plot([best.rounds], [getattr(best, criterion)], marker="*", markersize=13, color=colour(place))
        axes.set(xlabel="rounds R", ylabel=f"test {criterion} after the last round (nats)")
        axes.set_title("best number of rounds: star", fontsize=9)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(fontsize=7)
    figure.savefig(path, dpi=130)


def _run_missing(
    scenarios: Mapping[tuple[int, int], Scenario], jobs: int, results: Path | None, console: Console
) -> dict[tuple[int, int], dict[str, Any]]:
    """The last round's row of every run, by rounds and seed."""
    found: dict[tuple[int, int], dict[str, Any]] = {}
    if results is not None:
        try:
            results.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ScenarioError(f"{results} cannot be made: {error.strerror}") from None
        for which, scenario in scenarios.items():
            if (result := read_result(results / f"{key_of(scenario)}.json")) is not None:
                found[which] = dict(result.rows[-1])
    missing = [which for which in scenarios if which not in found]

    def keep(place: int, result: dict[str, Any]) -> str:
        which = missing[place]
        found[which] = last = result["rows"][-1]
        if results is not None:
            write_result(results, key_of(scenarios[which]), result)
        return f"R = {which[0]}  seed {which[1]}: loss {last['tal']:.4f}, accuracy {100 * last['taa']:.2f} %"

    run_all([scenarios[which] for which in missing], jobs, keep, console)
    return found


def _span(rounds: Sequence[int]) -> str:
    return f"{min(rounds)} to {max(rounds)}" if len(rounds) > 1 else ", ".join(map(str, rounds)) or "none"
