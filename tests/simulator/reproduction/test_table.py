"""Numbers of a table: means, deviations, differences, and columns of other statistics."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedchain.learning.privacy.gaussian import compose, epsilon_of
from fedchain.simulator.reproduction.experiment import Column, Experiment, Statistic, load_experiment
from fedchain.simulator.reproduction.library import find_experiment
from fedchain.simulator.reproduction.markdown import to_markdown
from fedchain.simulator.reproduction.table import Result, tabulate, value_of
from fedchain.simulator.scenario import ScenarioError
from tests.support.simulator.tiny_experiment import TABLE, fake_results, load

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


def give_all(experiment: Experiment, results: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Let every run of an experiment have the same rounds as its result."""
    for run in experiment.runs({}):
        (results / f"{run.key}.json").write_text(json.dumps({"rows": rows}))


def test_a_column_may_be_what_was_sent_until_a_mark_was_reached(tmp_path: Path) -> None:
    experiment = load(tmp_path, TABLE.replace("[scenario]", SPENT + "[scenario]", 1).replace("[50.0]", "[nan, 1_000]"))
    rows = [
        {"round": number, "taa": taa, "taa_received": taa - 0.1, "bytes_for_all": 100, "bytes_for_aggregator": number}
        for number, taa in ((1, 0.3), (2, 0.5), (3, 0.5))
    ]
    give_all(experiment, tmp_path, rows)
    entries = {(e.variant, e.cell, e.column): e for e in tabulate(experiment, tmp_path, {})}
    assert entries["FedAvg, before", "few", "rounds"].mean == 2.0
    assert entries["FedAvg, before", "few", "bytes"].mean == 203.0
    assert entries["FedAvg, after", "few", "bytes"].by_seed == {0: None, 1: None}
    assert "| FedAvg, before | few | bytes | 1000 | 203 ± 0 | -797 |" in to_markdown(experiment, list(entries.values()))


def test_what_was_not_measured_cannot_be_spent(tmp_path: Path) -> None:
    """It was a TypeError, after all runs had been made."""
    experiment = load(tmp_path)
    column = replace(experiment.columns[0], statistic="reach", mark=0.45, metric="taa", spend=("epsilon",))
    for run in experiment.runs({}):
        (tmp_path / f"{run.key}.json").write_text(json.dumps({"rows": [{"round": 1, "taa": 0.5, "epsilon": None}]}))
    with pytest.raises(ScenarioError, match="metric epsilon was not measured in round 1"):
        tabulate(replace(experiment, columns=(column,)), tmp_path, {})
    optional = replace(experiment, columns=(replace(column, is_optional=True),))
    assert {entry.mean for entry in tabulate(optional, tmp_path, {})} == {None}


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
    experiment = load(tmp_path, text)
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
    assert entries["FedAvg, after", "few", "half"].by_seed == {0: 2.0, 1: 2.0}
    unreached = entries["FedAvg, after", "few", "whole"]
    assert (unreached.known, unreached.mean, unreached.difference) == ((), None, None)
    assert ("FedAvg, before", "more", "half") not in entries, "there is no mark to reach: training diverged"
    assert entries["FedAvg, before", "more", "early"].by_seed == {0: None, 1: None}
    table = to_markdown(experiment, list(entries.values()))
    assert "| FedAvg, before | few | half | – | 2 ± 0 | – |" in table
    assert "| FedAvg, before | few | whole | 2 | 3 ± 0 | +1 |" in table
    assert "| FedAvg, after | few | whole | – | – (0 of 2) | – |" in table
    assert "| FedAvg, before | few | loss | 1.0000 | 0.5000 ± 0.0000 | -0.5000 |" in table


def test_a_mark_is_the_best_of_the_same_seed(tmp_path: Path) -> None:
    """Each seed draws other data, and one may be harder than another."""
    text = TABLE.replace("[scenario]", REACH + "[scenario]", 1).replace("[50.0]", "[nan, 2, 10.0, 1.0]")
    experiment = load(tmp_path, text)
    for run in experiment.runs({}):
        rows = [
            {"round": number, "taa": taa / (1 + run.seed), "taa_received": 0.0, "tal": 0.5}
            for number, taa in ((1, 0.1), (2, 0.41), (3, 0.8))
        ]
        (tmp_path / f"{run.key}.json").write_text(json.dumps({"rows": rows}))
    entries = {(e.variant, e.cell, e.column): e for e in tabulate(experiment, tmp_path, {})}
    assert entries["FedAvg, before", "few", "half"].by_seed == {0: 2.0, 1: 2.0}


def test_a_mark_is_the_best_of_the_rounds_that_count(tmp_path: Path) -> None:
    """It was that of all rounds, which a column of the first ones cannot reach."""
    text = TABLE.replace("[scenario]", REACH + "[scenario]", 1).replace("[50.0]", "[nan, 2, 10.0, 1.0]")
    experiment = load(tmp_path, text)
    accuracies = ((1, 0.1), (2, 0.4), (3, 0.9))
    give_all(experiment, tmp_path, [{"round": number, "taa": taa, "taa_received": taa} for number, taa in accuracies])
    for counted, reached in ((0, 3.0), (2, 2.0), (1, 1.0)):
        column = replace(experiment.columns[1], rounds=counted)
        entries = tabulate(replace(experiment, columns=(column,)), tmp_path, {})
        assert {entry.mean for entry in entries} == {reached}


def test_what_was_not_measured_in_the_last_round_is_not_what_was_reached_there(tmp_path: Path) -> None:
    """The accuracy of newcomers, of whom there were none any more, stood beside that of all in a later round."""
    experiment = load(tmp_path)
    rows = [{"round": number, "taa": 0.1, "taa_new": new} for number, new in ((1, None), (2, 0.5), (3, None))]
    give_all(experiment, tmp_path, rows)
    column = replace(experiment.columns[0], statistic="last", metric="taa_new")
    values: dict[bool, float | None] = {False: 50.0, True: None}
    for is_optional, value in values.items():
        asked = replace(experiment, columns=(replace(column, is_optional=is_optional),))
        assert {entry.mean for entry in tabulate(asked, tmp_path, {})} == {value}


LOSSES = """
[[columns]]
name = "best loss"
metric = "tal"

[[columns]]
name = "below"
statistic = "reach"
mark = 0.5
metric = "tal"

[[columns]]
name = "of another"
statistic = "reach"
of = "FedAvg, before"
metric = "tal"
"""


def test_the_best_loss_is_the_lowest_and_a_mark_is_reached_from_above(tmp_path: Path) -> None:
    """The highest was taken, and any loss above the mark had reached it: mostly that of the first round."""
    text = TABLE.replace("[scenario]", LOSSES + "[scenario]", 1).replace("[50.0]", "[nan, nan, nan]")
    experiment = load(tmp_path, text)
    losses = ((1, 2.0), (2, 0.4), (3, 0.6))
    rows = [{"round": number, "taa": 0.1, "taa_received": 0.1, "tal": tal} for number, tal in losses]
    give_all(experiment, tmp_path, rows)
    entries = {(e.variant, e.cell, e.column): e for e in tabulate(experiment, tmp_path, {})}
    means = [entries["FedAvg, after", "few", name].mean for name in ("best loss", "below", "of another")]
    assert means == [0.4, 2.0, 2.0]


def test_a_damaged_result_is_named(tmp_path: Path) -> None:
    experiment = load(tmp_path)
    fake_results(experiment, tmp_path / "results")
    victim = next((tmp_path / "results").iterdir())
    for text in ("{", "[]", '{"rows": 3}', '{"rows": []}', 100_000 * "["):
        victim.write_text(text)
        with pytest.raises(ScenarioError, match=f"{victim.name} is not the result of a run"):
            tabulate(experiment, tmp_path / "results", {})


@pytest.mark.parametrize(
    "row",
    [
        {"taa": 0.5},
        {"round": "1", "taa": 0.5},
        {"round": True, "taa": 0.5},
        {"round": 1, "taa": "0.5"},
        {"round": 1, "taa": [0.5]},
        {"round": 1, "taa": True},
        {"round": 1, "taa": 0.5, "posts": 10**400},
        {"round": 1, "taa": 0.5, "virtual_s": "soon"},
    ],
)
def test_a_result_of_values_that_are_no_numbers_is_damaged(tmp_path: Path, row: dict[str, Any]) -> None:
    """They were a traceback, of the table or of its pictures."""
    experiment = load(tmp_path)
    fake_results(experiment, tmp_path / "results")
    victim = next((tmp_path / "results").iterdir())
    victim.write_text(json.dumps({"rows": [row]}))
    with pytest.raises(ScenarioError, match=f"{victim.name} is not the result of a run"):
        tabulate(experiment, tmp_path / "results", {})


def test_what_was_measured_before_training_diverged_counts_unless_the_end_is_asked_for(tmp_path: Path) -> None:
    experiment = load(tmp_path)
    column = experiment.columns[0]
    fake_results(experiment, tmp_path)
    for path in tmp_path.glob("*.json"):
        ended = {"diverged": "the loss is nan", "violations": ["agreement"]}
        path.write_text(json.dumps(json.loads(path.read_text()) | ended))
    values: Mapping[Statistic, float | None] = {"best": 45.0, "last": None, "mean": None}
    for statistic, value in values.items():
        asked = replace(experiment, columns=(replace(column, statistic=statistic),))
        (entry, *_) = tabulate(asked, tmp_path, {})
        assert (entry.mean, entry.diverged, entry.broken) == (value, 2, 2)
        assert "2 diverged" in to_markdown(asked, [entry])
        assert entry.spent == 0
        text = to_markdown(asked, [replace(entry, spent=1)])
        assert "(1 diverged) (1 spent their privacy)" in text
        assert "2 diverged" not in to_markdown(asked, [replace(entry, spent=2)])
        assert "(2 diverged) (2 with broken promises)" in to_markdown(asked, [entry])


def test_a_run_whose_budget_was_spent_is_counted_as_one(tmp_path: Path) -> None:
    experiment = load(tmp_path)
    fake_results(experiment, tmp_path)
    for run in experiment.runs({}):
        path = tmp_path / f"{run.key}.json"
        ended = {"diverged": "the budget is spent"} | ({"spent": True} if run.seed else {})
        path.write_text(json.dumps(json.loads(path.read_text()) | ended))
    assert {(entry.diverged, entry.spent) for entry in tabulate(experiment, tmp_path, {})} == {(2, 1)}


def test_the_last_rounds_of_a_run_and_the_mean_of_all(tmp_path: Path) -> None:
    experiment = load(tmp_path)
    rows = [{"round": number, "taa": number / 100, "taa_received": None} for number in range(1, 9)]
    give_all(experiment, tmp_path, rows)
    values: Mapping[Statistic, float] = {"last": 8.0, "last5": 6.0, "mean": 4.5}
    for statistic, value in values.items():
        column = replace(experiment.columns[0], statistic=statistic, metric="taa")
        (entry, *_) = tabulate(replace(experiment, columns=(column,)), tmp_path, {})
        assert entry.mean == pytest.approx(value)


def test_the_points_of_fedph_s_figure_8_are_what_the_paper_would_call_totals_over_all_rounds() -> None:
    experiment = load_experiment(find_experiment("fedph-fig8"))
    for cell, total in zip(experiment.cells, (1.0, 5.0, 25.0), strict=True):
        multiplier = cell.hyperparameters["noise_multiplier"]
        assert multiplier == pytest.approx(float(cell.name), rel=1e-3)
        whole = compose([1 / multiplier] * experiment.scenario["rounds"])
        assert epsilon_of(whole, 1e-5) == pytest.approx(total, rel=1e-3)


def test_the_last_round_is_known_by_its_number_where_rows_begin_later(tmp_path: Path) -> None:
    """A round that warms up has no row."""
    column = Column(statistic="last", metric="taa", is_optional=True)
    rows = [{"round": number, "taa": number / 10} for number in (2, 3)]
    assert value_of(Result(rows), column, "taa") == pytest.approx(30.0)
    assert value_of(Result([*rows, {"round": 4, "taa": None}]), column, "taa") is None


@pytest.mark.parametrize(
    ("metric", "best"),
    [
        *((name, 1.0) for name in ("tal", "forgetting", "epsilon", "training_cpu_s", "bytes_for_all", "not_taken")),
        *((name, 3.0) for name in ("psnr_l2", "labels_recovered", "posts")),
        *((name, 300.0) for name in ("taa", "test_accuracy_received")),
    ],
)
def test_the_best_of_what_one_has_to_spend_is_the_least(metric: str, best: float) -> None:
    rows = [{"round": number, metric: value} for number, value in ((1, 2.0), (2, 1.0), (3, 3.0))]
    assert value_of(Result(rows), Column(metric=metric), metric) == best


@pytest.mark.parametrize(
    ("metric", "shown"), [("posts", "3"), ("not_taken", "3"), ("tal", "3.0000"), ("taa", "300.00"), ("members", "3")]
)
def test_a_count_has_no_decimals(tmp_path: Path, metric: str, shown: str) -> None:
    text = TABLE.replace('source = "Somebody, Table I"\n', "").replace("paper = { few = [50.0] }\n", "")
    experiment = load(tmp_path, text)
    give_all(experiment, tmp_path, [{"round": 1, metric: 3}])
    asked = replace(experiment, seeds=(0,), columns=(Column(name="it", metric=metric),))
    table = to_markdown(asked, tabulate(asked, tmp_path, {}))
    assert "| variant | cell | result |\n|---|---|--:|\n" in table, "one number a line needs no column of its name"
    assert f"| FedAvg, before | few | {shown} |\n" in table


def test_what_was_run_before_its_data_were_gone_is_shown(tmp_path: Path) -> None:
    experiment = load(tmp_path)
    fake_results(experiment, tmp_path)
    assert {entry.lacks for entry in tabulate(experiment, tmp_path, {}, {"digits"})} == {""}
    for run in experiment.runs({}):
        if run.cell == "few":
            (tmp_path / f"{run.key}.json").unlink()
    lacking = {(entry.cell, entry.lacks) for entry in tabulate(experiment, tmp_path, {}, {"digits"})}
    assert lacking == {("few", "digits"), ("more", "")}
