"""A run folder holds what was run and what was measured, and its pictures show something."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedchain.node.command import free_folder
from fedchain.simulator.engine.measurement import RoundMetrics, Span
from fedchain.simulator.engine.simulation import Outcome
from fedchain.simulator.report import RunFolder, draw_curves, draw_heat_map, draw_timeline, result_of
from fedchain.simulator.scenario import ScenarioError, load_scenario
from tests.simulator.trivial import trivial_scenario

ROWS = [
    RoundMetrics(round=number, height=number, virtual_s=5.0 * number, taa=0.5 + 0.1 * number, tal=1.0 / number)
    for number in (1, 2, 3)
]
TIMELINE = {
    (peer, number): Span(5.0 * number, 5.0 * number + 1, 5.0 * number + 1.2, 5.0 * number + 4, 5.0 * number + 4.2)
    for peer in range(3)
    for number in (1, 2, 3)
}


def _outcome() -> Outcome:
    return Outcome(ROWS, TIMELINE, "aa" * 32, "bb" * 32, "cc" * 32, 15.0, 42, [], {"blocks": 3})


def _colours(path: Path) -> int:
    with Image.open(path) as image:
        assert min(image.size) > 150
        return len(image.convert("RGB").getcolors(maxcolors=2**24) or [])


def test_a_folder_is_complete_and_its_scenario_runs_again(tmp_path: Path) -> None:
    scenario = trivial_scenario(peers=3)
    folder = RunFolder(tmp_path / "run", scenario)
    folder.write_outcome(_outcome(), np.eye(3, 10, dtype=np.int64), 1.5)
    names = {path.name for path in folder.path.iterdir()}
    assert names == {"scenario.toml", "metrics.jsonl", "result.json", "curves.png", "classes.png", "timeline.png"}
    assert load_scenario(folder.path / "scenario.toml", {}) == scenario
    lines = (folder.path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["taa"] for line in lines] == [row.taa for row in ROWS]
    assert json.loads((folder.path / "result.json").read_text())["tip"] == "aa" * 32


def test_a_folder_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with pytest.raises(ScenarioError, match="run exists already; name another folder"):
        RunFolder(tmp_path / "run", trivial_scenario())
    assert list((tmp_path / "run").iterdir()) == []


def test_the_next_free_name_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert free_folder("storm") == Path("runs/storm")
    (tmp_path / "runs" / "storm").mkdir(parents=True)
    assert free_folder("storm") == Path("runs/storm-2")


def test_the_result_leaves_out_what_the_wall_clock_says() -> None:
    assert result_of(_outcome())["trace_hash"] == "cc" * 32
    assert "wall_s" not in result_of(_outcome())


def test_the_pictures_show_something(tmp_path: Path) -> None:
    draw_curves(ROWS, tmp_path / "curves.png")
    draw_heat_map(np.arange(30).reshape(3, 10), tmp_path / "classes.png")
    draw_timeline(TIMELINE, tmp_path / "timeline.png")
    for name in ("curves.png", "classes.png", "timeline.png"):
        assert _colours(tmp_path / name) > 10, name


def test_peers_that_did_nothing_leave_the_timeline_empty(tmp_path: Path) -> None:
    draw_timeline({(0, 1): Span()}, tmp_path / "timeline.png")
    assert (tmp_path / "timeline.png").stat().st_size > 1_000
