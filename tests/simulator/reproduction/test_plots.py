"""Curves of an experiment."""

from pathlib import Path

from PIL import Image

from fedchain.simulator.reproduction.plots import draw_curves
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
