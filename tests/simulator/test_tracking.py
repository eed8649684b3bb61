"""Trackers get every measure once it is known, and again where it changed; without their library it is one line."""

import errno
import json
import os
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from tensorboardX.proto.event_pb2 import Event, SessionLog
from typer.testing import CliRunner

import fedchain
from fedchain.cli.main import app
from fedchain.simulator.engine.measurement import RoundMetrics
from fedchain.simulator.scenario import Scenario, ScenarioError
from fedchain.simulator.tracking import Tracker, open_tracker

RUN = (
    "simulate",
    "--peers",
    "2",
    "--rounds",
    "2",
    "--set",
    "mining_attempts=4",
    "--set",
    "local_steps=1",
    "--workers",
    "1",
)


def events(folder: Path) -> Iterator[Any]:
    """The records of the newest event file: eight bytes of length, four of checksum, the record, four of checksum."""
    path = max(folder.glob("events.out.tfevents.*"), key=lambda path: path.stat().st_mtime_ns)
    data, place = path.read_bytes(), 0
    while place < len(data):
        (size,) = struct.unpack_from("<Q", data, place)
        yield Event.FromString(data[place + 12 : place + 12 + size])
        place += size + 16


@pytest.mark.parametrize(
    "is_python", [pytest.param(False, marks=pytest.mark.long), pytest.param(True, marks=pytest.mark.slow)]
)
def test_tensorboard_shows_what_the_run_wrote(is_python: bool, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    if is_python:
        quick: dict[str, Any] = {"peers": 2, "rounds": 2, "mining_attempts": 4, "workers": 1}
        fedchain.simulate(
            "fedavg", **quick, hyperparameters={"local_steps": 1}, out=folder, track=["tensorboard"], keep_models=False
        )
    else:
        result = CliRunner().invoke(app, [*RUN, "--method", "fedavg", "--track", "tensorboard", "--out", str(folder)])
        assert result.exit_code == 0, result.output
    shown: dict[tuple[int, str], float] = {}
    for event in events(folder / "tensorboard"):
        for value in event.summary.value:
            if value.HasField("simple_value"):
                shown[event.step, value.tag] = value.simple_value
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    known = {
        (row["round"], name): row[name] for row in rows for name in row if name != "round" and row[name] is not None
    }
    assert shown == pytest.approx(known, rel=1e-6), "float32 in the file"
    assert (2, "taa_received") in shown


def test_a_run_that_goes_on_tells_trackers_all_rounds_and_hides_those_of_before(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    quick: dict[str, Any] = {"peers": 2, "rounds": 2, "mining_attempts": 4, "workers": 1, "out": folder}

    def interrupt(row: fedchain.RoundRecord) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedchain.simulate("solo", **quick, track=["tensorboard"], on_round=interrupt)
    assert {event.step for event in events(folder / "tensorboard") if event.HasField("summary")} == {0, 1}
    result = CliRunner().invoke(app, ["simulate", "--resume", "--track", "tensorboard", "--out", str(folder)])
    assert result.exit_code == 0, result.output
    begun = [event for event in events(folder / "tensorboard") if event.HasField("session_log")]
    assert [(event.session_log.status, event.step) for event in begun] == [(SessionLog.START, 0)], "and all before goes"
    steps = {event.step for event in events(folder / "tensorboard") if event.HasField("summary")}
    assert steps == {0, 1, 2}


@dataclass
class Client:
    """As much of MLflow's client as is asked for."""

    tracking_uri: str
    parameters: dict[str, str] = field(default_factory=dict)
    metrics: dict[tuple[int, str], list[float]] = field(default_factory=dict)
    ended: bool = False
    is_gone: bool = False

    def get_experiment_by_name(self, name: str) -> Any:
        return SimpleNamespace(experiment_id="7") if name == "known" else None

    def create_experiment(self, name: str) -> str:
        return f"new {name}"

    def create_run(self, experiment: str) -> Any:
        if self.tracking_uri == "nowhere":
            raise RuntimeError("no server\nanswers")
        return SimpleNamespace(info=SimpleNamespace(run_id=f"run of {experiment}"))

    def log_param(self, run: str, name: str, value: str) -> None:
        self.parameters[name] = value

    def log_metric(self, run: str, name: str, value: float, step: int) -> None:
        if self.is_gone:
            raise RuntimeError("gone")
        self.metrics.setdefault((step, name), []).append(value)

    def set_terminated(self, run: str) -> None:
        self.ended = True


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> list[Client]:
    made: list[Client] = []

    class Library(ModuleType):
        @staticmethod
        def MlflowClient(tracking_uri: str) -> Client:  # noqa: N802 - MLflow's own name
            made.append(Client(tracking_uri))
            return made[-1]

    monkeypatch.setitem(sys.modules, "mlflow", Library("mlflow"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return made


def play(tracker: Tracker) -> None:
    first = RoundMetrics(round=1, height=1, virtual_s=2.0, taa=0.5)
    tracker(first)
    first.taa_received, first.voting_s = 0.25, 1.5
    tracker(RoundMetrics(round=2, height=2, virtual_s=4.0, taa=0.75))


def test_mlflow_is_told_settings_and_rounds(clients: list[Client], tmp_path: Path) -> None:
    with open_tracker("mlflow", Scenario(hyperparameters={"local_steps": 3}), tmp_path) as tracker:
        play(tracker)
    (client,) = clients
    assert client.tracking_uri == f"sqlite:///{tmp_path / 'mlflow.db'}"
    assert client.parameters["hyperparameters.local_steps"] == "3"
    assert client.parameters["dataset"] == "digits"
    assert client.metrics[1, "taa"] == [0.5], "once, because it did not change"
    assert client.metrics[1, "voting_s"] == [0.0, 1.5], "again, because it did"
    assert client.metrics[1, "taa_received"] == [0.25]
    assert client.metrics[2, "taa"] == [0.75]
    assert client.ended


def test_a_server_that_goes_ends_no_simulation(
    clients: list[Client], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_tracker("mlflow=http://127.0.0.1:5000", Scenario(), tmp_path) as tracker:
        clients[0].is_gone = True
        play(tracker)
    assert [record.getMessage() for record in caplog.records] == ["MLflow gets no more rounds: gone"]


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("wandb", "--track is 'wandb'; known are tensorboard, mlflow"),
        ("tensorbord", "--track is 'tensorbord'; did you mean 'tensorboard'?"),
        ("mlflow=", "--track mlflow= names no place after the ="),
        ("mlflow=nowhere", "--track mlflow: nowhere does not take a run: no server answers"),
    ],
)
def test_what_cannot_be_opened_is_one_line(clients: list[Client], tmp_path: Path, wanted: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught, open_tracker(wanted, Scenario(), tmp_path):
        pass
    assert str(caught.value) == message


def test_a_missing_library_is_told_before_anything_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    result = CliRunner().invoke(app, [*RUN, "--track", "mlflow", "--out", str(tmp_path / "run")])
    assert result.exit_code == 2
    assert result.stderr == "fedchain: --track mlflow needs mlflow; run: pip install 'fedchain[mlflow]'\n"
    assert not (tmp_path / "run").exists()


def test_a_place_that_takes_nothing_leaves_no_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    place = f"tensorboard={tmp_path / 'file' / 'here'}"
    result = CliRunner().invoke(app, [*RUN, "--track", place, "--out", str(tmp_path / "run")])
    assert result.exit_code == 2
    assert "cannot be written" in result.stderr
    assert not (tmp_path / "run").exists()


def test_a_run_that_the_disk_ended_says_how_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(run: object, on_round: object, chain: Path, watch: object) -> None:
        chain.mkdir()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "chain.sqlite")

    monkeypatch.setattr("fedchain.simulator.run.Run.play", full)
    place = f"tensorboard={tmp_path / 'my events'}"
    result = CliRunner().invoke(app, [*RUN, "--track", place, "--out", str(tmp_path / "run")], env={"COLUMNS": "500"})
    assert (result.exit_code, result.stderr) == (2, "fedchain: chain.sqlite: No space left on device\n")
    assert f"stopped after 0 rounds; what was measured so far is in {tmp_path / 'run'}" in result.stdout
    assert f"go on: fedchain simulate --resume --out {tmp_path / 'run'} --track '{place}'\n" in result.stdout
