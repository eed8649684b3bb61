"""A run that was interrupted goes on, and comes to what it would have come to: the same trace, tip and metrics."""

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from fedchain.chain.storage.sqlite import Store
from fedchain.cli.main import app
from fedchain.files.layout import RECORD_FOLDER, TIMELINE_FILE, free_folder
from fedchain.files.members import read_members
from fedchain.node.shell.timeline import SeenBlock, newest_lines
from fedchain.simulator.engine.measurement import RoundMetrics, Span
from fedchain.simulator.engine.outcome import Outcome
from fedchain.simulator.report import RunFolder
from fedchain.simulator.resuming.record import LOG, Record, RecordError, reading_timeline
from fedchain.simulator.resuming.resume import identity, interrupted_run, require_same
from fedchain.simulator.run import load_learner, simulate
from fedchain.simulator.scenario import ScenarioError, load_scenario
from tests.support.simulator.interruptions import found, play, scenario_of
from tests.support.simulator.recorded import IDENTITY, answer_of
from tests.support.simulator.recorded import record as record
from tests.support.simulator.trivial import trivial_scenario


@pytest.mark.parametrize(
    "kind",
    [
        *(pytest.param(kind, marks=pytest.mark.long) for kind in ("state", "asleep")),
        *(
            pytest.param(kind, marks=pytest.mark.slow)
            for kind in ("liars", "prototypes, restarted", "models", "together")
        ),
    ],
)
def test_a_run_that_is_interrupted_again_and_again_comes_to_the_same(kind: str, tmp_path: Path) -> None:
    """Its stored chain, too, which is begun anew each time, is that of the run left alone."""
    scenario = scenario_of(kind)
    whole = found(simulate(scenario, load_learner(scenario), chain_folder=tmp_path / "whole"))
    got = [play(scenario, tmp_path / "record", frames, tmp_path / "chain") for frames in (1, 4, 6, None)]
    assert got == [None, None, None, whole]
    with Store.open(tmp_path / "whole") as expected, Store.open(tmp_path / "chain") as stored:
        heights = range(1, expected.height() + 1)
        assert [stored.final(height) for height in heights] == [expected.final(height) for height in heights]
        assert stored.counts() == expected.counts()
        assert not list(stored.damage())


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """Results of a run, and its record."""
    folder = tmp_path_factory.mktemp("run") / "record"
    whole = play(scenario_of("noise", rounds=2), folder)
    assert whole is not None
    return whole, folder


@pytest.mark.parametrize("share", [0.4, 1.0])
def test_a_record_that_was_cut_anywhere_gives_the_same_run(
    share: float, finished: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    """Also the privacy budget is the same, which a client that began again must not spend twice."""
    whole, folder = finished
    shutil.copytree(folder, tmp_path / "record")
    log = tmp_path / "record" / LOG
    os.truncate(log, round(share * log.stat().st_size))
    assert play(scenario_of("noise", rounds=2), tmp_path / "record") == whole


def test_states_that_are_damaged_are_computed_again(finished: tuple[dict[str, Any], Path], tmp_path: Path) -> None:
    whole, folder = finished
    shutil.copytree(folder, tmp_path / "record")
    first, second, _ = sorted((tmp_path / "record" / "states").iterdir())
    first.write_bytes(first.read_bytes()[:-1])
    second.unlink()
    assert play(scenario_of("noise", rounds=2), tmp_path / "record") == whole


def test_a_record_of_another_run_is_noticed(finished: tuple[dict[str, Any], Path], tmp_path: Path) -> None:
    _, folder = finished
    shutil.copytree(folder, tmp_path / "record")
    with pytest.raises(RecordError, match="was begun with scenario of SHA-256"):
        play(scenario_of("noise", rounds=2, seed=1), tmp_path / "record")


def test_a_scenario_that_was_changed_in_the_run_s_folder_is_another_run(tmp_path: Path) -> None:
    """Whether its trace is the same or not: with other measurements, half of the rounds would have been measured."""
    folder = RunFolder(tmp_path / "run", trivial_scenario())
    folder.open_record(identity(trivial_scenario()), is_resumed=False).close()
    file = folder.path / "scenario.toml"
    before = file.read_text()
    for changed in ("evaluate_every = 2", "train_ahead = false"):
        file.write_text(f"{changed}\n{before}")
        scenario = load_scenario(file, {})
        if changed == "train_ahead = false":
            folder.open_record(identity(scenario), is_resumed=True).close()
            continue
        with pytest.raises(RecordError, match="was begun with scenario of SHA-256"):
            folder.open_record(identity(scenario), is_resumed=True)


def refused(*arguments: str) -> str:
    """The one line that a refused command prints."""
    result = CliRunner().invoke(app, ["simulate", *arguments])
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.strip().splitlines()
    return line


def test_what_cannot_go_on_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert refused("--resume") == "fedchain: runs/digits holds no run that was interrupted"
    Path("elsewhere").mkdir()
    assert refused("--draw", "--out", "elsewhere") == "fedchain: elsewhere holds no run that was interrupted"
    folder = RunFolder(Path("runs/trivial"), trivial_scenario())
    assert "its peers is 4, not 5" in refused("--resume", "--out", str(folder.path), "--peers", "5")
    assert "its hyperparameters is {}, not {'local_steps': 2}" in refused(
        "--resume", "--set", "name=trivial", "--set", "local_steps=2"
    )
    assert "runs/trivial has no record of what was computed (--no-record)" in refused(
        "--resume", "--set", "name=trivial"
    )
    Record.create(folder.path / RECORD_FOLDER, identity(trivial_scenario()) | {"torch": "0.1"}).close()
    assert "was begun with torch 0.1, and this is torch" in refused(
        "--resume", "--set", "name=trivial", "--workers", "1"
    )
    (folder.path / "result.json").touch()
    assert "holds a finished run" in refused("--resume", "--set", "name=trivial")


def test_the_newest_run_of_a_name_is_the_one_that_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for count in range(1, 5):
        RunFolder(folder := free_folder("trivial"), trivial_scenario())
        assert interrupted_run(None, {"name": "trivial"}, None)[1] == folder, f"run {count}"


def test_other_workers_than_those_of_a_run_of_cohorts_are_refused(tmp_path: Path) -> None:
    """They would make other cohorts, whose sums have other last bits."""
    for is_vectorized in (False, True):
        scenario = trivial_scenario(vectorize_clients=is_vectorized, workers=2)
        folder = RunFolder(tmp_path / str(is_vectorized), scenario).path
        require_same(folder, replace(scenario, data_dir="elsewhere"))
        if not is_vectorized:
            require_same(folder, replace(scenario, workers=3))
            continue
        with pytest.raises(ScenarioError, match=r"its workers is 2, not 3$"):
            require_same(folder, replace(scenario, workers=3))


def test_a_folder_that_is_there_is_refused_before_the_data_are_read(tmp_path: Path) -> None:
    line = refused("--dataset", "cifar10", "--set", "data_dir=nowhere", "--out", str(tmp_path))
    assert line == f"fedchain: {tmp_path} exists already; name another folder with --out"
    run = RunFolder(tmp_path / "run", trivial_scenario()).path
    (run / RECORD_FOLDER).mkdir()
    line = refused("--out", str(run))
    way = "go on with --resume, or name another folder with --out"
    assert line == f"fedchain: {run} exists already with a run that was interrupted; {way}"


def test_own_code_that_was_changed_is_another_run(tmp_path: Path) -> None:
    code = tmp_path / "own.py"
    code.write_text("VERSION = 1")
    scenario = trivial_scenario(method="fedavg")
    own = replace(scenario, task=f"{code}:load")
    before = identity(own)
    assert before[own.task].startswith("of SHA-256")
    code.write_text("VERSION = 2")
    assert identity(own) != before
    local, other = IDENTITY.get, answer_of
    assert identity(scenario, other) != identity(scenario) == identity(scenario, local), "as far as sources are known"


def test_what_was_measured_before_is_not_taken_back(tmp_path: Path) -> None:
    scenario = trivial_scenario()
    rows = [RoundMetrics(round=number, height=number, virtual_s=float(number), taa=0.5, tal=1.0) for number in (1, 2)]
    seen = [SeenBlock(number, "ab" * 32, None, 9, ()) for number in (1, 2)]
    first, again = RunFolder(tmp_path / "run", scenario), RunFolder(tmp_path / "run", scenario, is_resumed=True)
    with closing(first.open_record(IDENTITY, is_resumed=False)) as record:
        first.write_rows(rows, lambda: seen)  # while another process prepares to go on
        record.close_round(1, bytes(32), {(0, 1): Span(0.0, 1.0, 2.0, 3.0, 4.0)})
    with closing(again.open_record(IDENTITY, is_resumed=True)) as record:
        assert record.rounds_before == 1
        again.write_rows(rows[:1], lambda: seen[:1])
    assert again.read_rows() == rows
    assert (tmp_path / "run" / TIMELINE_FILE).read_bytes() == newest_lines(seen)
    with reading_timeline(tmp_path / "run" / RECORD_FOLDER) as timeline:
        assert timeline == {(0, 1): Span(0.0, 1.0, 2.0, 3.0, 4.0)}
        again.draw(again.read_rows(), timeline, np.eye(3, dtype=np.int64))
    assert {path.name for path in again.path.glob("*.png")} == {"curves.png", "classes.png", "timeline.png"}
    with pytest.raises(ScenarioError, match="exists already"):
        RunFolder(tmp_path / "run", scenario)


def test_measurements_that_were_damaged_are_written_again_and_said_to_be_damaged(tmp_path: Path) -> None:
    scenario, rows = trivial_scenario(), [RoundMetrics(round=1, height=1, virtual_s=1.0, taa=0.5, tal=1.0)]
    RunFolder(tmp_path / "run", scenario)
    file = tmp_path / "run" / "metrics.jsonl"
    for damaged in ("{}\n", '{"round": 1, "height": 1, "virtual_s": 1.0, "taa": "much"}\n'):
        file.write_text(3 * damaged)
        folder = RunFolder(tmp_path / "run", scenario, is_resumed=True)
        with pytest.raises(ScenarioError, match=r"metrics\.jsonl cannot be read"):
            folder.read_rows()
        folder.write_rows(rows, list)
        assert file.read_text() == 3 * damaged, "the run is not as far as it was"
        folder.write_outcome(Outcome(rows, {}, "a", "b", "c", 1.0, 1, []), 1.0)
        assert folder.read_rows() == rows


def test_a_run_that_another_process_finished_meanwhile_is_finished(tmp_path: Path) -> None:
    """Its record is gone, which is no reason to say that it never had one."""
    first = RunFolder(tmp_path / "run", trivial_scenario())
    first.open_record(IDENTITY, is_resumed=False).delete()
    (first.path / "result.json").touch()
    with pytest.raises(ScenarioError, match="holds a finished run"):
        RunFolder(first.path, trivial_scenario(), is_resumed=True).open_record(IDENTITY, is_resumed=True)


@pytest.mark.long
def test_a_killed_command_goes_on(tmp_path: Path) -> None:
    """From the outside: the process is killed, the folder is drawn, and the same command with --resume ends the run."""
    quick = ("--peers", "3", "--rounds", "3", "--workers", "1", "--set", "mining_attempts=8", "--set", "local_steps=2")
    command = [sys.executable, "-u", "-m", "fedchain", "simulate", *quick, "--out", str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("round 2/"):
                break
        os.killpg(process.pid, signal.SIGKILL)
    runner = CliRunner()
    drawn = runner.invoke(app, ["simulate", "--draw", "--out", str(tmp_path / "run")])
    assert drawn.exit_code == 0, drawn.output
    assert " of 3 rounds; pictures are in " in drawn.output
    pictures = [*(tmp_path / "run").glob("*.png")]
    for path in pictures:
        path.unlink()
    resumed = runner.invoke(app, ["simulate", *quick, "--resume", "--draw", "--out", str(tmp_path / "run")])
    assert resumed.exit_code == 0, resumed.output
    assert "rounds were closed before; they come from the record" in resumed.output
    assert pictures
    assert all(path.exists() for path in pictures)
    scenario = load_scenario(tmp_path / "run" / "scenario.toml", {})
    outcome = simulate(scenario, load_learner(scenario))
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [row.to_dict() for row in outcome.rows]
    assert [*read_members(tmp_path / "run")] == outcome.members
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (result["trace_hash"], result["tip"]) == (outcome.trace_hash, outcome.tip)
    assert not (tmp_path / "run" / RECORD_FOLDER).exists()
    verified = runner.invoke(app, ["explorer", "verify", str(tmp_path / "run")])
    assert verified.exit_code == 0, verified.output
