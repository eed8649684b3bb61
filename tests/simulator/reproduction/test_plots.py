"""Curves of an experiment."""

import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image

from fedchain.simulator.palette import colour
from fedchain.simulator.reproduction.experiment import Column
from fedchain.simulator.reproduction.plots import curve_of, draw, draw_curves, draw_entries
from fedchain.simulator.reproduction.table import Entry, kind_of, tabulate
from tests.support.simulator.tiny_experiment import TABLE, fake_results, load


def test_curves_have_a_panel_for_each_cell_that_was_run(tmp_path: Path) -> None:
    experiment, results, path = load(tmp_path), tmp_path / "results", tmp_path / "curves.png"
    draw_curves(experiment, results, {}, path)
    assert not path.exists(), "nothing was run"
    widths = []
    for kept in (("few",), ("few", "more")):
        fake_results(experiment, results)
        for run in experiment.runs({}):
            if run.cell not in kept:
                (results / f"{run.key}.json").unlink()
        draw_curves(experiment, results, {}, path)
        with Image.open(path) as picture:
            widths.append(picture.width)
    assert widths[1] == 2 * widths[0]


@pytest.mark.parametrize(
    ("column", "value", "label"),
    [
        (Column(metric="taa"), 90.0, "taa (%)"),
        (Column(statistic="reach", metric="taa", mark=0.5), 300.0, "round that reaches 0.5 of taa"),
        (Column(statistic="reach", of="FedAvg, before"), 300.0, "round that reaches 1 of FedAvg, before"),
        (Column(statistic="reach", mark=0.5, metric="taa", spend=("posts",)), 9e6, "posts until 0.5 of taa"),
    ],
)
def test_rounds_and_bytes_until_a_mark_are_no_accuracies(
    tmp_path: Path, column: Column, value: float, label: str
) -> None:
    """Bars ended at 100, above a label in percent."""
    experiment, drawn = replace(load(tmp_path), columns=(column,)), list[Figure]()
    kind = kind_of(column, experiment.variants[0])
    entries = [Entry("FedAvg, before", "few", "", None, {0: value}, kind)]
    with patch.object(Figure, "savefig", lambda figure, *_, **__: drawn.append(figure)):
        draw_entries(experiment, entries, "bars", tmp_path / "table.png")
    (axes,) = drawn[0].axes
    assert axes.get_ylabel() == label
    assert (axes.get_ylim()[1] == 100.0) == (kind == "accuracy")
    assert axes.get_ylim()[1] > value


@pytest.mark.parametrize("text", [r"from $5 to $10 \\ day", r"$\\nonsense$", "a_b^c"])
def test_a_dollar_in_a_name_begins_no_formula(tmp_path: Path, text: str) -> None:
    """A text that is no formula ended the command in a traceback once all runs were made."""
    made = TABLE.replace("A tiny table", text).replace("FedAvg, before", f"FedAvg {text}")
    experiment = load(tmp_path, made.replace('"few"', f'"{text}"').replace("few = ", f'"{text}" = '))
    results = tmp_path / "results"
    fake_results(experiment, results)
    shown = replace(experiment, plots=("bars", "boxes", "lines", "map", "curves"))
    draw(shown, tabulate(shown, results, {}), results, {}, tmp_path)
    names = {"table.png", "boxes.png", "lines.png", "map.png", "curves.png"}
    assert {path.name for path in tmp_path.glob("*.png")} == names


def test_the_band_of_an_accuracy_ends_at_100_percent_and_rounds_are_whole(tmp_path: Path) -> None:
    experiment, results = load(tmp_path), tmp_path / "results"
    fake_results(experiment, results)
    for run in experiment.runs({}):
        path = results / f"{run.key}.json"
        kept = json.loads(path.read_text())
        rows = [{"round": number, "taa": 1.0 if run.seed else 0.9} for number in (1, 2)]
        path.write_text(json.dumps(kept | {"rows": rows}))
    drawn = list[Figure]()
    with patch.object(Figure, "savefig", lambda figure, *_, **__: drawn.append(figure)):
        draw_curves(experiment, results, {}, tmp_path / "curves.png")
    for axes in drawn[0].axes:
        (band, *_) = axes.collections
        assert band.get_datalim(axes.transData).y1 == 100.0, "the mean is 95, the deviation 7"
        assert np.asarray(axes.lines[0].get_ydata()) == pytest.approx([95.0, 95.0])
        assert all(tick.is_integer() for tick in axes.get_xticks())


def test_infinite_numbers_are_marked_where_they_stand(tmp_path: Path) -> None:
    """No bar and no line reaches them: the label of their cell stood at the edge, half outside, and rounds at ±0.05."""
    experiment, results = load(tmp_path), tmp_path / "results"
    fake_results(experiment, results)
    for run in experiment.runs({}):
        path = results / f"{run.key}.json"
        rows = [{"round": number, "taa": "Infinity" if run.cell == "few" else 0.9} for number in (1, 2)]
        path.write_text(json.dumps(json.loads(path.read_text()) | {"rows": rows}))
    column = experiment.columns[0].name
    values = {"few": (math.inf, math.inf), "more": (6.0, 7.0)}
    entries = [
        Entry(variant.name, cell.name, column, None, dict(enumerate(values[cell.name])), "other")
        for variant in experiment.variants
        for cell in experiment.cells
    ]
    drawn = list[Figure]()
    with patch.object(Figure, "savefig", lambda figure, *_, **__: drawn.append(figure)):
        draw_curves(experiment, results, {}, tmp_path / "curves.png")
        for plot in ("bars", "boxes", "lines", "map"):
            draw_entries(experiment, entries, plot, tmp_path / "table.png")
    curves, *_ = drawn[0].axes
    assert {text.get_text() for text in curves.texts} == {"∞"}
    assert curves.get_xlim() == (0.5, 2.5)
    assert {text.get_text() for text in drawn[-1].axes[0].texts} == {"∞", "6.50"}
    assert all(text.get_color() == "black" for text in drawn[-1].axes[0].texts if text.get_text() == "∞")
    for figure in drawn[2:-2:2]:
        (axes, *_) = figure.axes
        assert axes.get_xlim() == (-0.5, 1.5)
        assert {text.get_text() for text in axes.texts} == {"∞"}


TWO = """
[[columns]]
name = "accuracy"

[[columns]]
name = "loss"
metric = "tal"

[scenario]"""


def test_a_panel_has_the_numbers_of_its_column_with_their_deviation_and_the_papers(tmp_path: Path) -> None:
    experiment = load(tmp_path, TABLE.replace("[scenario]", TWO, 1).replace("[50.0]", "[72.0, 2.5]"))
    first, second = (variant.name for variant in experiment.variants)
    entries = [
        Entry(first, "few", "accuracy", 72.0, {0: 60.0, 1: 80.0}, "accuracy"),
        Entry(second, "more", "accuracy", None, {0: 64.0}, "accuracy"),
        Entry(first, "few", "loss", 2.5, {0: 1.0, 1: 3.0}, "other"),
    ]
    drawn = list[Figure]()
    with patch.object(Figure, "savefig", lambda figure, *_, **__: drawn.append(figure)):
        draw_entries(experiment, entries, "bars", tmp_path / "table.png")
        draw_entries(experiment, entries[:2], "map", tmp_path / "map.png")
    assert drawn[0].get_suptitle() == "A tiny table; 2 seeds"
    accuracy, loss = drawn[0].axes
    assert sorted(bar.get_bbox().y1 for bar in _bars(accuracy)) == [64.0, 70.0]
    assert [bar.get_bbox().y1 for bar in _bars(loss)] == [2.0]
    assert (accuracy.get_ylim(), loss.get_ylim()[1] > 3.0) == ((55.0, 100.0), True)
    (line,) = (item for item in accuracy.collections if isinstance(item, LineCollection))
    assert np.asarray(line.get_segments()[0])[:, 1] == pytest.approx([70 - 200**0.5, 70 + 200**0.5])
    marks = [item.get_offsets() for item in accuracy.collections if isinstance(item, PathCollection)]
    assert [float(place[1]) for mark in marks for place in np.asarray(mark)] == [72.0]
    grid = np.asarray(drawn[-1].axes[0].images[0].get_array())
    assert np.isnan(grid).tolist() == [[False, True], [True, False]]
    assert (grid[0, 0], grid[1, 1]) == (70.0, 64.0)
    assert {text.get_text() for text in drawn[-1].axes[0].texts} == {"70.00", "64.00", "–"}, "two were not run"


def test_the_papers_number_is_in_the_picture_where_it_is_far_below_ours(tmp_path: Path) -> None:
    """The legend named a mark that stood below the axis."""
    experiment, drawn = load(tmp_path), list[Figure]()
    entries = [Entry("FedAvg, before", "few", experiment.columns[0].name, 42.0, {0: 90.0, 1: 91.0}, "accuracy")]
    with patch.object(Figure, "savefig", lambda figure, *_, **__: drawn.append(figure)):
        draw_entries(experiment, entries, "bars", tmp_path / "table.png")
    assert drawn[0].axes[0].get_ylim() == (35.0, 100.0)


@pytest.mark.parametrize("method", ["a method with a setting, and another one", "folder/" * 20 + "own.py:Method"])
@pytest.mark.parametrize("plot", ["bars", "boxes", "lines", "map"])
def test_names_of_any_length_are_within_the_picture_and_leave_room_for_it(
    tmp_path: Path, plot: str, method: str
) -> None:
    """Names of cells as a sweep of two settings gives them covered each other, and those of variants were cut."""
    cells = [f"classes_avg={count}, regularizer_weight={weight}" for count in (2, 4) for weight in (0.1, 1.0)]
    variants = [f"{method} {place}" for place in range(4)]
    experiment, drawn = load(tmp_path), list[Figure]()
    experiment = replace(
        experiment,
        title=f"{method} on digits",
        cells=tuple(replace(experiment.cells[0], name=name) for name in cells),
        variants=tuple(replace(experiment.variants[0], name=name) for name in variants),
    )
    entries = [Entry(name, cell, "", None, {0: 90.0, 1: 91.0}, "accuracy") for name in variants for cell in cells]
    with patch.object(Figure, "savefig", lambda figure, *_, **__: drawn.append(figure)):
        draw_entries(experiment, entries, plot, tmp_path / "table.png")
    figure, axes = drawn[0], drawn[0].axes[0]
    width, height = figure.get_size_inches()
    whole = figure.get_tightbbox()
    assert min(whole.x0, whole.y0, width - whole.x1, height - whole.y1) > -0.01
    places = [label.get_window_extent() for label in axes.get_xticklabels()]
    assert all(one.x1 < other.x0 for one, other in pairwise(places))
    panel = axes.get_window_extent()
    assert panel.width > 0.5 * figure.bbox.width
    assert panel.height > 0.3 * figure.bbox.height
    if (legend := axes.get_legend()) is not None:
        assert legend.get_window_extent().y1 < min(place.y0 for place in places)


def test_the_legend_of_boxes_has_their_colours(tmp_path: Path) -> None:
    """All variants had the one that matplotlib begins with."""
    experiment, results, drawn = load(tmp_path), tmp_path / "results", list[Figure]()
    fake_results(experiment, results)
    with patch.object(Figure, "savefig", lambda figure, *_, **__: drawn.append(figure)):
        draw_entries(experiment, tabulate(experiment, results, {}), "boxes", tmp_path / "table.png")
    legend = drawn[0].axes[0].get_legend()
    assert legend is not None
    shown = {str(item.get_label()): to_hex(item.get_facecolor()) for item in legend.get_patches()}
    assert [shown[variant.name] for variant in experiment.variants] == [colour(0).lower(), colour(1).lower()]


def _bars(axes: Axes) -> list[Rectangle]:
    return [item for item in axes.patches if isinstance(item, Rectangle)]


def test_a_single_seed_is_named_and_each_curve_is_the_mean_over_its_seeds(tmp_path: Path) -> None:
    experiment, results = load(tmp_path), tmp_path / "results"
    fake_results(experiment, results)
    cell, variant = experiment.cells[0], experiment.variants[0]
    curve = curve_of(experiment, results, {}, cell, variant, "taa")
    assert [number for number, _, _ in curve] == [1, 2]
    assert [mean for _, mean, _ in curve] == pytest.approx([25.0, 45.0])
    drawn = list[Figure]()
    with patch.object(Figure, "savefig", lambda figure, *_, **__: drawn.append(figure)):
        draw_curves(replace(experiment, seeds=(7,)), results, {}, tmp_path / "curves.png")
        draw_curves(replace(experiment, seeds=(1,)), results, {}, tmp_path / "curves.png")
    assert drawn[0].get_suptitle() == "A tiny table; seed 1", "nothing was run under seed 7"


def test_variants_that_name_figures_have_a_picture_for_each(tmp_path: Path) -> None:
    text = TABLE.replace("paper = {", 'figure = "fig1"\npaper = {')
    experiment, results = load(tmp_path, text), tmp_path / "results"
    fake_results(experiment, results)
    draw(replace(experiment, plots=("lines", "boxes")), tabulate(experiment, results, {}), results, {}, tmp_path)
    made = {path.name for path in tmp_path.iterdir() if path.suffix in (".png", ".pdf")}
    assert made == {f"{name}.{kind}" for name in ("fig1", "table", "fig1-boxes", "boxes") for kind in ("png", "pdf")}
