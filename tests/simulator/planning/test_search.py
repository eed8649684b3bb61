"""The search simulates each feasible R once per seed, keeps what it has, and picks the lowest mean loss."""

import csv
import json
from pathlib import Path

import pytest

from fedchain.learning.convergence.theory import Budget
from fedchain.learning.exceptions import ConfigurationError
from fedchain.simulator.planning.search import best_trial, search, trial_scenario, write_trials
from fedchain.simulator.reproduction.experiment import key_of
from fedchain.simulator.scenario import Scenario, ScenarioError
from tests.support.simulator.trivial import run_trivial

PAPER = Budget(total_s=100.0, iteration_s=1.0, mining_s=4.0)
TINY = Scenario(peers=3, classes_avg=2, proof_function="sha256d", mining_attempts=4)


def fake_results(
    folder: Path,
    scenario: Scenario,
    budget: Budget,
    losses: dict[tuple[int, int], float],
    objectives: dict[tuple[int, int], float] | None = None,
) -> None:
    """Results of (R, seed), as if they had been simulated: the first round is better than the last."""
    folder.mkdir(parents=True, exist_ok=True)
    for (rounds, seed), loss in losses.items():
        objective = None if objectives is None else objectives[rounds, seed]
        rows = [{"tal": 0.0, "taa": 1.0}, {"tal": loss, "tal_objective": objective, "taa": 1 - loss}]
        key = key_of(trial_scenario(scenario, budget, rounds, seed))
        (folder / f"{key}.json").write_text(json.dumps({"rows": rows}))


def test_a_trial_has_the_budgets_times_and_the_seeds_data() -> None:
    base = Scenario(
        hyperparameters={"momentum": 0.5, "local_epochs": 2, "local_steps": 99}, mining_attempts=5000, rounds=99
    )
    trial = trial_scenario(base, PAPER, 6, 3)
    assert trial.hyperparameters == {"momentum": 0.5, "local_epochs": 0, "local_steps": 12}
    assert (trial.rounds, trial.seed, trial.iteration_s, trial.mining_s) == (6, 3, 1.0, 4.0)
    assert (trial.mining_attempts, trial.test_every, trial.shared_verification) == (128, 0, True)
    assert trial.learning_config().seed == 3
    free = trial_scenario(base, Budget(total_s=1e6, iteration_s=1.0, mining_s=0.0), 6, 3)
    assert free.mining_s > 0, "the simulator's blocks take some time"
    assert free.max_virtual_s == 1e7


def test_training_longer_than_a_phase_waits_drops_no_post() -> None:
    """Twenty steps of 3 s: twice the phase timeout of 30 s, after which peers stop waiting for each other."""
    budget = Budget(total_s=128.0, iteration_s=3.0, mining_s=4.0)
    trial = trial_scenario(TINY, budget, 2, 0)
    assert trial.hyperparameters["local_steps"] == 20
    outcome = run_trivial(trial)
    assert [row.posts for row in outcome.rows] == [3, 3]
    assert all(row.training_s == pytest.approx(60.0) for row in outcome.rows)
    assert outcome.violations == []


def test_the_lowest_mean_loss_after_the_last_round_wins(tmp_path: Path) -> None:
    losses = {(5, 0): 0.30, (5, 1): 0.20, (6, 0): 0.10, (6, 1): 0.36, (20, 0): 0.5, (20, 1): 0.7}
    fake_results(tmp_path / "results", TINY, PAPER, losses)
    trials = search(TINY, PAPER, [5, 6, 20, 21, 30], [0, 1], 1, results=tmp_path / "results")
    assert [trial.rounds for trial in trials] == [5, 6, 20], "21 and 30 leave no step"
    assert [trial.loss for trial in trials] == pytest.approx([0.25, 0.23, 0.6])
    assert trials[0].losses == (0.30, 0.20)
    assert trials[0].loss_deviation == pytest.approx(0.0707106781)
    assert trials[0].accuracy == pytest.approx(0.75)
    assert best_trial(trials).rounds == 6
    assert (trials[1].mined_s, trials[1].trained_s) == (24, 72)
    write_trials(tmp_path, trials, "paper")
    with (tmp_path / "search.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["rounds"], row["local_steps"], row["loss"]) for row in rows][1] == ("6", "12", "0.230000")
    assert rows[1]["loss 1"] == "0.360000"
    assert (tmp_path / "search.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.long
def test_only_what_is_missing_is_simulated_and_the_result_stays(tmp_path: Path) -> None:
    budget = Budget(total_s=12.0, iteration_s=1.0, mining_s=2.0)
    fake_results(tmp_path, TINY, budget, {(3, 0): 0.125})
    trials = search(TINY, budget, [2, 3], [0], 1, results=tmp_path)
    assert trials[1].losses == (0.125,)
    assert 0 < trials[0].loss < trials[0].objective < 10, "DFPL minimises more than the loss"
    kept = json.loads((tmp_path / f"{key_of(trial_scenario(TINY, budget, 2, 0))}.json").read_text())
    assert len(kept["rows"]) == 2
    assert trials[0].losses == (kept["rows"][-1]["tal"],)
    assert all(row["posts"] == 3 for row in kept["rows"])


def test_nothing_to_search_is_said() -> None:
    with pytest.raises(ScenarioError, match="R = 21 to 30 leaves no local step; at most 20 rounds fit"):
        search(TINY, PAPER, range(21, 31), [0], 1)
    with pytest.raises(ConfigurationError, match="t_sum is 4 s"):
        search(TINY, Budget(total_s=4.0, iteration_s=1.0, mining_s=4.0), [1], [0], 1)
