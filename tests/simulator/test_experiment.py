"""An experiment runs each distinct simulation once, resumes where it was, and sets ours beside the paper's."""

import json
from pathlib import Path
from typing import Any

import pytest

from fedchain.simulator.experiment import Experiment, load_experiment
from fedchain.simulator.reproduce import reproduce, tabulate, to_markdown
from fedchain.simulator.scenario import ScenarioError, read_toml

TABLE = """
name = "tiny"
title = "A tiny table"
source = "Somebody, Table I"
seeds = [0, 1]
statistic = "best"

[scenario]
peers = 3
rounds = 1
workers = 1
mining_attempts = 4
proof_function = "sha256d"

[scenario.hyperparameters]
local_steps = 2

[[cells]]
name = "few"
scenario = { classes_avg = 2 }

[[cells]]
name = "more"
scenario = { classes_avg = 4 }

[[variants]]
name = "FedAvg, before"
scenario = { method = "fedavg" }
paper = { few = 50.0 }

[[variants]]
name = "FedAvg, after"
scenario = { method = "fedavg" }
metric = "taa_received"
"""


def _load(tmp_path: Path, text: str = TABLE) -> Experiment:
    path = tmp_path / "tiny.toml"
    path.write_text(text)
    return load_experiment(path)


def _fake_results(experiment: Experiment, results: Path) -> None:
    """Accuracies that depend on seed and cell: 40, 50 for few; 60, 70 for more, and ten points less after."""
    results.mkdir(parents=True, exist_ok=True)
    for run in experiment.runs({}):
        taa = (0.4 if run.cell == "few" else 0.6) + 0.1 * run.seed
        rows: list[dict[str, Any]] = [{"taa": taa - 0.2, "taa_received": None}, {"taa": taa, "taa_received": taa - 0.1}]
        (results / f"{run.key}.json").write_text(json.dumps({"rows": rows}))


def test_variants_that_differ_only_in_what_they_report_share_their_runs(tmp_path: Path) -> None:
    runs = list(_load(tmp_path).runs({}))
    assert len(runs) == 4, "2 seeds × 2 cells, once for both variants"
    assert [run.seed for run in runs] == [0, 0, 1, 1], "whole columns first"
    assert len({run.key for run in runs}) == 4
    assert runs[0].scenario.hyperparameters == {"local_steps": 2}


def test_a_run_is_named_by_what_it_computes_and_not_by_where_it_runs(tmp_path: Path) -> None:
    experiment = _load(tmp_path)
    keys = [run.key for run in experiment.runs({})]
    assert [run.key for run in experiment.runs({"data_dir": "elsewhere", "workers": 2})] == keys
    assert not {run.key for run in experiment.runs({"rounds": 2})} & set(keys)


def test_the_table_has_mean_deviation_and_difference(tmp_path: Path) -> None:
    experiment = _load(tmp_path)
    _fake_results(experiment, tmp_path / "results")
    entries = {(entry.variant, entry.cell): entry for entry in tabulate(experiment, tmp_path / "results", {})}
    few = entries["FedAvg, before", "few"]
    assert few.values == pytest.approx((40.0, 50.0))
    assert few.mean == pytest.approx(45.0)
    assert few.deviation == pytest.approx(7.0710678)
    assert few.difference == pytest.approx(-5.0)
    after = entries["FedAvg, after", "more"]
    assert after.mean == pytest.approx(55.0)
    assert after.difference is None
    text = to_markdown(experiment, list(entries.values()))
    assert "| FedAvg, before | few | 50.00 | 45.00 ± 7.07 | -5.00 |" in text
    assert "| FedAvg, after | more | – | 55.00 ± 7.07 | – |" in text


def test_an_experiment_runs_what_is_missing_and_nothing_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = _load(tmp_path, TABLE.replace("seeds = [0, 1]", "seeds = [0]"))
    results = tmp_path / "out" / "results"
    _fake_results(experiment, results)
    missing = next(experiment.runs({}))
    (results / f"{missing.key}.json").unlink()
    entries = reproduce(experiment, tmp_path / "out", 1, {})
    assert "2 runs, 1 of them done already" in capsys.readouterr().out
    assert [entry.mean for entry in entries if entry.cell == "more"] == pytest.approx([60.0, 50.0])
    result = json.loads((results / f"{missing.key}.json").read_text())
    assert len(result["rows"]) == 1
    assert result["violations"] == []
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"results", "table.md", "table.csv", "table.png"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('statistic = "best"', 'statistic = "bets"', "statistic is 'bets'; did you mean 'best'"),
        ("seeds = [0, 1]", "seedz = [0, 1]", "has no key 'seedz'; did you mean 'seeds'"),
        ("paper = { few = 50.0 }", "paper = { fewer = 50.0 }", "has a paper number for 'fewer', which is not a cell"),
        ('metric = "taa_received"', 'metric = "taa_recieved"', "did you mean 'taa_received'"),
        ('source = "Somebody, Table I"\n', "", "lacks the key 'source'"),
    ],
)
def test_a_mistake_in_the_file_is_one_clear_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        _load(tmp_path, TABLE.replace(old, new))


TABLES = [path for path in sorted(Path("experiments").glob("*.toml")) if "kind" not in read_toml(path)]


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_the_experiments_that_ship_are_sound(path: Path) -> None:
    experiment = load_experiment(path)
    assert len(list(experiment.runs({}))) >= len(experiment.seeds)
