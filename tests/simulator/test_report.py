"""A run folder holds what was run and what was measured, and its pictures show something."""

import errno
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import msgspec
import numpy as np
import pytest

import fedchain
from fedchain.files.layout import free_folder, read_metrics
from fedchain.files.links import Link, read_links
from fedchain.files.members import MemberAccuracy, read_members
from fedchain.node.shell.timeline import SeenBlock
from fedchain.simulator import report
from fedchain.simulator.disturbances import Fault, Trouble
from fedchain.simulator.engine.measurement import RoundMetrics
from fedchain.simulator.engine.outcome import Outcome
from fedchain.simulator.report import RunFolder, result_of
from fedchain.simulator.scenario import ScenarioError, load_scenario
from tests.support.simulator.measured import ROWS, TIMELINE
from tests.support.simulator.trivial import trivial_scenario

MEMBERS = [MemberAccuracy(1, 0, 0.1 + 0.2), MemberAccuracy(1, 1, 1.0, 0.25)]


def _outcome() -> Outcome:
    hashes = ("aa" * 32, "bb" * 32, "cc" * 32)
    links = [Link(0, 1, 500, 2, 80)]
    return Outcome(ROWS, TIMELINE, *hashes, 15.0, 42, [], members=MEMBERS, totals={"blocks": 3}, links=links)


def test_a_folder_is_complete_and_its_scenario_runs_again(tmp_path: Path) -> None:
    scenario = trivial_scenario(peers=3)
    folder = RunFolder(tmp_path / "run", scenario)
    folder.write_outcome(_outcome(), 1.5)
    names = {path.name for path in folder.path.iterdir()}
    assert names == {
        "scenario.toml",
        "metrics.jsonl",
        "members.csv",
        "links.csv",
        "timeline.jsonl",
        "result.json",
    }, "no pictures, which nobody asked for"
    assert load_scenario(folder.path / "scenario.toml", {}) == scenario
    assert [*read_members(folder.path)] == MEMBERS
    assert read_links(folder.path)[0].tolist() == [[0, 1, 500, 2, 80]]
    lines = (folder.path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["taa"] for line in lines] == [row.taa for row in ROWS]
    assert json.loads((folder.path / "result.json").read_text())["tip"] == "aa" * 32


def test_a_round_that_is_filled_in_later_is_written_again(tmp_path: Path) -> None:
    folder, rows = RunFolder(tmp_path / "run", trivial_scenario()), [replace(row) for row in ROWS]
    folder.write_rows(rows, lambda: [])
    rows[0].tal_received = 0.25
    folder.write_rows(rows, lambda: [])
    assert folder.read_rows() == rows


def test_many_rounds_are_not_all_written_whenever_one_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The longer a run was, the longer each of its rounds took: after thousands, most of the time went into that."""
    monkeypatch.setattr(report, "AT_ONCE", 2)
    now_s = 0.0
    monkeypatch.setattr("time.perf_counter", lambda: now_s)

    def seen() -> list[SeenBlock]:
        nonlocal now_s
        now_s += 1.0  # for which rounds are written
        return []

    folder, rows, written = RunFolder(tmp_path / "run", trivial_scenario()), list[RoundMetrics](), list[int]()
    for number in range(1, 31):
        rows.append(replace(ROWS[0], round=number))
        folder.write_rows(rows, seen, may_wait=True)
        written += [number] if len(folder.read_rows()) == number else []
        now_s += 1.0
    assert written == [1, 2, 22]
    folder.write_waiting()
    assert folder.read_rows() == rows


def test_an_interrupted_run_leaves_all_rounds_that_were_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "AT_ONCE", 0)
    monkeypatch.setattr(report, "PAUSE", 1_000_000)
    quick: dict[str, Any] = {"peers": 2, "rounds": 4, "mining_attempts": 4, "workers": 1, "out": tmp_path / "run"}
    written = list[int]()

    def interrupt(row: fedchain.RoundRecord) -> None:
        written.append(len([*read_metrics(tmp_path / "run")]))
        if row.round == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedchain.simulate("solo", **quick, on_round=interrupt)
    assert written == [1, 1, 1]
    assert [row["round"] for row in read_metrics(tmp_path / "run")] == [1, 2, 3]


def test_a_run_that_cannot_be_drawn_leaves_all_its_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "AT_ONCE", 0)
    monkeypatch.setattr(report, "PAUSE", 1_000_000)
    monkeypatch.setattr(RunFolder, "draw", Mock(side_effect=KeyboardInterrupt))
    quick: dict[str, Any] = {"peers": 2, "rounds": 3, "mining_attempts": 4, "workers": 1, "out": tmp_path / "run"}
    with pytest.raises(KeyboardInterrupt):
        fedchain.simulate("solo", **quick, draw=True)
    assert [row["round"] for row in read_metrics(tmp_path / "run")] == [1, 2, 3]


def test_an_infinite_epsilon_is_json_that_every_parser_reads(tmp_path: Path) -> None:
    outcome = _outcome()
    outcome.rows = [replace(ROWS[0], epsilon=math.inf)]
    folder = RunFolder(tmp_path / "run", trivial_scenario())
    folder.write_outcome(outcome, 1.5)
    for name in ("metrics.jsonl", "result.json"):
        found = msgspec.json.decode((folder.path / name).read_bytes())  # strict, where Python's own reads Infinity
        assert found["epsilon"] == "Infinity"
    assert folder.read_rows() == outcome.rows


def test_a_folder_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with pytest.raises(ScenarioError, match="run exists already; name another folder"):
        RunFolder(tmp_path / "run", trivial_scenario())
    assert list((tmp_path / "run").iterdir()) == []


def test_a_full_disk_is_that_of_the_file(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run", trivial_scenario())
    (folder.path / "metrics.jsonl.unfinished").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as raised:
        folder.write_rows(ROWS, lambda: [])
    assert raised.value.filename == str(folder.path / "metrics.jsonl")
    assert [path.name for path in folder.path.iterdir()] == ["scenario.toml"]


@pytest.mark.parametrize("step", ["write_whole", "Record.create"])
def test_a_full_disk_leaves_no_folder_in_the_way(tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(f"fedchain.simulator.report.{step}", refuse)
    with pytest.raises(OSError, match="No space left"):
        RunFolder(tmp_path / "run", trivial_scenario()).open_record({}, is_resumed=False)
    assert list(tmp_path.iterdir()) == []


def test_the_next_free_name_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert free_folder("storm") == Path("runs/storm")
    (tmp_path / "runs" / "storm").mkdir(parents=True)
    assert free_folder("storm") == Path("runs/storm-2")


def test_the_result_leaves_out_what_the_wall_clock_says() -> None:
    assert result_of(_outcome())["trace_hash"] == "cc" * 32
    assert "wall_s" not in result_of(_outcome())


def test_the_result_says_what_trained_where_a_device_was_named() -> None:
    assert "trained_on" not in result_of(_outcome())
    outcome = _outcome()
    outcome.trained_on = {"device": "cuda:0", "card": "a card"}
    assert result_of(outcome)["trained_on"] == {"device": "cuda:0", "card": "a card"}


def test_a_run_s_pictures_know_its_title_and_its_faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr("fedchain.simulator.report.draw_timeline", lambda *given: drawn.append(given))
    faults = (Fault(at_s=6.0, kind="crash", peers=(1,)),)
    folder = RunFolder(tmp_path / "run", trivial_scenario(peers=3, faults=faults))
    folder.draw(ROWS, TIMELINE, np.eye(3, 10, dtype=np.int64))
    path = folder.path / "timeline.png"
    assert drawn == [(TIMELINE, "dfpl on digits: 3 peers, seed 0", path, (Trouble("down", (1,), 6.0, None),))]
