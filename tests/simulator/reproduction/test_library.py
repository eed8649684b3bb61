"""The experiments that ship."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedchain.cli.main import app
from fedchain.files.tables import read_toml
from fedchain.learning.registry import build_method
from fedchain.simulator.reproduction.experiment import Experiment, load_experiment
from fedchain.simulator.reproduction.library import experiment_files, find_experiment, list_experiments
from fedchain.simulator.reproduction.table import Entry
from fedchain.simulator.scenario import ScenarioError
from tests.support.simulator.tiny_experiment import TABLE


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


@pytest.mark.parametrize(("broken", "code"), [(0, 0), (1, 1)])
def test_the_command_runs_what_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: int, code: int
) -> None:
    asked, fetched = list[Any](), list[tuple[str, str]]()
    entries = [Entry("v", "c", "", None, {0: 1.0}, "count", broken=count) for count in (0, broken)]

    def run(experiment: Experiment, *given: object) -> list[Entry]:
        asked.append((experiment.seeds, *given))
        return entries

    monkeypatch.setattr("fedchain.simulator.reproduction.reproduce.reproduce", run)
    monkeypatch.setattr("fedchain.cli.simulate.download_files", lambda *given: fetched.append(given))
    file = tmp_path / "tiny.toml"
    text = TABLE.replace("{ classes_avg = 4 }", '{ dataset = "mnist" }')
    file.write_text(text.replace("{ classes_avg = 2 }", '{ data_dir = "there" }'))
    words = ("--seeds", "3", "--rounds", "2", "--jobs", "4", "--only", "few/*", "--out", tmp_path / "out")
    done = CliRunner().invoke(app, ["reproduce", str(file), "--download", *map(str, words)])
    assert (done.exit_code, done.output) == (code, "")
    assert asked == [((0, 1, 2), tmp_path / "out", 4, {"rounds": 2}, "few/*", "processes")]
    assert fetched == [("digits", "there")], "of what is to be run, and where it is looked for"


def test_results_lie_under_runs_unless_the_file_is_that_of_a_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = list[Path]()

    def run(experiment: Experiment, folder: Path, *given: object) -> list[Entry]:
        folders.append(folder)
        return []

    monkeypatch.setattr("fedchain.simulator.reproduction.reproduce.reproduce", run)
    for name in ("tiny.toml", "experiment.toml"):
        (tmp_path / name).write_text(TABLE)
        CliRunner().invoke(app, ["reproduce", str(tmp_path / name)])
        (tmp_path / "results").mkdir(exist_ok=True)
        CliRunner().invoke(app, ["reproduce", str(tmp_path / name)])
    assert folders == [Path("runs/tiny"), Path("runs/tiny"), tmp_path, tmp_path]


@pytest.mark.long
@pytest.mark.parametrize("path", experiment_files().values(), ids=lambda path: path.stem)
def test_the_experiments_that_ship_are_sound(path: Path) -> None:
    experiment = load_experiment(path)
    assert experiment.seeds
    assert min(experiment.seeds) >= 0
    columns = {column.rounds: column for column in experiment.columns}  # their scenarios differ in nothing else
    runs = list(replace(experiment, seeds=experiment.seeds[:1], columns=tuple(columns.values())).runs({}))
    assert runs
    for run in runs:
        build_method(run.scenario.method, run.scenario.hyperparameters)
