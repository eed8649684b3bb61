"""Pictures show something, and all that they say is true."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedchain.simulator.disturbances import Trouble
from fedchain.simulator.engine.measurement import Span
from fedchain.simulator.palette import title_of
from fedchain.simulator.pictures import draw_curves, draw_heat_map, draw_timeline, not_held
from tests.support.simulator.measured import ROWS, TIMELINE
from tests.support.simulator.trivial import trivial_scenario

UNMEASURED = (
    *("taa", "taa_received", "taa_prototype", "taa_new", "tal", "tal_received"),
    *("test_accuracy", "test_accuracy_received"),
)
"""The metrics that have curves."""


def _colours(path: Path) -> int:
    with Image.open(path) as image:
        assert min(image.size) > 150
        return len(image.convert("RGB").getcolors(maxcolors=2**24) or [])


def test_the_pictures_show_something(tmp_path: Path) -> None:
    draw_curves(ROWS, "a title", tmp_path / "curves.png")
    draw_heat_map(np.arange(30).reshape(3, 10), "a title", tmp_path / "classes.png")
    draw_timeline(TIMELINE, "a title", tmp_path / "timeline.png")
    for name in ("curves.png", "classes.png", "timeline.png"):
        assert _colours(tmp_path / name) > 10, name


def test_a_full_disk_leaves_the_picture_that_was_there(tmp_path: Path) -> None:
    (path := tmp_path / "curves.png").write_bytes(b"before")
    (tmp_path / "curves.png.unfinished").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as raised:
        draw_curves(ROWS, "a title", path)
    assert raised.value.filename == str(path)
    assert [(found.name, found.read_bytes()) for found in tmp_path.iterdir()] == [("curves.png", b"before")]


def test_no_curves_are_drawn_of_what_was_not_measured(tmp_path: Path) -> None:
    nothing: dict[str, Any] = dict.fromkeys(UNMEASURED)
    draw_curves([replace(ROWS[0], **nothing)], "a title", tmp_path / "curves.png")
    assert [*tmp_path.iterdir()] == []


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that are drawn, instead of files."""
    drawn: list[Any] = []
    monkeypatch.setattr("fedchain.simulator.pictures.write_picture", lambda figure, path: drawn.append(figure))
    return drawn


def test_pictures_say_method_data_and_seed(figures: list[Any]) -> None:
    title = title_of(trivial_scenario(peers=3))
    draw_curves(ROWS, title, Path("curves.png"))
    draw_heat_map(np.arange(30).reshape(3, 10), title, Path("classes.png"))
    draw_timeline(TIMELINE, title, Path("timeline.png"))
    assert [figure.get_suptitle() for figure in figures] == ["dfpl on digits: 3 peers, seed 0"] * 3


@pytest.mark.parametrize("method", ["dfpl", "folder/of/methods/" * 6 + "a_long_name.py:Own", "of $1$ and $\\x"])
def test_no_title_is_wider_than_its_picture(figures: list[Any], method: str) -> None:
    """That of a run of few peers said "ning examples (no peer holds classes 5, 7, 8, 9"."""
    title, held = f"{method} on digits: 3 peers, seed 0", np.zeros((3, 10), dtype=np.int64)
    held[:, :4] = 1
    draw_heat_map(held, title, Path("classes.png"))
    draw_curves(ROWS, title, Path("curves.png"))
    draw_timeline(TIMELINE, title, Path("timeline.png"))
    for figure in figures:
        assert "".join(figure.get_suptitle().split()) == title.replace(" ", "")
        figure.draw_without_rendering()
        (width, height), whole = figure.get_size_inches(), figure.get_tightbbox()
        assert min(whole.x0, whole.y0, width - whole.x1, height - whole.y1) > -0.01


def test_lines_that_coincide_show_each_other(figures: list[Any]) -> None:
    same = [replace(row, taa_received=row.taa, tal_received=row.tal) for row in ROWS]
    draw_curves(same, "a title", Path("curves.png"))
    for axes in figures[0].axes:
        below, above = axes.get_lines()
        assert below.get_xydata().tolist() == above.get_xydata().tolist()
        assert below.get_linewidth() > above.get_linewidth() + 1
        assert below.get_color() != above.get_color()
        assert below.get_linestyle() != above.get_linestyle()


def test_curves_are_in_percent_and_in_nats(figures: list[Any]) -> None:
    draw_curves(ROWS, "a title", Path("curves.png"))
    left, right = figures[0].axes
    assert left.get_lines()[0].get_xydata()[:, 1] == pytest.approx([60.0, 70.0, 80.0])
    assert right.get_lines()[0].get_xydata()[:, 1] == pytest.approx([1.0, 1 / 2, 1 / 3])


def test_the_map_of_classes_has_each_count_where_it_belongs_in_ink_that_is_seen(figures: list[Any]) -> None:
    held = np.zeros((3, 10), dtype=np.int64)
    held[0, 1], held[2, 7] = 100, 3
    draw_heat_map(held, "a title", Path("classes.png"))
    axes = figures[0].axes[0]
    assert np.array_equal(axes.images[0].get_array(), held.T)
    found = {text.get_position(): (text.get_text(), text.get_color()) for text in axes.texts}
    assert found == {(0, 1): ("100", "white"), (2, 7): ("3", "black")}
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("peer", "class")


def test_the_first_peer_of_a_timeline_stands_above(figures: list[Any]) -> None:
    draw_timeline(TIMELINE, "a title", Path("timeline.png"))
    bottom, top = figures[0].axes[0].get_ylim()
    assert bottom > 2 > 0 > top


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


def _bars(axes: Any, label: str) -> list[tuple[float, float, float]]:
    """Row, begin and end of the bars of a label."""
    (drawn,) = [bars for bars in axes.collections if bars.get_label() == label]
    boxes = [bar.get_extents() for bar in drawn.get_paths()]
    return sorted((round((box.y0 + box.y1) / 2, 3), box.x0, box.x1) for box in boxes)


def test_waiting_is_drawn_as_waiting(figures: list[Any]) -> None:
    listened = Span(started=0.0, trained=1.0, posted=3.5, mining=4.0, voted=5.0, closed=6.0)
    following = Span(started=9.0, trained=10.0, posted=10.0, mining=12.0, voted=13.0, closed=14.0)
    draw_timeline({(0, 1): listened, (0, 2): following}, "a title", Path("timeline.png"))
    (axes,) = figures[0].axes
    assert _bars(axes, "training") == [(0.0, 0.0, 1.0), (0.0, 9.0, 10.0)]
    assert _bars(axes, "waiting to sign or for the round") == [(0.0, 1.0, 3.5), (0.0, 6.0, 9.0)]
    assert _bars(axes, "waiting for posts") == [(0.0, 3.5, 4.0), (0.0, 10.0, 12.0)]


def test_the_timeline_marks_where_something_was_wrong(figures: list[Any]) -> None:
    marked = (
        Trouble("lying", (2,), 0.0, None, "label-flipper"),
        Trouble("down", (1,), 6.0, 9.0),
        Trouble("cut", (0, 1), 10.0, 99.0),
        Trouble("slow", (0,), 99.0, None, "×6"),
    )
    timeline = {key: replace(span, closed=span.voted) for key, span in TIMELINE.items()}
    draw_timeline(timeline, "a title", Path("timeline.png"), marked)
    (axes,), end_s = figures[0].axes, 19.0
    assert _bars(axes, "down") == [(1.0, 6.0, 9.0)]
    assert _bars(axes, "cut off") == [(0.5, 10.0, end_s), (1.5, 10.0, end_s)]
    assert _bars(axes, "does not follow the protocol") == [(2.0, 0.0, end_s)]
    assert "label-flipper" in {text.get_text() for text in axes.texts}
    told = {text.get_text() for legend in figures[0].legends for text in legend.get_texts()}
    assert {"down", "cut off", "does not follow the protocol"} <= told
    assert "slow" not in told, "the run was over"


def test_peers_that_did_nothing_leave_the_timeline_empty(tmp_path: Path) -> None:
    draw_timeline({(0, 1): Span()}, "a title", tmp_path / "timeline.png")
    assert (tmp_path / "timeline.png").stat().st_size > 1_000


def test_a_class_that_no_peer_holds_is_said(figures: list[Any]) -> None:
    held = np.ones((3, 10), np.int64)
    assert not_held(held) == ""
    held[:, 7] = 0
    assert not_held(held) == "no peer holds class 7"
    held[:, 2] = 0
    draw_heat_map(held, "a title", Path("classes.png"))
    said = figures[0].axes[0].get_title().replace("\n", " ")
    assert said == "training examples (no peer holds classes 2, 7)"
