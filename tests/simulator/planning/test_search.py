"""The search for the number of rounds is an experiment: a cell for each R, and the best of them in its table."""

import csv
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from fedchain.learning.convergence.theory import Budget
from fedchain.learning.exceptions import ConfigurationError
from fedchain.simulator.planning.plan import plan_rounds
from fedchain.simulator.planning.search import build_search
from fedchain.simulator.reproduction.compare import write_experiment
from fedchain.simulator.reproduction.experiment import Experiment, load_experiment
from fedchain.simulator.reproduction.library import find_experiment
from fedchain.simulator.reproduction.reproduce import reproduce
from fedchain.simulator.scenario import Scenario, ScenarioError
from tests.support.cli_compare import undrawn as undrawn
from tests.support.simulator.trivial import run_trivial

PAPER = Budget(total_s=100.0, iteration_s=1.0, mining_s=4.0)
TINY = Scenario(peers=3, classes_avg=2, proof_function="sha256d", mining_attempts=4)

TABLES = ("dfpl-tables3-4-mnist", "dfpl-tables3-4-fmnist", "dfpl-tables3-4-cifar10")


def search_of(scenario: Scenario, budget: Budget, rounds: int, seeds: int = 1) -> Experiment:
    """As the command builds it."""
    return build_search("tiny", scenario, budget, plan_rounds(budget, rounds), seeds)


def fake_results(
    experiment: Experiment, results: Path, losses: Mapping[int, float], objectives: Mapping[int, float] | None = None
) -> None:
    """Results by R, as if they had been simulated: the first round is better than the last; seed 1 is worse by 0.1."""
    results.mkdir(parents=True)
    for run in experiment.runs({}):
        count, more = run.scenario.rounds, 0.1 * run.seed
        objective = None if objectives is None else objectives[count] + more
        last = {"tal": losses[count] + more, "tal_objective": objective, "taa": 1 - losses[count]}
        first = {"round": 1, "tal": 0.0, "tal_objective": None if objectives is None else 0.0, "taa": 1.0}
        rows = [first, {"round": count, **last}]
        (results / f"{run.key}.json").write_text(json.dumps({"rows": rows}))


def test_a_cell_has_the_budgets_times_and_steps() -> None:
    base = Scenario(
        hyperparameters={"momentum": 0.5, "local_epochs": 2, "local_steps": 99},
        mining_attempts=5000,
        rounds=99,
        seed=3,
        workers=4,
    )
    run = list(search_of(base, PAPER, 6, seeds=2).runs({}))[5]
    trial = run.scenario
    assert trial.hyperparameters == {"momentum": 0.5, "local_epochs": 0, "local_steps": 12}
    assert (trial.rounds, run.seed, trial.seed, trial.iteration_s, trial.mining_s) == (6, 3, 3, 1.0, 4.0)
    assert (trial.mining_attempts, trial.test_every, trial.workers) == (128, 0, 1)
    assert trial.phase_timeout_s == 30 + 12, "a peer that trains is not missing"
    free = search_of(base, Budget(total_s=1e6, iteration_s=1.0, mining_s=0.0), 1)
    (run,) = free.runs({})
    assert run.scenario.mining_s > 0, "the simulator's blocks take some time"
    assert run.scenario.max_virtual_s == 1e7


def test_own_data_are_named_by_their_task() -> None:
    own = Scenario(peers=3, dataset="own", task="tests.support.learning.own_task:load")
    title = search_of(own, PAPER, 1).title
    assert title == "dfpl on tests.support.learning.own_task:load: 100 s for all rounds R together"


def test_training_longer_than_a_phase_waits_drops_no_post() -> None:
    """Twenty steps of 3 s: twice the phase timeout of 30 s, after which peers stop waiting for each other."""
    budget = Budget(total_s=128.0, iteration_s=3.0, mining_s=4.0)
    trial = list(search_of(TINY, budget, 2).runs({}))[1].scenario
    assert trial.hyperparameters["local_steps"] == 20
    outcome = run_trivial(trial)
    assert [row.posts for row in outcome.rows] == [3, 3]
    assert all(row.training_s == pytest.approx(60.0) for row in outcome.rows)
    assert outcome.violations == []


def test_what_was_written_is_read_as_what_was_planned(tmp_path: Path) -> None:
    search = search_of(replace(TINY, data_dir="data"), PAPER, 20, seeds=2)
    (tmp_path / "tiny.toml").write_text(write_experiment(search), encoding="utf-8")
    read = load_experiment(tmp_path / "tiny.toml")
    assert [run.scenario for run in read.runs({})] == [run.scenario for run in search.runs({})]
    assert (read.seeds, read.columns) == ((0, 1), search.columns)
    assert read.is_search


@pytest.mark.usefixtures("undrawn")
def test_the_lowest_mean_loss_after_the_last_round_is_best(tmp_path: Path) -> None:
    search = replace(search_of(TINY, PAPER, 3, seeds=2), expected=("R = 1", "R = 2"))
    fake_results(search, tmp_path / "results", {1: 0.25, 2: 0.23, 3: 0.6}, {1: 0.5, 2: 0.6, 3: 0.4})
    reproduce(search, tmp_path, 1, {})
    lines = (tmp_path / "table.md").read_text(encoding="utf-8").splitlines()
    assert any(line.startswith("| α = 1 s, β = 4 s | R = 2 | 0.2800 ± 0.0707 |") for line in lines)
    assert lines[lines.index("The best cells:") + 2 :] == [
        "| variant | best by loss | loss | best by objective | objective | best by accuracy | accuracy |",
        "|---|---|--:|---|--:|---|--:|",
        "| α = 1 s, β = 4 s | R = 2 | 0.2800 | R = 3 | 0.4500 | R = 2 | 77.00 |",
        "",
        "Best by loss among R = 1, R = 2: 1 of 1 variant.",
        "Best by objective among R = 1, R = 2: 0 of 1 variant.",
        "Best by accuracy among R = 1, R = 2: 1 of 1 variant.",
    ]
    with (tmp_path / "table.csv").open(encoding="utf-8") as file:
        rows = {(row["cell"], row["column"]): row for row in csv.DictReader(file)}
    assert rows["R = 2", "loss"]["seed 1"] == "0.3300"


@pytest.mark.usefixtures("undrawn")
def test_what_is_sought_is_measured() -> None:
    """A scenario that measures nothing ended its search, when all was simulated, in an error."""
    plain = search_of(TINY, PAPER, 2)
    silent = search_of(replace(TINY, evaluate_every=0), PAPER, 2)
    assert {**silent.scenario} == {**plain.scenario, "evaluate_every": 1}
    assert "evaluate_every" not in plain.scenario
    assert search_of(replace(TINY, evaluate_every=3), PAPER, 2).scenario["evaluate_every"] == 3


def test_a_method_that_minimises_nothing_more_has_no_best_objective(tmp_path: Path) -> None:
    search = search_of(TINY, PAPER, 2)
    fake_results(search, tmp_path / "results", {1: 0.25, 2: 0.23})
    reproduce(search, tmp_path, 1, {})
    text = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert "| α = 1 s, β = 4 s | R = 2 | 0.2300 | – | – | R = 2 | 77.00 |" in text


@pytest.mark.usefixtures("undrawn")
def test_rounds_whose_training_diverged_are_not_the_best(tmp_path: Path) -> None:
    search = search_of(TINY, PAPER, 2, seeds=2)
    fake_results(search, tmp_path / "results", {1: 0.25, 2: 0.23}, {1: 0.5, 2: 0.6})
    run = next(run for run in search.runs({}) if run.scenario.rounds == 2)
    (tmp_path / "results" / f"{run.key}.json").write_text(json.dumps({"rows": [], "diverged": "why"}))
    reproduce(search, tmp_path, 1, {})
    text = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert "| α = 1 s, β = 4 s | R = 1 | 0.3000 | R = 1 | 0.5500 | R = 1 | 75.00 |" in text


@pytest.mark.long
@pytest.mark.usefixtures("undrawn")
def test_what_is_missing_is_simulated(tmp_path: Path) -> None:
    search = search_of(TINY, Budget(total_s=12.0, iteration_s=1.0, mining_s=2.0), 3)
    first, second, _ = search.cells
    fake_results(replace(search, cells=(first, second)), tmp_path / "results", {1: 0.25, 2: 9.0}, {1: 0.5, 2: 9.0})
    entries = {entry.column: entry for entry in reproduce(search, tmp_path, 1, {}) if entry.cell == "R = 3"}
    (loss,), (objective,) = entries["loss"].known, entries["objective"].known
    assert 0 < loss < objective < 10, "DFPL minimises more than the loss"
    run = list(search.runs({}))[2]
    kept = json.loads((tmp_path / "results" / f"{run.key}.json").read_text())
    assert [row["posts"] for row in kept["rows"]] == [3, 3, 3]
    assert loss == kept["rows"][-1]["tal"]


def test_a_budget_without_a_round_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="t_sum is 4 s"):
        search_of(TINY, Budget(total_s=4.0, iteration_s=1.0, mining_s=4.0), 1)
    with pytest.raises(ScenarioError, match="iteration_s"):
        search_of(TINY, Budget(total_s=1e10, iteration_s=1e7, mining_s=4.0), 1)


@pytest.mark.parametrize("name", TABLES)
def test_the_shipped_tables_are_the_papers(name: str) -> None:
    table = load_experiment(find_experiment(name))
    assert [cell.name for cell in table.cells] == [f"R = {count}" for count in range(2, 9)]
    assert len(table.variants) == 24
    assert {variant.paper_best for variant in table.variants} <= {"R = 4", "R = 5", "R = 6"}
    times: dict[str, set[tuple[float, float]]] = {"fig5": set(), "fig6": set()}
    runs = list(replace(table, seeds=(0,)).runs({}))
    assert len(runs) == 3 * 7 * 7, "cells with alpha = 1 and beta = 4 stand in both tables"
    for run in runs:
        scenario, variant = run.scenario, table.variant(run.variant)
        budget = Budget(total_s=100.0, iteration_s=scenario.iteration_s, mining_s=scenario.mining_s)
        assert scenario.hyperparameters["local_steps"] == budget.local_steps(scenario.rounds) >= 1
        assert scenario.phase_timeout_s >= 30 + scenario.iteration_s * budget.local_steps(scenario.rounds)
        assert variant.figure.endswith(f"{scenario.classes_avg}-{scenario.classes_std}")
        assert f"({scenario.classes_avg}, {scenario.classes_std})" in variant.name
    for variant in table.variants:
        times[variant.figure[:4]].add((variant.scenario["iteration_s"], variant.scenario["mining_s"]))
    assert times == {
        "fig5": {(1, 4), (2, 4), (3, 4), (4, 4)},
        "fig6": {(1, 4), (1, 5), (1, 6), (1, 7)},
    }


def test_blade_fl_s_rounds_have_the_steps_that_mining_leaves() -> None:
    table = load_experiment(find_experiment("bladefl-rounds"))
    budget = Budget(total_s=100.0, iteration_s=1.0, mining_s=10.0)
    scenarios = [run.scenario for run in replace(table, seeds=(0,)).runs({})]
    planned = {row.rounds: row.local_steps for row in plan_rounds(budget, 20)}
    assert {item.rounds: item.hyperparameters["local_steps"] for item in scenarios} == planned
    assert {(item.iteration_s, item.mining_s) for item in scenarios} == {(1.0, 10.0)}
    assert all(item.phase_timeout_s == 30 + planned[item.rounds] for item in scenarios)


def test_each_figure_is_a_picture_and_the_papers_best_stands_beside_ours(tmp_path: Path) -> None:
    table = load_experiment(find_experiment("dfpl-tables3-4-fmnist"))
    small = {"dataset": "digits", "peers": 3, "classes_avg": 3}
    one, other = table.variants[0], table.variants[-1]
    table = replace(table, scenario={**table.scenario, **small}, variants=(one, other), seeds=(0,))
    losses = {count: abs(count - 5) / 10 for count in range(2, 9)}
    fake_results(table, tmp_path / "results", losses, losses)
    reproduce(table, tmp_path, 1, {})
    text = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert "| III (3, 1), α = 1 | R = 6 | R = 5 | 0.0000 | 0.1000 | R = 5 | 0.0000 | 0.1000 |" in text
    assert "Best by objective among R = 4, R = 5, R = 6: 2 of 2 variants." in text
    assert {path.name for path in tmp_path.glob("*.png")} == {"fig5-3-1.png", "fig6-4-1.png"}
