"""A comparison is an experiment."""

import json
import tomllib
from pathlib import Path

import pytest

from fedchain.simulator.reproduction.compare import build_comparison, write_experiment
from fedchain.simulator.reproduction.experiment import load_experiment
from fedchain.simulator.scenario import Scenario, ScenarioError
from tests.support.cli_compare import compare
from tests.support.cli_compare import ran as ran
from tests.support.cli_compare import undrawn as undrawn


def test_own_data_are_named_by_their_task() -> None:
    task = {"task": "mytask.py:load"}
    experiment = build_comparison(["solo"], 1, task, {}, [], ["taa"])
    assert (experiment.title, experiment.cells[0].name) == ("solo on mytask.py:load", "mytask.py:load")
    swept = build_comparison(["solo"], 1, {}, {}, ["task=mytask.py:load,mytask.py:other"], ["taa"])
    assert (swept.title, swept.cells[1].name) == ("solo", "task=mytask.py:other"), "none of them is on digits"


@pytest.mark.parametrize("swapped", [False, True])
def test_a_method_s_own_setting_overrides_that_of_all(swapped: bool) -> None:
    settings = {"fedavg.batch_size": 4, "batch_size": 8, "regularizer_weight": 0.5}
    settings = dict(reversed(settings.items())) if swapped else settings
    experiment = build_comparison(["dfpl", "fedavg"], 2, {"seed": 5}, settings, [], ["taa", "tal"])
    own = {variant.name: dict(variant.hyperparameters) for variant in experiment.variants}
    assert own == {"dfpl": {"batch_size": 8, "regularizer_weight": 0.5}, "fedavg": {"batch_size": 4}}
    assert experiment.seeds == (5, 6)
    assert {column.name: (column.metric, column.statistic) for column in experiment.columns} == {
        "taa": ("taa", "last"),
        "tal": ("tal", "last"),
        "worst member": ("taa_worst", "last"),
    }


@pytest.mark.usefixtures("undrawn")
def test_the_file_of_a_comparison_is_a_whole_experiment(ran: list[Scenario], tmp_path: Path) -> None:
    compare(tmp_path, "--methods", "dfpl,fedavg", "--sweep", "batch_size=8,16", "--peers", "3")
    experiment = load_experiment(tmp_path / "out" / "experiment.toml")
    assert experiment.source == ""
    assert [variant.name for variant in experiment.variants] == ["dfpl", "fedavg"]
    assert experiment.variants[0].in_cell == {"batch_size=8": {"batch_size": 8}, "batch_size=16": {"batch_size": 16}}
    done = {json.loads(path.read_text())["scenario"]["method"] for path in (tmp_path / "out" / "results").iterdir()}
    assert done == {"dfpl", "fedavg"}


def test_the_worst_member_stands_beside_the_members_mean_alone() -> None:
    experiment = build_comparison(["dfpl"], 1, {}, {}, [], ["tal", "posts"])
    assert [column.metric for column in experiment.columns] == ["tal", "posts"]


def test_more_combinations_than_anybody_means_are_refused() -> None:
    sweeps = [f"{name}={','.join(map(str, range(1, count)))}" for name, count in (("batch_size", 41), ("peers", 27))]
    with pytest.raises(ScenarioError, match="sweep has 1040 combinations, at most 1000 are compared"):
        build_comparison(["dfpl"], 1, {}, {}, sweeps, ["taa"])


def test_a_setting_that_is_zero_or_off_stands_in_the_experiment_that_is_written() -> None:
    stated = {"test_every": 0, "test_local": False}
    written = write_experiment(build_comparison(["solo"], 1, stated, {}, [], ["taa"]))
    assert tomllib.loads(written)["scenario"] == stated
