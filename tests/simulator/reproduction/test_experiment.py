"""An experiment runs each distinct simulation once, resumes where it was, and sets ours beside the paper's."""

import csv
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner

from fedchain.cli.main import app
from fedchain.files.tables import read_toml
from fedchain.learning.exceptions import TrainingDiverged
from fedchain.learning.privacy.gaussian import compose, epsilon_of
from fedchain.learning.registry import build_method
from fedchain.simulator.engine.measurement import RoundMetrics
from fedchain.simulator.reproduction import parallel
from fedchain.simulator.reproduction.experiment import Experiment, Statistic, first_seeds, key_of, load_experiment
from fedchain.simulator.reproduction.library import experiment_files, find_experiment, list_experiments
from fedchain.simulator.reproduction.markdown import to_markdown
from fedchain.simulator.reproduction.plots import draw, draw_curves
from fedchain.simulator.reproduction.reproduce import reproduce, run_or_diverge
from fedchain.simulator.reproduction.table import tabulate, write_csv
from fedchain.simulator.scenario import Scenario, ScenarioError

TABLE = """
name = "tiny"
title = "A tiny table"
source = "Somebody, Table I"
seeds = [0, 1]

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
paper = { few = [50.0] }

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
        first, second = {"taa": taa - 0.2, "taa_received": None}, {"taa": taa, "taa_received": taa - 0.1}
        rows: list[dict[str, Any]] = [{"round": 1, **first}, {"round": 2, **second}]
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


def test_settings_of_one_meaning_are_one_run() -> None:
    one, other = Scenario(classes_avg=4, classes_std=2), Scenario(classes_avg=3, classes_std=3)
    assert key_of(one) == key_of(other)
    assert key_of(one) != key_of(replace(other, classes_std=2))
    assert key_of(replace(one, partition="n-way-exact")) != key_of(replace(other, partition="n-way-exact"))


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
    text = to_markdown(replace(experiment, note="How to read it."), list(entries.values()))
    assert "| FedAvg, before | few | 50.00 | 45.00 ± 7.07 | -5.00 |" in text
    assert "| FedAvg, after | more | – | 55.00 ± 7.07 | – |" in text
    assert "| FedAvg, before |  | – | 55.00 | – |" in text, "the mean over the cells"
    assert text.endswith("\nHow to read it.\n")


def test_one_seed_has_no_deviation(tmp_path: Path) -> None:
    experiment = _load(tmp_path, TABLE.replace("seeds = [0, 1]", "seeds = [0]"))
    _fake_results(experiment, tmp_path / "results")
    entries = tabulate(experiment, tmp_path / "results", {})
    text = to_markdown(experiment, entries)
    assert "Ours: one seed." in text
    assert "±" not in text
    write_csv(tmp_path / "table.csv", experiment, entries)
    with (tmp_path / "table.csv").open(encoding="utf-8") as file:
        assert {row["sd"] for row in csv.DictReader(file)} == {""}
    draw(experiment, entries, tmp_path / "results", {}, tmp_path)
    assert (tmp_path / "table.png").stat().st_size > 1_000


def test_the_means_count_the_cells_near_the_paper(tmp_path: Path) -> None:
    experiment = _load(tmp_path, TABLE.replace("{ few = [50.0] }", "{ few = [46.9], more = [67.1] }"))
    _fake_results(experiment, tmp_path / "results")
    text = to_markdown(experiment, tabulate(experiment, tmp_path / "results", {}))
    assert "| FedAvg, before |  | 57.00 | 55.00 | 1 of 2 |" in text


def test_the_table_ends_with_how_far_each_falls_below_its_own_number_in_the_reference(tmp_path: Path) -> None:
    experiment = _load(tmp_path, TABLE.replace("seeds = [0, 1]", 'seeds = [0, 1]\nreference = "more"'))
    _fake_results(experiment, tmp_path / "results")
    entries = tabulate(experiment, tmp_path / "results", {})
    text = to_markdown(experiment, entries)
    assert "| variant | more | few | worst drop |\n|---|--:|--:|--:|\n" in text, "the reference comes first"
    assert "| FedAvg, before | 65.00 | 45.00 | 20.00 |" in text
    assert "| FedAvg, after | 55.00 | 35.00 | 20.00 |" in text
    without = [entry for entry in entries if entry.cell != "few"]
    assert "| FedAvg, before | 65.00 | – | – |" in to_markdown(experiment, without), "nothing to compare with"
    assert "worst drop" not in to_markdown(replace(experiment, reference=""), entries)


@pytest.mark.long
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
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "results", "table.md", "table.csv", "rounds.csv", "table.png",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[scenario]", '[[columns]]\nstatistic = "bets"\n[scenario]', "statistic is 'bets'; did you mean 'best'"),
        ("[scenario]", '[[columns]]\nstatistic = "reach"\nof = "Fed"\n[scenario]', "column '' of is 'Fed'"),
        ("[scenario]", '[[columns]]\nstatistic = "reach"\n[scenario]', "column '' of is ''"),
        (
            "[scenario]",
            '[[columns]]\nstatistic = "reach"\nmark = 0.5\nspend = ["bytes"]\n[scenario]',
            "column '' spend is 'bytes'",
        ),
        (
            "[scenario]",
            '[[columns]]\nstatistic = "reach"\nmark = 0.5\nof = "FedAvg, before"\n[scenario]',
            "column '' has a mark, 0.5, and one of FedAvg, before",
        ),
        ("seeds = [0, 1]", 'seeds = [0, 1]\nplots = ["pie"]', "plots is 'pie'"),
        ("{ few = [50.0] }", "{ few = [50.0, 60.0] }", "it must be an array of 1"),
        ('name = "more"', 'name = "few"', "has two cells of one name"),
        ("seeds = [0, 1]", "seedz = [0, 1]", "has no key 'seedz'; did you mean 'seeds'"),
        ("{ few = [50.0] }", "{ fewer = [50.0] }", "has a number for 'fewer', which is not a cell"),
        ('metric = "taa_received"', 'metric = "taa_recieved"', "did you mean 'taa_received'"),
        ('title = "A tiny table"\n', "", "lacks the key 'title'"),
        ("seeds = [0, 1]", "seeds = 3", "seeds is 3, it must be an array"),
        ("seeds = [0, 1]", "seeds = []", "seeds is empty"),
        ("seeds = [0, 1]", 'seeds = ["a"]', r"seeds\[0\] is 'a', it must be of type int"),
        ("{ few = [50.0] }", '{ few = ["x"] }', r"paper few\[0\] is 'x', it must be of type float"),
        ("{ few = [50.0] }", "3", "paper is 3, it must be a table"),
        ("scenario = { classes_avg = 2 }", "scenario = 3", "scenario is 3, it must be a table"),
        ("[scenario]", '[[columns]]\nfraction = "a"\n[scenario]', "fraction is 'a', it must be of type float"),
    ],
)
def test_a_mistake_in_the_file_is_one_clear_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        _load(tmp_path, TABLE.replace(old, new))


SPENT = """
[[columns]]
name = "rounds"
statistic = "reach"
mark = 0.45

[[columns]]
name = "bytes"
statistic = "reach"
mark = 0.45
spend = ["bytes_for_all", "bytes_for_aggregator"]
"""


def test_a_column_may_be_what_was_sent_until_a_mark_was_reached(tmp_path: Path) -> None:
    experiment = _load(tmp_path, TABLE.replace("[scenario]", SPENT + "[scenario]", 1).replace("[50.0]", "[nan, 1_000]"))
    rows = [
        {"round": number, "taa": taa, "taa_received": taa - 0.1, "bytes_for_all": 100, "bytes_for_aggregator": number}
        for number, taa in ((1, 0.3), (2, 0.5), (3, 0.5))
    ]
    for run in experiment.runs({}):
        (tmp_path / f"{run.key}.json").write_text(json.dumps({"rows": rows}))
    entries = {(e.variant, e.cell, e.column): e for e in tabulate(experiment, tmp_path, {})}
    assert entries["FedAvg, before", "few", "rounds"].mean == 2.0
    assert entries["FedAvg, before", "few", "bytes"].mean == 203.0
    assert entries["FedAvg, after", "few", "bytes"].values == (None, None)
    assert "| FedAvg, before | few | bytes | 1000 | 203 ± 0 | -797 |" in to_markdown(experiment, list(entries.values()))


REACH = """
[[columns]]
name = "half"
statistic = "reach"
of = "FedAvg, before"
fraction = 0.5

[[columns]]
name = "whole"
statistic = "reach"
of = "FedAvg, before"

[[columns]]
name = "early"
rounds = 1

[[columns]]
name = "loss"
statistic = "last"
metric = "tal"
"""


def test_a_column_may_be_the_round_in_which_another_variant_s_best_is_reached(tmp_path: Path) -> None:
    text = TABLE.replace("[scenario]", REACH + "[scenario]", 1).replace("[50.0]", "[nan, 2, 10.0, 1.0]")
    experiment = _load(tmp_path, text)
    before, after = [0.1, 0.41, 0.8], [0.3, 0.5, 0.7]
    rows = [
        {"round": number + 1, "taa": one, "taa_received": other, "tal": 0.5}
        for number, (one, other) in enumerate(zip(before, after, strict=True))
    ]
    for run in experiment.runs({}):
        result = {"rows": rows} if run.cell == "few" else {"rows": [], "diverged": "the loss is nan"}
        (tmp_path / f"{run.key}.json").write_text(json.dumps(result))
    entries = {(e.variant, e.cell, e.column): e for e in tabulate(experiment, tmp_path, {})}
    means = [entries["FedAvg, before", "few", column].mean for column in ("half", "whole", "early", "loss")]
    assert means == [2.0, 3.0, pytest.approx(10.0), 0.5]
    assert entries["FedAvg, after", "few", "half"].values == (2.0, 2.0)
    unreached = entries["FedAvg, after", "few", "whole"]
    assert (unreached.values, unreached.mean, unreached.difference) == ((None, None), None, None)
    assert ("FedAvg, before", "more", "half") not in entries, "there is no mark to reach: training diverged"
    assert entries["FedAvg, before", "more", "early"].values == (None, None)
    table = to_markdown(experiment, list(entries.values()))
    assert "| FedAvg, before | few | half | – | 2 ± 0 | – |" in table
    assert "| FedAvg, before | few | whole | 2 | 3 ± 0 | +1 |" in table
    assert "| FedAvg, after | few | whole | – | – (0 of 2) | – |" in table
    assert "| FedAvg, before | few | loss | 1.0000 | 0.5000 ± 0.0000 | -0.5000 |" in table


def test_runs_are_shared_by_columns_unless_the_method_knows_the_number_of_rounds(tmp_path: Path) -> None:
    columns = "[[columns]]\nname = 'one'\nrounds = 1\n[[columns]]\nname = 'two'\nrounds = 2\n[scenario]"
    text = (
        TABLE.replace("[scenario]", columns, 1)
        .replace("[50.0]", "[50.0, 60.0]")
        .replace("rounds = 1\nwork", "rounds = 2\nwork")
    )
    assert len(list(_load(tmp_path, text).runs({}))) == 4
    text = text.replace('{ method = "fedavg" }', '{ method = "swim" }\nrounds_hyperparameter = "rounds"')
    runs = list(_load(tmp_path, text).runs({}))
    assert len(runs) == 8
    assert {(run.scenario.rounds, run.scenario.hyperparameters["rounds"]) for run in runs} == {(1, 1), (2, 2)}


def test_settings_of_experiment_cell_variant_and_both_lie_on_top_of_each_other(tmp_path: Path) -> None:
    text = TABLE.replace(
        "{ classes_avg = 4 }", "{ classes_avg = 4 }\nhyperparameters = { local_steps = 3, momentum = 0.1 }"
    )
    text = text.replace('{ method = "fedavg" }', '{ method = "fedavg" }\nhyperparameters = { momentum = 0.2 }', 1)
    text += "in_cell = { few = { local_steps = 5 } }\n"
    settings = {(run.cell, run.variant): dict(run.scenario.hyperparameters) for run in _load(tmp_path, text).runs({})}
    assert settings["few", "FedAvg, before"] == {"local_steps": 2, "momentum": 0.2}
    assert settings["more", "FedAvg, before"] == {"local_steps": 3, "momentum": 0.2}
    assert settings["few", "FedAvg, after"] == {"local_steps": 5}
    assert settings["more", "FedAvg, after"] == {"local_steps": 3, "momentum": 0.1}


def test_only_some_cells_and_variants_are_run_if_one_asks_for_them(tmp_path: Path) -> None:
    experiment = _load(tmp_path)
    assert {(run.cell, run.variant) for run in experiment.runs({}, "more/*after")} == {("more", "FedAvg, after")}
    with pytest.raises(ScenarioError, match="no cell/variant of tiny fits"):
        reproduce(experiment, tmp_path, 1, {}, only="most/*")


def test_curves_have_a_panel_for_each_cell_that_was_run(tmp_path: Path) -> None:
    experiment, results, path = _load(tmp_path), tmp_path / "results", tmp_path / "curves.png"
    draw_curves(experiment, results, {}, path)
    assert not path.exists(), "nothing was run"
    widths = []
    for kept in (("few",), ("few", "more")):
        _fake_results(experiment, results)
        for run in experiment.runs({}):
            if run.cell not in kept:
                (results / f"{run.key}.json").unlink()
        draw_curves(experiment, results, {}, path)
        with Image.open(path) as picture:
            widths.append(picture.width)
    assert widths[1] == 2 * widths[0]


def test_a_damaged_result_is_named(tmp_path: Path) -> None:
    experiment = _load(tmp_path)
    _fake_results(experiment, tmp_path / "results")
    victim = next((tmp_path / "results").iterdir())
    for text in ("{", "[]", '{"rows": 3}'):
        victim.write_text(text)
        with pytest.raises(ScenarioError, match=f"{victim.name} is not the result of a run"):
            tabulate(experiment, tmp_path / "results", {})


def test_what_was_changed_on_the_command_line_stands_above_the_table(tmp_path: Path) -> None:
    assert "\nNot as in the file: rounds = 1.\n" in to_markdown(_load(tmp_path), [], {"rounds": 1})


def test_seeds_beyond_those_that_are_listed_go_on_counting() -> None:
    assert first_seeds((3, 0), None) == (3, 0)
    assert first_seeds((3, 0), 1) == (3,)
    assert first_seeds((3, 0), 5) == (3, 0, 1, 2, 4)


@pytest.mark.long
def test_an_interrupted_experiment_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = replace(_load(tmp_path), seeds=(0,), plots=("lines", "boxes", "curves", "map"))
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
    (run, *_) = _load(tmp_path).runs({})
    closed: list[int] = []
    result = run_or_diverge("simulation", run.scenario, closed.append)
    assert closed == [1]
    assert [row["taa"] for row in result["rows"]] == [0.5]
    assert result["diverged"].startswith("peer 3, round 2")


def test_what_was_measured_before_training_diverged_counts_unless_the_end_is_asked_for(tmp_path: Path) -> None:
    experiment = _load(tmp_path)
    column = experiment.columns[0]
    _fake_results(experiment, tmp_path)
    for path in tmp_path.glob("*.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"diverged": "the loss is nan"}))
    values: Mapping[Statistic, float | None] = {"best": 45.0, "last": None, "mean": None}
    for statistic, value in values.items():
        asked = replace(experiment, columns=(replace(column, statistic=statistic),))
        (entry, *_) = tabulate(asked, tmp_path, {})
        assert (entry.mean, entry.diverged) == (value, 2)
        assert "2 diverged" in to_markdown(asked, [entry])


def test_the_points_of_fedph_s_figure_8_are_what_the_paper_would_call_totals_over_all_rounds() -> None:
    experiment = load_experiment(find_experiment("fedph-fig8"))
    for cell, total in zip(experiment.cells, (1.0, 5.0, 25.0), strict=True):
        multiplier = cell.hyperparameters["noise_multiplier"]
        assert multiplier == pytest.approx(float(cell.name), rel=1e-3)
        whole = compose([1 / multiplier] * experiment.scenario["rounds"])
        assert epsilon_of(whole, 1e-5) == pytest.approx(total, rel=1e-3)


@pytest.mark.long
def test_fedph_s_comparison_runs_on_other_images_in_five_weathers() -> None:
    experiment = load_experiment(find_experiment("fedph-table1"))
    small = {"dataset": "digits", "rounds": 1, "train_examples": 600}
    posted = {}
    for run in replace(experiment, seeds=(0,), cells=experiment.cells[:1]).runs(small):
        (row,) = run_or_diverge("simulation", run.scenario, lambda number: None)["rows"]
        assert row["taa"] > 1 / 6, run.variant
        posted[run.variant] = row["scalars_posted"]
    assert posted["SOLO"] == 0
    assert posted["FedAvg"] == posted["FedProx"] == 5 * 33222
    assert posted["FedProto"] == posted["FedPH"] <= 5 * 6 * 64


def test_every_experiment_is_found_by_its_name() -> None:
    found = experiment_files()
    assert {"dfpl-table1-fmnist", "dfpl-table1-mnist", "dfpl-tables3-4-fmnist"} <= set(found)
    assert {name: read_toml(path, ScenarioError)["name"] for name, path in found.items()} == {
        name: name for name in found
    }
    assert all(title for _, title in list_experiments())
    with pytest.raises(ScenarioError, match="no experiment 'dfpl-table1-fmnst'; did you mean 'dfpl-table1-fmnist'"):
        find_experiment("dfpl-table1-fmnst")


def test_the_command_lists_the_experiments_and_refuses_what_is_none() -> None:
    listed = CliRunner().invoke(app, ["reproduce"])
    assert listed.exit_code == 0
    assert [line.split()[0] for line in listed.stdout.splitlines()] == list(experiment_files())
    for arguments, words in (
        (["dfpl-tabel2"], "did you mean 'dfpl-table2'"),
        (["none.toml"], "none.toml cannot be read"),
        (["dfpl-table2", "--only", "MNIST"], "no cell/variant of dfpl-table2 fits 'MNIST'"),
        (["dfpl-tables3-4-mnist", "--rounds", "2"], "--rounds is 2, but the cells of dfpl-tables3-4-mnist are"),
    ):
        refused = CliRunner().invoke(app, ["reproduce", *arguments])
        assert refused.exit_code == 2, refused.output
        (line,) = refused.stderr.strip().splitlines()
        assert words in line


@pytest.mark.long
@pytest.mark.parametrize("path", experiment_files().values(), ids=lambda path: path.stem)
def test_the_experiments_that_ship_are_sound(path: Path) -> None:
    experiment = load_experiment(path)
    runs = list(experiment.runs({}))
    assert len(runs) >= len(experiment.seeds)
    for run in runs:
        build_method(run.scenario.method, run.scenario.hyperparameters)
