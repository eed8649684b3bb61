"""An experiment runs what is missing, goes on after interruptions, and keeps what diverged."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedchain.learning.exceptions import TrainingDiverged
from fedchain.simulator.engine.measurement import RoundMetrics
from fedchain.simulator.reproduction import parallel
from fedchain.simulator.reproduction.experiment import load_experiment
from fedchain.simulator.reproduction.library import find_experiment
from fedchain.simulator.reproduction.reproduce import reproduce, run_or_diverge
from fedchain.simulator.scenario import Scenario, ScenarioError
from tests.support.simulator.tiny_experiment import TABLE, fake_results, load


@pytest.mark.long
def test_an_experiment_runs_what_is_missing_and_nothing_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = load(tmp_path, TABLE.replace("seeds = [0, 1]", "seeds = [0]"))
    results = tmp_path / "out" / "results"
    fake_results(experiment, results)
    missing = next(experiment.runs({}))
    (results / f"{missing.key}.json").unlink()
    entries = reproduce(experiment, tmp_path / "out", 1, {})
    assert "2 runs, 1 of them done already" in capsys.readouterr().out
    assert [entry.mean for entry in entries if entry.cell == "more"] == pytest.approx([60.0, 50.0])
    result = json.loads((results / f"{missing.key}.json").read_text())
    assert len(result["rows"]) == 1
    assert result["violations"] == []
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "results", "table.md", "table.csv", "rounds.csv", "table.png",
    }  # fmt: skip


def test_only_some_cells_and_variants_are_run_if_one_asks_for_them(tmp_path: Path) -> None:
    experiment = load(tmp_path)
    assert {(run.cell, run.variant) for run in experiment.runs({}, "more/*after")} == {("more", "FedAvg, after")}
    with pytest.raises(ScenarioError, match="no cell/variant of tiny fits"):
        reproduce(experiment, tmp_path, 1, {}, only="most/*")


@pytest.mark.long
def test_an_interrupted_experiment_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = replace(load(tmp_path), seeds=(0,), plots=("lines", "boxes", "curves", "map"))
    keep = parallel.write_result
    written: list[str] = []

    def interrupted(results: Path, key: str, result: dict[str, Any]) -> None:
        if written:
            raise KeyboardInterrupt
        written.append(key)
        keep(results, key, result)

    monkeypatch.setattr("fedchain.simulator.reproduction.reproduce.write_result", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reproduce(experiment, tmp_path / "out", 1, {})
    (finished,) = (tmp_path / "out" / "results").glob("*.json")
    text = finished.read_text()
    assert finished.stem == written[0]
    monkeypatch.setattr("fedchain.simulator.reproduction.reproduce.write_result", keep)
    entries = reproduce(experiment, tmp_path / "out", 1, {})
    assert len(entries) == 4
    assert finished.read_text() == text, "what was finished is not run again"
    pictures = {path.name for path in (tmp_path / "out").glob("*.png")}
    assert pictures == {"table.png", "boxes.png", "curves.png", "map.png"}


def test_a_run_that_diverges_is_a_result_and_not_the_end() -> None:
    (run, *_) = load_experiment(find_experiment("dfpl-table1-fmnist")).runs({"dataset": "digits", "rounds": 1})
    diverging = replace(run.scenario, hyperparameters={"learning_rate": 1e3, "momentum": 0.99})
    result = run_or_diverge("simulation", diverging, lambda number: None)
    assert result["rows"] == []
    assert "round 1" in result["diverged"]


def test_a_run_that_diverges_keeps_the_rounds_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def diverge(scenario: Scenario, learner: object, on_round: Callable[[RoundMetrics], None]) -> None:
        on_round(RoundMetrics(round=1, height=1, virtual_s=2.0, taa=0.5, tal=1.0))
        raise TrainingDiverged(3, 2, 7, float("nan"))

    monkeypatch.setattr(parallel, "load_learner", lambda scenario: None)
    monkeypatch.setattr(parallel, "simulate", diverge)
    (run, *_) = load(tmp_path).runs({})
    closed: list[int] = []
    result = run_or_diverge("simulation", run.scenario, closed.append)
    assert closed == [1]
    assert [row["taa"] for row in result["rows"]] == [0.5]
    assert result["diverged"].startswith("peer 3, round 2")
