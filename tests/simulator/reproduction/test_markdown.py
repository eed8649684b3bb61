"""The table as it is written."""

import csv
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from fedchain.simulator.reproduction.markdown import to_markdown, worst_drop
from fedchain.simulator.reproduction.plots import draw
from fedchain.simulator.reproduction.table import Entry, tabulate, write_csv
from tests.support.simulator.tiny_experiment import TABLE, fake_results, load


def test_the_table_has_mean_deviation_and_difference(tmp_path: Path) -> None:
    experiment = load(tmp_path)
    fake_results(experiment, tmp_path / "results")
    entries = {(entry.variant, entry.cell): entry for entry in tabulate(experiment, tmp_path / "results", {})}
    few = entries["FedAvg, before", "few"]
    assert few.known == pytest.approx((40.0, 50.0))
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
    experiment = load(tmp_path, TABLE.replace("seeds = [0, 1]", "seeds = [0]"))
    fake_results(experiment, tmp_path / "results")
    entries = tabulate(experiment, tmp_path / "results", {})
    text = to_markdown(experiment, entries)
    assert "Ours: one seed." in text
    assert "±" not in text
    write_csv(tmp_path / "table.csv", experiment, entries)
    with (tmp_path / "table.csv").open(encoding="utf-8") as file:
        assert {row["sd"] for row in csv.DictReader(file)} == {""}
    draw(experiment, entries, tmp_path / "results", {}, tmp_path)
    assert (tmp_path / "table.png").stat().st_size > 1_000


def test_infinite_numbers_have_a_mean_and_no_deviation(tmp_path: Path) -> None:
    """The epsilon of next to no noise is infinite under every seed; its rounds are drawn, too."""
    experiment, results = load(tmp_path, TABLE.replace('"taa_received"', '"epsilon"')), tmp_path / "results"
    results.mkdir()
    for run in experiment.runs({}):
        row = {"round": 1, "taa": 0.5, "epsilon": "Infinity"}
        (results / f"{run.key}.json").write_text(json.dumps({"rows": [row]}))
    entries = tabulate(experiment, results, {})
    assert {(entry.mean, entry.deviation) for entry in entries} == {(50.0, 0.0), (math.inf, None)}
    assert "| inf |" in to_markdown(experiment, entries)
    draw(experiment, entries, results, {}, tmp_path)
    assert (tmp_path / "table.png").exists()


def test_a_number_stands_under_its_seed_where_results_lack(tmp_path: Path) -> None:
    experiment = load(tmp_path)
    fake_results(experiment, tmp_path / "results")
    (tmp_path / "results" / f"{next(experiment.runs({})).key}.json").unlink()
    write_csv(tmp_path / "table.csv", experiment, tabulate(experiment, tmp_path / "results", {}))
    with (tmp_path / "table.csv").open(encoding="utf-8") as file:
        few = next(csv.DictReader(file))
    assert (few["seed 0"], few["seed 1"]) == ("", "50.0000")


def test_the_means_count_the_cells_near_the_paper(tmp_path: Path) -> None:
    experiment = load(tmp_path, TABLE.replace("{ few = [50.0] }", "{ few = [46.9], more = [67.1] }"))
    fake_results(experiment, tmp_path / "results")
    text = to_markdown(experiment, tabulate(experiment, tmp_path / "results", {}))
    assert "| FedAvg, before |  | 57.00 | 55.00 | 1 of 2 |" in text


def test_a_variant_without_a_number_in_a_cell_has_no_mean_over_the_cells(tmp_path: Path) -> None:
    """Half of the cells would be its mean, or 0 be counted for the others."""
    column = load(tmp_path).columns[0].name
    numbers: dict[str, float | None] = {"few": None, "more": 65.0}
    entries = [Entry("FedAvg, before", cell, column, None, {0: value}, "accuracy") for cell, value in numbers.items()]
    assert "Means over the cells" not in to_markdown(load(tmp_path), entries)
    entries[0] = replace(entries[0], by_seed={0: 45.0})
    assert "| FedAvg, before |  | 55.00 |" in to_markdown(load(tmp_path), entries)


def test_the_table_ends_with_how_far_each_falls_below_its_own_number_in_the_reference(tmp_path: Path) -> None:
    experiment = load(tmp_path, TABLE.replace("seeds = [0, 1]", 'seeds = [0, 1]\nreference = "more"'))
    fake_results(experiment, tmp_path / "results")
    entries = tabulate(experiment, tmp_path / "results", {})
    text = to_markdown(experiment, entries)
    assert "| variant | more | few | worst drop |\n|---|--:|--:|--:|\n" in text, "the reference comes first"
    assert "| FedAvg, before | 65.00 | 45.00 | 20.00 |" in text
    assert "| FedAvg, after | 55.00 | 35.00 | 20.00 |" in text
    without = [entry for entry in entries if entry.cell != "few"]
    assert "| FedAvg, before | 65.00 | – | – |" in to_markdown(experiment, without), "nothing to compare with"
    assert "worst drop" not in to_markdown(replace(experiment, reference=""), entries)


@pytest.mark.parametrize(("spent", "told"), [(0, "diverged"), (1, "diverged"), (2, "privacy spent")])
def test_a_variant_that_ended_early_is_said_to_have_spent_its_privacy_where_all_its_seeds_did(
    tmp_path: Path, spent: int, told: str
) -> None:
    experiment = load(tmp_path, TABLE.replace("seeds = [0, 1]", 'seeds = [0, 1]\nreference = "more"'))
    column, numbers = experiment.columns[0].name, {0: None, 1: None}
    entries = [Entry("FedAvg, before", "more", column, None, {0: 65.0, 1: 65.0}, "accuracy")]
    entries.append(Entry("FedAvg, before", "few", column, None, numbers, "accuracy", diverged=2, spent=spent))
    assert f"| FedAvg, before | 65.00 | {told} | {told} |" in to_markdown(experiment, entries)


def test_a_bar_in_a_name_begins_no_cell_and_infinite_numbers_have_no_drop(tmp_path: Path) -> None:
    text = TABLE.replace("seeds = [0, 1]", 'seeds = [0, 1]\nreference = "p(x|y)"').replace('"more"', '"p(x|y)"')
    experiment = load(tmp_path, text)
    asked = replace(experiment, columns=(replace(experiment.columns[0], metric="epsilon"),))
    for run in asked.runs({}):
        rows = [{"round": 1, "taa": 0.5, "epsilon": "Infinity"}]
        (tmp_path / f"{run.key}.json").write_text(json.dumps({"rows": rows}))
    shown = to_markdown(asked, tabulate(asked, tmp_path, {}))
    assert "| FedAvg, after | p(x\\|y) | – | inf | – |\n" in shown
    assert "| variant | p(x\\|y) | few | worst drop |\n" in shown
    assert "| FedAvg, after | inf | inf | – |\n" in shown


BEHIND = """
[[columns]]
name = "rounds"
statistic = "reach"
mark = 0.45

[[columns]]
name = "loss"
metric = "tal"
"""


def test_more_rounds_and_a_higher_loss_are_what_falls_behind(tmp_path: Path) -> None:
    """A cell that was faster than the reference had the worst drop."""
    text = TABLE.replace("seeds = [0, 1]", 'seeds = [0, 1]\nreference = "more"').replace("[50.0]", "[nan, nan]")
    experiment = load(tmp_path, text.replace("[scenario]", BEHIND + "[scenario]", 1))
    for run in experiment.runs({}):
        is_slow = run.cell == "few"
        taa, tal = (0.4, 0.9) if is_slow else (0.5, 0.7)
        rows = [{"round": number, "taa": at, "taa_received": at, "tal": tal} for number, at in ((1, taa), (2, 0.5))]
        (tmp_path / f"{run.key}.json").write_text(json.dumps({"rows": rows}))
    shown = to_markdown(experiment, tabulate(experiment, tmp_path, {}))
    assert "| FedAvg, before rounds | 1 | 2 | 1.00 |" in shown
    assert "| FedAvg, before loss | 0.7000 | 0.9000 | 0.20 |" in shown


def test_the_worst_drop_is_to_the_lowest_of_all_other_cells() -> None:
    means = {"more": 65.0, "few": 45.0, "some": 60.0}
    entries = {cell: Entry("v", cell, "", None, {0: mean}, "accuracy") for cell, mean in means.items()}
    assert worst_drop(entries, "more") == 20.0


def test_a_variant_that_lacks_a_cell_has_no_mean_over_the_cells(tmp_path: Path) -> None:
    experiment = load(tmp_path)
    fake_results(experiment, tmp_path / "results")
    entries = tabulate(experiment, tmp_path / "results", {})
    text = to_markdown(
        experiment, [entry for entry in entries if (entry.variant, entry.cell) != ("FedAvg, after", "few")]
    )
    assert "| FedAvg, before |  |" in text
    assert "| FedAvg, after |  |" not in text


def test_the_best_cell_is_sought_where_no_seed_diverged_and_counted_where_it_was_expected(tmp_path: Path) -> None:
    text = TABLE.replace("seeds = [0, 1]", 'seeds = [0, 1]\nexpected = ["few"]').replace("paper =", "#")
    experiment = load(
        tmp_path, text.replace("[scenario]", '[[columns]]\nname = "best"\nseek = "highest"\n\n[scenario]', 1)
    )
    fake_results(experiment, tmp_path / "results")
    entries = tabulate(experiment, tmp_path / "results", {})
    assert "Best by best among few: 0 of 2 variants." in to_markdown(experiment, entries)
    ended = [
        replace(one, diverged=1) if (one.variant, one.cell) == ("FedAvg, after", "more") else one for one in entries
    ]
    found = to_markdown(experiment, ended)
    assert "| FedAvg, before | more | 65.00 |" in found
    assert "| FedAvg, after | few | 35.00 |" in found
    assert "Best by best among few: 1 of 2 variants." in found


def test_what_was_changed_on_the_command_line_stands_above_the_table(tmp_path: Path) -> None:
    assert "\nNot as in the file: rounds = 1.\n" in to_markdown(load(tmp_path), [], {"rounds": 1})


def test_what_an_experiment_leaves_out_stands_above_its_table(tmp_path: Path) -> None:
    experiment = load(tmp_path)
    assert "Reduced: " not in to_markdown(experiment, [])
    assert "\nReduced: 10 peers in place of 100.\n" in to_markdown(
        replace(experiment, scale="10 peers in place of 100"), []
    )
