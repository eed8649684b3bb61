"""A run that was interrupted goes on, and comes to what it would have come to: the same trace, tip and metrics."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from fedchain.chain.storage.sqlite import Store
from fedchain.cli.main import app
from fedchain.files.layout import RECORD_FOLDER
from fedchain.learning.bulk import AddressedBytes
from fedchain.learning.exceptions import DecryptionRefused, ReleaseRefused, TrainingDiverged
from fedchain.learning.executors.executor import QuestionId
from fedchain.learning.executors.handover import LARGE_SIZE
from fedchain.learning.training.measured import Evaluation
from fedchain.learning.worker.contribution import Contribution
from fedchain.simulator.engine.measurement import RoundMetrics, Span
from fedchain.simulator.report import RunFolder
from fedchain.simulator.resuming.answers import Batch, RecordedAnswer, read_answer, write_answer
from fedchain.simulator.resuming.record import LOG, Record, RecordError, read_timeline
from fedchain.simulator.resuming.resume import identity
from fedchain.simulator.run import load_learner, simulate
from fedchain.simulator.scenario import ScenarioError, load_scenario
from tests.support.simulator.interruptions import found, play, scenario_of
from tests.support.simulator.trivial import trivial_scenario

IDENTITY = {"fedchain": "1"}
QUESTION = QuestionId(0, "update", 1, bytes(32), True)
MADE = Contribution(
    payload=b"",
    steps=3,
    local=Evaluation(0.5, float("nan"), test_accuracy=0.25),
    received=None,
    scalars=7,
    epsilon=0.1,
    parts=(b"p" * 32,),
    addressed=AddressedBytes(1, 2, 3, 4),
    skipped=((2, "part 00 is not here"),),
)


def answer_of(record: Record, payload: bytes = b"payload", part: bytes = b"part") -> RecordedAnswer:
    return RecordedAnswer(QUESTION, MADE, record.put(payload), (record.put(part),))


@pytest.mark.long
@pytest.mark.parametrize("kind", ["prototypes, restarted", "state", "together", "liars", "sharing checks", "asleep"])
def test_a_run_that_is_interrupted_again_and_again_comes_to_the_same(kind: str, tmp_path: Path) -> None:
    """Its stored chain, too, which is begun anew each time, is that of the run left alone."""
    scenario = scenario_of(kind)
    whole = found(simulate(scenario, load_learner(scenario), chain_folder=tmp_path / "whole"))
    got = [play(scenario, tmp_path / "record", frames, tmp_path / "chain") for frames in (1, 4, 7, None)]
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
    with pytest.raises(RecordError, match=r"the record has peer|differs from the record"):
        play(scenario_of("noise", rounds=2, seed=1), tmp_path / "record")


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Record]:
    record = Record.create(tmp_path / "record", IDENTITY)
    yield record
    record.close()


def test_a_record_that_is_cut_holds_its_first_frames(record: Record, tmp_path: Path) -> None:
    log = tmp_path / "record" / LOG
    ends = [log.stat().st_size]
    for number in (1, 2, 3):
        record.add(0, number, Batch(0, number, 1), answer_of(record))
        ends.append(log.stat().st_size)
    record.close()
    whole = log.read_bytes()
    for length in range(0, len(whole) + 1, 3):
        log.write_bytes(whole[:length])
        cut = Record.open(tmp_path / "record", IDENTITY)
        assert cut.count(0) == sum(end <= length for end in ends[1:])
        cut.add(0, cut.count(0) + 1, Batch(0, cut.count(0) + 1, 1), answer_of(cut))  # it goes on behind them
        assert cut.answer(0, cut.count(0)).question == QUESTION
        cut.close()


def test_a_bit_that_was_flipped_ends_the_record_there(record: Record, tmp_path: Path) -> None:
    log = tmp_path / "record" / LOG
    record.add(0, 1, Batch(0, 1, 1), answer_of(record))
    end = log.stat().st_size
    record.add(0, 2, Batch(0, 2, 1), answer_of(record))
    record.close()
    data = bytearray(log.read_bytes())
    data[end + 20] ^= 1
    log.write_bytes(data)
    again = Record.open(tmp_path / "record", IDENTITY)
    assert again.count(0) == 1
    again.close()


def test_large_contents_are_files_which_are_looked_for_and_checked(record: Record, tmp_path: Path) -> None:
    large, other = bytes(LARGE_SIZE), b"1" * LARGE_SIZE
    assert record.put(other) == record.put(other)
    record.add(0, 1, Batch(0, 1, 1), answer_of(record, large, other))
    record.add(0, 2, Batch(0, 2, 1), answer_of(record, other))
    assert (tmp_path / "record" / LOG).stat().st_size < LARGE_SIZE
    payload = record.answer(0, 1).payload
    assert payload is not None
    assert record.read(payload) == large
    path = tmp_path / "record" / "contents" / payload.hash.hex()
    path.write_bytes(large[:-1] + b"1")
    with pytest.raises(RecordError, match="is damaged; resume once more"):
        record.read(payload)
    record.close()
    again = Record.open(tmp_path / "record", IDENTITY)
    assert again.count(0) == 0
    again.close()


@pytest.mark.parametrize(
    "refusal",
    [TrainingDiverged(1, 2, 3, float("inf"), "why"), DecryptionRefused("member 1"), ReleaseRefused("member 2")],
)
def test_answers_survive_the_record(refusal: Exception, record: Record) -> None:
    answer = answer_of(record)
    assert repr(read_answer(0, write_answer(answer))) == repr(answer)  # NaN is not itself
    record.add(0, 1, Batch(0, 1, 1), RecordedAnswer(QUESTION, refusal, None))  # type: ignore[arg-type]
    again = record.answer(0, 1).made
    assert (type(again), str(again)) == (type(refusal), str(refusal))


def test_what_is_computed_again_must_be_what_it_was(record: Record) -> None:
    record.add(0, 1, Batch(0, 1, 1), answer_of(record))
    record.add(0, 1, Batch(0, 1, 1), answer_of(record))
    with pytest.raises(RecordError, match="peer 0's contribution to phase update of round 1 differs from the record"):
        record.add(0, 1, Batch(0, 1, 1), answer_of(record, b"other"))
    record.close_round(1, b"a" * 32, {(0, 1): Span(1.0, 2.0)})
    record.close_round(1, b"a" * 32, {})
    with pytest.raises(RecordError, match="round 1 differs from the record"):
        record.close_round(1, b"b" * 32, {})


def test_half_of_what_was_computed_together_is_nothing(record: Record, tmp_path: Path) -> None:
    for client in (0, 1):
        record.add(client, 1, Batch(0, 1, 2), answer_of(record))
    record.add(0, 2, Batch(0, 2, 2), answer_of(record))
    record.close()
    again = Record.open(tmp_path / "record", IDENTITY)
    assert [again.count(client) for client in (0, 1)] == [1, 1]
    again.close()


def test_a_record_has_one_user_and_one_version(record: Record, tmp_path: Path) -> None:
    folder = tmp_path / "record"
    if not (child := os.fork()):
        try:
            Record.open(folder, IDENTITY)
        except RecordError as error:
            os._exit(int(str(error) != f"{tmp_path} is in use by another process"))
        os._exit(2)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    record.close()
    with pytest.raises(RecordError, match="was begun with fedchain 1, and this is fedchain 2: it cannot go on"):
        Record.open(folder, {"fedchain": "2"})
    with pytest.raises(RecordError, match="has no record of what was computed"):
        Record.open(tmp_path / "other", IDENTITY)


def refused(*arguments: str) -> str:
    """The one line that a refused command prints."""
    result = CliRunner().invoke(app, ["simulate", *arguments])
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.strip().splitlines()
    return line


def test_what_cannot_go_on_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert refused("--resume") == "fedchain: runs/digits holds no run that was interrupted"
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


def test_a_folder_that_is_there_is_refused_before_the_data_are_read(tmp_path: Path) -> None:
    line = refused("--dataset", "cifar10", "--data-dir", "nowhere", "--out", str(tmp_path))
    assert line == f"fedchain: {tmp_path} exists already; name another folder with --out"


def test_own_code_that_was_changed_is_another_run(tmp_path: Path) -> None:
    code = tmp_path / "own.py"
    code.write_text("VERSION = 1")
    scenario = trivial_scenario(method="fedavg")
    own = replace(scenario, task=f"{code}:load")
    before = identity(own)
    assert before.items() > identity(scenario).items()
    code.write_text("VERSION = 2")
    assert identity(own) != before
    local, other = IDENTITY.get, answer_of
    assert identity(scenario, other) != identity(scenario) == identity(scenario, local), "as far as sources are known"


def test_what_was_measured_before_is_not_taken_back(tmp_path: Path) -> None:
    scenario = trivial_scenario()
    rows = [RoundMetrics(round=number, height=number, virtual_s=float(number), taa=0.5, tal=1.0) for number in (1, 2)]
    RunFolder(tmp_path / "run", scenario).write_rows(rows)
    again = RunFolder(tmp_path / "run", scenario, is_resumed=True)
    again.write_rows(rows[:1])
    assert again.read_rows() == rows
    record = again.open_record(IDENTITY, is_resumed=False)
    record.close_round(1, bytes(32), {(0, 1): Span(0.0, 1.0, 2.0, 3.0, 4.0)})
    record.close()
    timeline = read_timeline(tmp_path / "run" / RECORD_FOLDER)
    assert timeline == {(0, 1): Span(0.0, 1.0, 2.0, 3.0, 4.0)}
    again.draw(again.read_rows(), timeline, np.eye(3, dtype=np.int64))
    assert {path.name for path in again.path.glob("*.png")} == {"curves.png", "classes.png", "timeline.png"}
    with pytest.raises(ScenarioError, match="exists already"):
        RunFolder(tmp_path / "run", scenario)


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
    resumed = runner.invoke(app, ["simulate", *quick, "--resume", "--out", str(tmp_path / "run")])
    assert resumed.exit_code == 0, resumed.output
    assert "rounds were closed before; they come from the record" in resumed.output
    scenario = load_scenario(tmp_path / "run" / "scenario.toml", {})
    outcome = simulate(scenario, load_learner(scenario))
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [row.to_dict() for row in outcome.rows]
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (result["trace_hash"], result["tip"]) == (outcome.trace_hash, outcome.tip)
    assert not (tmp_path / "run" / RECORD_FOLDER).exists()
    verified = runner.invoke(app, ["explorer", "verify", str(tmp_path / "run")])
    assert verified.exit_code == 0, verified.output
