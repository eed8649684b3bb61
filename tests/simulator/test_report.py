"""A run folder holds what was run and what was measured, and its pictures show something."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedchain.files.layout import free_folder
from fedchain.files.members import MemberAccuracy, read_members
from fedchain.simulator.engine.measurement import RoundMetrics, Span
from fedchain.simulator.engine.simulation import Outcome
from fedchain.simulator.palette import title_of
from fedchain.simulator.report import RunFolder, draw_curves, draw_heat_map, draw_timeline, not_held, result_of
from fedchain.simulator.scenario import ScenarioError, load_scenario
from tests.support.simulator.trivial import trivial_scenario

ROWS = [
    RoundMetrics(round=number, height=number, virtual_s=5.0 * number, taa=0.5 + 0.1 * number, tal=1.0 / number)
    for number in (1, 2, 3)
]
TIMELINE = {
    (peer, number): Span(5.0 * number, 5.0 * number + 1, 5.0 * number + 1.2, 5.0 * number + 4, 5.0 * number + 4.2)
    for peer in range(3)
    for number in (1, 2, 3)
}


MEMBERS = [MemberAccuracy(1, 0, 0.1 + 0.2), MemberAccuracy(1, 1, 1.0, 0.25)]


def _outcome() -> Outcome:
    return Outcome(ROWS, TIMELINE, "aa" * 32, "bb" * 32, "cc" * 32, 15.0, 42, [], members=MEMBERS, totals={"blocks": 3})


def _colours(path: Path) -> int:
    with Image.open(path) as image:
        assert min(image.size) > 150
        return len(image.convert("RGB").getcolors(maxcolors=2**24) or [])


def test_a_folder_is_complete_and_its_scenario_runs_again(tmp_path: Path) -> None:
    scenario = trivial_scenario(peers=3)
    folder = RunFolder(tmp_path / "run", scenario)
    folder.write_outcome(_outcome(), np.eye(3, 10, dtype=np.int64), 1.5)
    names = {path.name for path in folder.path.iterdir()}
    pictures = {"curves.png", "classes.png", "timeline.png"}
    assert names == {"scenario.toml", "metrics.jsonl", "members.csv", "timeline.jsonl", "result.json", *pictures}
    assert load_scenario(folder.path / "scenario.toml", {}) == scenario
    assert [*read_members(folder.path)] == MEMBERS
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
    draw_curves(ROWS, "a title", tmp_path / "curves.png")
    draw_heat_map(np.arange(30).reshape(3, 10), "a title", tmp_path / "classes.png")
    draw_timeline(TIMELINE, "a title", tmp_path / "timeline.png")
    for name in ("curves.png", "classes.png", "timeline.png"):
        assert _colours(tmp_path / name) > 10, name


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that are drawn, instead of files."""
    drawn: list[Any] = []
    monkeypatch.setattr("fedchain.simulator.report._save", lambda figure, path: drawn.append(figure))
    return drawn


def test_pictures_say_method_data_and_seed(figures: list[Any]) -> None:
    title = title_of(trivial_scenario(peers=3))
    draw_curves(ROWS, title, Path("curves.png"))
    draw_heat_map(np.arange(30).reshape(3, 10), title, Path("classes.png"))
    draw_timeline(TIMELINE, title, Path("timeline.png"))
    assert [figure.get_suptitle() for figure in figures] == ["dfpl on digits: 3 peers, seed 0"] * 3


def test_a_class_that_no_peer_holds_is_said(figures: list[Any]) -> None:
    held = np.ones((3, 10), np.int64)
    assert not_held(held) == ""
    held[:, 7] = 0
    assert not_held(held) == "no peer holds class 7"
    held[:, 2] = 0
    draw_heat_map(held, "a title", Path("classes.png"))
    assert figures[0].axes[0].get_title() == "training images (no peer holds classes 2, 7)"


def test_lines_that_coincide_show_each_other(figures: list[Any]) -> None:
    same = [replace(row, taa_received=row.taa, tal_received=row.tal) for row in ROWS]
    draw_curves(same, "a title", Path("curves.png"))
    for axes in figures[0].axes:
        below, above = axes.get_lines()
        assert below.get_xydata().tolist() == above.get_xydata().tolist()
        assert below.get_linewidth() > above.get_linewidth() + 1
        assert below.get_color() != above.get_color()
        assert below.get_linestyle() != above.get_linestyle()


def test_a_timeline_says_what_it_leaves_out(figures: list[Any]) -> None:
    draw_timeline({(0, number): Span() for number in range(1, 21)}, "a title", Path("timeline.png"))
    draw_timeline({(peer, 21): Span() for peer in range(41)}, "a title", Path("timeline.png"))
    titles = [figure.get_suptitle() for figure in figures]
    assert titles == ["a title", "a title\n(rounds 1 to 20 of 21, peers 0 to 39 of 41)"]


def test_the_timeline_has_round_numbers_and_marks_who_mined(figures: list[Any]) -> None:
    timeline = dict(TIMELINE)
    timeline[1, 2] = replace(timeline[1, 2], sealed=14.1)
    timeline[0, 3] = replace(timeline[0, 3], sealed=19.0)
    draw_timeline(timeline, "a title", Path("timeline.png"))
    (axes,) = figures[0].axes
    assert [(text.get_text(), text.xy[0]) for text in axes.texts] == [("1", 5.0), ("2", 10.0), ("3", 15.0)]
    (stars,) = [points for points in axes.collections if points.get_label() == "mined the block"]
    assert sorted(stars.get_offsets().tolist()) == [[14.1, 1.0], [19.0, 0.0]]


def test_peers_that_did_nothing_leave_the_timeline_empty(tmp_path: Path) -> None:
    draw_timeline({(0, 1): Span()}, "a title", tmp_path / "timeline.png")
    assert (tmp_path / "timeline.png").stat().st_size > 1_000
