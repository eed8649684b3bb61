"""Curves of an experiment."""

import json
import math
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from fedchain.simulator.reproduction.plots import draw_curves, draw_entries
from fedchain.simulator.reproduction.table import Entry
from tests.support.simulator.tiny_experiment import fake_results, load


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
    for figure in drawn[2:-2:2]:
        (axes, *_) = figure.axes
        assert axes.get_xlim() == (-0.5, 1.5)
        assert {text.get_text() for text in axes.texts} == {"∞"}
