"""An experiment runs each distinct simulation once, resumes where it was, and sets ours beside the paper's."""

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from fedchain.simulator.reproduction.compare import build_comparison
from fedchain.simulator.reproduction.experiment import (
    SEEDS_MAX,
    Cell,
    Column,
    Experiment,
    Variant,
    first_seeds,
    key_of,
    load_experiment,
)
from fedchain.simulator.reproduction.library import find_experiment
from fedchain.simulator.reproduction.reproduce import run_or_diverge
from fedchain.simulator.scenario import Scenario, ScenarioError
from tests.support.paths import DOCS
from tests.support.simulator.tiny_experiment import TABLE, load


def test_the_guide_says_what_may_stand_in_a_file(tmp_path: Path) -> None:
    text = (DOCS / "guides" / "experiments.md").read_text(encoding="utf-8")
    section = text.split("## An experiment file")[1].split("\n## ")[0]
    file = tmp_path / "few-classes.toml"
    file.write_text(section.split("```toml\n")[1].split("```")[0], encoding="utf-8")
    assert list(load_experiment(file).runs({}))
    named = {item.name for kind in (Experiment, Column, Cell, Variant) for item in fields(kind)}
    assert {name for name in named if not re.search(rf"\b{name} = |\b{name}\]|`{name}\b", section)} == set()


def test_variants_that_differ_only_in_what_they_report_share_their_runs(tmp_path: Path) -> None:
    runs = list(load(tmp_path).runs({}))
    assert len(runs) == 4, "2 seeds × 2 cells, once for both variants"
    assert [run.seed for run in runs] == [0, 0, 1, 1], "whole columns first"
    assert len({run.key for run in runs}) == 4
    assert runs[0].scenario.hyperparameters == {"local_steps": 2}


def test_a_run_is_named_by_what_it_computes_and_not_by_where_it_runs(tmp_path: Path) -> None:
    experiment = load(tmp_path)
    keys = [run.key for run in experiment.runs({})]
    assert [run.key for run in experiment.runs({"data_dir": "elsewhere", "workers": 2})] == keys
    assert [run.key for run in experiment.runs({"train_ahead": False})] == keys
    assert [run.key for run in experiment.runs({"name": "called-otherwise"})] == keys
    assert not {run.key for run in experiment.runs({"rounds": 2})} & set(keys)
    first, second = ({run.key for run in experiment.runs({"vectorize_clients": True, "workers": n})} for n in (1, 2))
    assert not first & second, "workers decide which clients are one batch, and so the last bits"


@pytest.mark.parametrize(
    "values",
    [
        {"private_seed": 1},
        {"feature_shift": "noise"},
        {"round_interval_s": 1.0},
        {"omission_slack_s": 1.0},
        {"payload_mib_max": 1},
        {"inline_kib_max": 8},
        {"classes_avg": 2},
    ],
)
def test_settings_that_older_results_lack_make_other_runs(values: dict[str, Any]) -> None:
    assert key_of(replace(Scenario(), **values)) != key_of(Scenario())


def test_a_rule_of_the_aggregator_is_one_run_whether_it_is_stated_or_follows() -> None:
    assert key_of(Scenario(method="fedavg", aggregator="none")) == key_of(Scenario(method="fedavg"))


def test_settings_of_one_meaning_are_one_run() -> None:
    one, other = Scenario(classes_avg=4, classes_std=2), Scenario(classes_avg=3, classes_std=3)
    assert key_of(one) == key_of(other)
    assert key_of(one) != key_of(replace(other, classes_std=2))
    assert key_of(replace(one, partition="n-way-exact")) != key_of(replace(other, partition="n-way-exact"))


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
        ("[scenario]", '[[columns]]\n[[columns]]\nstatistic = "last"\n[scenario]', "has two columns of one name"),
        ("seeds = [0, 1]", 'seeds = [0, 1]\ncurves = ["taaa"]', "curves is 'taaa'; did you mean 'taa'"),
        ("seeds = [0, 1]", 'seeds = [0, 1]\nreference = "fwe"', "reference is 'fwe'; did you mean 'few'"),
        ("seeds = [0, 1]", 'seeds = [0, 1]\nexpected = ["moer"]', "expected is 'moer'; did you mean 'more'"),
        ("[scenario]", '[[columns]]\nmetric = "tall"\n[scenario]', "column metric is 'tall'; did you mean 'tal'"),
        ("paper = {", 'paper_best = "fewer"\npaper = {', "FedAvg, before paper_best is 'fewer'; did you mean 'few'"),
        ("paper = {", 'figure = "../other"\npaper = {', r"figure is '\.\./other', it must be the name of a file"),
        (
            "paper = {",
            "in_cell = { fewer = { local_steps = 3 } }\npaper = {",
            "has a number for 'fewer', which is not a",
        ),
        ("seeds = [0, 1]", "seedz = [0, 1]", "has no key 'seedz'; did you mean 'seeds'"),
        ("{ few = [50.0] }", "{ fewer = [50.0] }", "has a number for 'fewer', which is not a cell"),
        ('metric = "taa_received"', 'metric = "taa_recieved"', "did you mean 'taa_received'"),
        ('title = "A tiny table"\n', "", "lacks the key 'title'"),
        ("seeds = [0, 1]", "seeds = 3", "seeds is 3, it must be an array"),
        ("seeds = [0, 1]", "seeds = []", "seeds is empty"),
        ('"tiny"', '"../../elsewhere"', r"name is '\.\./\.\./elsewhere', it must be the name of a folder"),
        ('"tiny"', '"/elsewhere"', "name is '/elsewhere', it must be the name of a folder"),
        ('"tiny"', '""', "name is '', it must be the name of a folder"),
        ('"tiny"', '".."', r"name is '\.\.', it must be the name of a folder"),
        ('"tiny"', r'"t\u001b[31my"', r"name is 't\\x1b\[31my', it must be printable and of one line"),
        (
            '"A tiny table"',
            r'"A\u001b]0;b\u0007"',
            r"title is 'A\\x1b\]0;b\\x07', it must be printable and of one line",
        ),
        ('"A tiny table"', r'"A\ntable"', r"title is 'A\\ntable', it must be printable and of one line"),
        ('"few"', r'"few |\n| more"', r"name of a cell is 'few |\\n| more', it must be printable and of one line"),
        ('"FedAvg, after"', r'"\u202egvAdeF"', r"name of a variant is '\\u202egvAdeF', it must be printable"),
        ("[scenario]", '[[columns]]\nname = "\\r"\n[scenario]', r"name of a column is '\\r', it must be printable"),
        ('"Somebody, Table I"', r'"Some\u009bbody"', r"source is 'Some\\x9bbody', it must be printable"),
        ('title = "', r'note = "a\n\u001b[2J"' + '\ntitle = "', r"note is 'a\\n\\x1b\[2J', it must be printable"),
        ("seeds = [0, 1]", 'seeds = ["a"]', r"seeds\[0\] is 'a', it must be of type int"),
        ("{ few = [50.0] }", '{ few = ["x"] }', r"paper few\[0\] is 'x', it must be of type float"),
        ("{ few = [50.0] }", "3", "paper is 3, it must be a table"),
        (
            "[scenario.hyperparameters]\nlocal_steps = 2",
            "hyperparameters = 3",
            "hyperparameters is 3, it must be a table",
        ),
        (
            "scenario = { classes_avg = 2 }",
            "scenario = { hyperparameters = { local_steps = 3 } }",
            "few has hyperparameters in its scenario, they stand beside it",
        ),
        ("scenario = { classes_avg = 2 }", "scenario = 3", "scenario is 3, it must be a table"),
        ("[scenario]", '[[columns]]\nfraction = "a"\n[scenario]', "fraction is 'a', it must be of type float"),
    ],
)
def test_a_mistake_in_the_file_is_one_clear_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        load(tmp_path, TABLE.replace(old, new))


def test_sentences_may_have_several_lines_and_names_blanks_that_do_not_break(tmp_path: Path) -> None:
    text = TABLE.replace('"A tiny table"', r'"5\u00a0°, 中"').replace('"Somebody, Table I"', r'"Somebody,\n\tTable I"')
    assert load(tmp_path, text).title == "5\u00a0°, 中"


def test_runs_are_shared_by_columns_unless_the_method_knows_the_number_of_rounds(tmp_path: Path) -> None:
    columns = "[[columns]]\nname = 'one'\nrounds = 1\n[[columns]]\nname = 'two'\nrounds = 2\n[scenario]"
    text = (
        TABLE.replace("[scenario]", columns, 1)
        .replace("[50.0]", "[50.0, 60.0]")
        .replace("rounds = 1\nwork", "rounds = 2\nwork")
    )
    assert len(list(load(tmp_path, text).runs({}))) == 4
    text = text.replace('{ method = "fedavg" }', '{ method = "swim" }\nrounds_hyperparameter = "rounds"')
    runs = list(load(tmp_path, text).runs({}))
    assert len(runs) == 8
    assert {(run.scenario.rounds, run.scenario.hyperparameters["rounds"]) for run in runs} == {(1, 1), (2, 2)}
    fewer = [run.scenario for run in load(tmp_path, text).runs({"rounds": 1})]
    assert [(scenario.rounds, scenario.hyperparameters["rounds"]) for scenario in fewer] == [(1, 1)] * 4


def test_settings_of_experiment_cell_variant_and_both_lie_on_top_of_each_other(tmp_path: Path) -> None:
    text = TABLE.replace(
        "{ classes_avg = 4 }", "{ classes_avg = 4 }\nhyperparameters = { local_steps = 3, momentum = 0.1 }"
    )
    text = text.replace('{ method = "fedavg" }', '{ method = "fedavg" }\nhyperparameters = { momentum = 0.2 }', 1)
    text += "in_cell = { few = { local_steps = 5 } }\n"
    settings = {(run.cell, run.variant): dict(run.scenario.hyperparameters) for run in load(tmp_path, text).runs({})}
    assert settings["few", "FedAvg, before"] == {"local_steps": 2, "momentum": 0.2}
    assert settings["more", "FedAvg, before"] == {"local_steps": 3, "momentum": 0.2}
    assert settings["few", "FedAvg, after"] == {"local_steps": 5}
    assert settings["more", "FedAvg, after"] == {"local_steps": 3, "momentum": 0.1}


def test_a_variant_s_scenario_lies_on_top_of_the_cell_s_and_that_on_the_experiment_s(tmp_path: Path) -> None:
    text = TABLE.replace("{ classes_avg = 4 }", "{ classes_avg = 4, mining_attempts = 5 }")
    text = text.replace('{ method = "fedavg" }', '{ method = "fedavg", classes_avg = 3 }', 1)
    made = [run.scenario for run in load(tmp_path, text).runs({}) if run.seed == 0]
    found = sorted((scenario.classes_avg, scenario.mining_attempts) for scenario in made)
    assert found == [(2, 4), (3, 4), (3, 5), (4, 5)]


def test_cells_that_are_numbers_of_rounds_are_a_search_and_others_are_none(tmp_path: Path) -> None:
    """The rounds of a search are not to be changed on the command line."""
    sought = TABLE.replace("[scenario]", '[[columns]]\nseek = "highest"\n\n[scenario]', 1)
    rounds = sought.replace("{ classes_avg = 2 }", "{ rounds = 2 }").replace("{ classes_avg = 4 }", "{ rounds = 4 }")
    assert not load(tmp_path, sought).is_search
    assert load(tmp_path, rounds).is_search
    assert not load(tmp_path, rounds.replace('seek = "highest"', "")).is_search


def test_a_number_of_rounds_that_is_none_is_one_clear_line_where_the_method_knows_it(tmp_path: Path) -> None:
    text = TABLE.replace('{ method = "fedavg" }', '{ method = "swim" }\nrounds_hyperparameter = "rounds"')
    with pytest.raises(ScenarioError, match="scenario rounds is 'many', it must be of type int"):
        list(load(tmp_path, text.replace("rounds = 1\n", 'rounds = "many"\n')).runs({}))


def test_seeds_beyond_those_that_are_listed_go_on_counting() -> None:
    assert first_seeds((3, 0), None) == (3, 0)
    assert first_seeds((3, 0), 1) == (3,)
    assert first_seeds((3, 0), 5) == (3, 0, 1, 2, 4)


@pytest.mark.parametrize("wanted", [SEEDS_MAX + 1, 10**30])
def test_so_many_seeds_that_their_numbers_alone_would_fill_the_memory_are_refused(wanted: int) -> None:
    """They ended in a MemoryError, or in an OverflowError."""
    for ask in (lambda: first_seeds((0,), wanted), lambda: build_comparison(["solo"], wanted, {}, {}, [], ["taa"])):
        with pytest.raises(ScenarioError, match=f"^--seeds is {wanted}, it must be at most 10,000$"):
            ask()


@pytest.mark.slow
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
