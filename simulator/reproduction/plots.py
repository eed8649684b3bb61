"""Pictures of an experiment's table: bars, boxes, lines and heat maps of its numbers, curves over the rounds."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

from fedchain.files.spool import write_whole
from fedchain.simulator.palette import bar_style, colour, line_style
from fedchain.simulator.pictures import LETTER, in_lines, write_picture
from fedchain.simulator.reproduction.experiment import Cell, Column, Experiment, Variant, key_of
from fedchain.simulator.reproduction.markdown import best_entry
from fedchain.simulator.reproduction.table import PERCENT, Entry, deviation_of, read_result, scale_of

NAME_PT, MANY_PT, LEGEND_PT, CELL_PT = 10.0, 8.0, 7.0, 12.0
"""Sizes of the names of cells, of those that need several lines, of variants in a legend, and of cells over curves."""

PANEL_IN = 4.2
"""Height of a panel, and width of one with curves."""

EDGE_IN, HANDLE_IN, ROW_IN = 0.9, 0.5, 0.16
"""Width beside a panel that its axis takes, and of a line or bar beside its name in a legend; height of a row there."""

BESIDE_IN = 4.0
"""Most of a heat map's width that names of variants take beside it."""

ROWS_MAX = 2
"""Rows of a legend for which a panel has room: it is higher for more."""


def draw(
    experiment: Experiment, entries: Sequence[Entry], results: Path, overrides: Mapping[str, Any], folder: Path
) -> None:
    """Write one picture for each of the experiment's plots, named after it; the first one is ``table.png``.

    Each is there as PDF, too. If variants name figures, there is one picture for each figure, named after the figure.
    """
    figures: dict[str, list[Variant]] = {}
    for variant in experiment.variants:
        figures.setdefault(variant.figure, []).append(variant)
    for place, plot in enumerate(experiment.plots):
        for name, variants in figures.items():
            words = [name or ("table" if place == 0 else ""), plot if place else ""]
            path, part = folder / f"{'-'.join(filter(None, words))}.png", replace(experiment, variants=tuple(variants))
            own = [entry for entry in entries if entry.variant in {variant.name for variant in variants}]
            if plot == "curves":
                draw_curves(part, results, overrides, path)
            elif any(entry.known for entry in own):
                draw_entries(part, own, plot, path)


def draw_entries(experiment: Experiment, entries: Sequence[Entry], plot: str, path: Path) -> None:
    """Draw one panel for each column of the table; the paper's numbers are black marks."""
    from matplotlib.figure import Figure  # slow to import

    panels, cells = len(experiment.columns), [cell.name for cell in experiment.cells]
    width = max(5.0, 2.2 + 1.3 * len(cells))
    names = [in_lines(variant.name, width - EDGE_IN - HANDLE_IN, LEGEND_PT) for variant in experiment.variants]
    columns, lines_each = _legend_columns(names, width), 1 + max(name.count("\n") for name in names)
    beside = min(BESIDE_IN, LETTER * NAME_PT * max(len(variant.name) for variant in experiment.variants))
    rows = lines_each * math.ceil((len(names) + 1) / columns)  # the last one for the paper's
    is_map = plot == "map"
    height = PANEL_IN + ROW_IN * (0 if is_map else max(0, rows - ROWS_MAX))
    whole = width + beside if is_map else width
    figure = Figure(figsize=(whole, height * panels), layout="constrained")
    figure.suptitle(_heading(experiment, whole), fontsize=NAME_PT)
    for axes, column in zip(figure.subplots(panels, squeeze=False)[:, 0], experiment.columns, strict=True):
        shown = [entry for entry in entries if entry.column == column.name and entry.known]
        axes.set_title(_plain(column.name), fontsize=9)
        if is_map:
            _draw_map(figure, axes, experiment, shown, width)
            continue
        for place, variant in enumerate(experiment.variants):
            if own := [entry for entry in shown if entry.variant == variant.name]:
                _draw_variant(axes, plot, names[place], own, cells, place, len(experiment.variants))
                best = best_entry(own, column) if plot == "lines" and column.seek else None
                if best is not None:
                    axes.plot([cells.index(best.cell)], [best.mean], marker="*", markersize=13, color=colour(place))
        if any(entry.paper is not None for entry in shown):
            axes.scatter([], [], marker="_", s=160, color="black", label="paper")
        lines = _name_cells(axes, cells, width)
        axes.set_xlim(-0.5, len(cells) - 0.5)  # also of cells in which nothing can be drawn
        metrics = {column.metric or variant.metric for variant in experiment.variants}
        label = _reached(column, metrics) if column.statistic == "reach" else _label(metrics)
        axes.set_ylabel(in_lines(label, PANEL_IN - EDGE_IN, NAME_PT))
        drawn = [value for entry in shown for value in (*entry.known, entry.paper) if value is not None]
        lowest = min(drawn, default=0.0)
        if plot == "bars" and {entry.kind for entry in shown} == {"accuracy"}:
            axes.set_ylim(max(0.0, 5 * ((lowest - 5) // 5)), 100)
        if shown:
            _draw_legend(axes, columns, lines)
    _save(figure, path)


def _draw_variant(
    axes: Any, plot: str, name: str, own: Sequence[Entry], cells: Sequence[str], place: int, variants: int
) -> None:
    width = 0.8 / variants
    offset = 0.0 if plot == "lines" else (place + 0.5) * width - 0.4
    at = [cells.index(entry.cell) + offset for entry in own]
    means = [statistics.mean(entry.known) for entry in own]
    if plot == "lines":
        axes.plot(at, [*map(_drawable, means)], label=_plain(name), **line_style(place, variants))
    elif plot == "boxes":
        face = bar_style(place)
        boxes = [[*filter(math.isfinite, entry.known)] for entry in own]
        drawn = axes.boxplot(boxes, positions=at, widths=0.8 * width, patch_artist=True, boxprops=face)
        drawn["boxes"][0].set_label(_plain(name))  # what a legend shows of a bar without any is another colour
    else:
        axes.bar(at, [*map(_drawable, means)], 0.9 * width, label=_plain(name), **bar_style(place))
    if plot != "boxes":
        several = [(x, mean, e.deviation) for x, mean, e in zip(at, means, own, strict=True) if e.deviation is not None]
        for x, mean, deviation in several:  # one seed has no deviation
            axes.errorbar(x, mean, yerr=deviation, capsize=2, color="black", linewidth=0.8)
    _mark_infinite(axes, zip(at, means, strict=True))
    known = [(x, entry.paper) for x, entry in zip(at, own, strict=True) if entry.paper is not None]
    axes.scatter([x for x, _ in known], [paper for _, paper in known], marker="_", s=160, color="black", zorder=3)


def _drawable(value: float) -> float:
    """The number, or NaN, which leaves a gap, for an infinite one."""
    return value if math.isfinite(value) else math.nan


def _mark_infinite(axes: Any, points: Iterable[tuple[float, float]]) -> None:
    """Say at the upper edge where a number is infinite, as an epsilon may be, which no bar and no line shows."""
    for x, _ in filter(lambda point: math.isinf(point[1]), points):
        axes.text(x, 0.98, "∞", ha="center", va="top", transform=axes.get_xaxis_transform())


def _name_cells(axes: Any, cells: Sequence[str], width: float) -> int:
    """Name the cells below the axis of a picture ``width`` inches wide; return how many lines the names have."""
    place = (width - EDGE_IN) / len(cells)
    are_wide = any(len(name) * LETTER * NAME_PT > place for name in cells)
    names = [in_lines(name, place, MANY_PT) for name in cells] if are_wide else cells
    axes.set_xticks(range(len(cells)), [*map(_plain, names)], fontsize=MANY_PT if are_wide else NAME_PT)
    return 1 + max(name.count("\n") for name in names)


def _legend_columns(names: Sequence[str], width: float) -> int:
    """How many columns of a legend fit into a picture ``width`` inches wide."""
    widest = HANDLE_IN + LETTER * LEGEND_PT * max(len(line) for name in names for line in name.splitlines())
    return max(1, min(3, int((width - EDGE_IN) / widest)))


def _draw_legend(axes: Any, columns: int, lines: int) -> None:
    """Draw the legend below the names of the cells, which have so many lines."""
    from matplotlib.transforms import ScaledTranslation

    below = ScaledTranslation(0, -0.27 - (lines - 1) * 1.2 * MANY_PT / 72, axes.figure.dpi_scale_trans)
    place = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "bbox_transform": axes.transAxes + below}
    axes.legend(fontsize=LEGEND_PT, ncols=columns, frameon=False, **place)


def _draw_map(figure: Any, axes: Any, experiment: Experiment, shown: Sequence[Entry], width: float) -> None:
    """Draw a heat map: variants in rows, cells in columns, higher values darker."""
    cells, variants = [cell.name for cell in experiment.cells], [variant.name for variant in experiment.variants]
    grid = [[float("nan")] * len(cells) for _ in variants]
    for entry in shown:
        grid[variants.index(entry.variant)][cells.index(entry.cell)] = statistics.mean(entry.known)
    image = axes.imshow([[*map(_drawable, row)] for row in grid], cmap="Blues", aspect="auto")
    _name_cells(axes, cells, width - EDGE_IN)  # beside the scale of the colours
    axes.set_yticks(range(len(variants)), [_plain(in_lines(name, BESIDE_IN, NAME_PT)) for name in variants])
    low, high = image.get_clim()
    for row, values in enumerate(grid):
        for place, value in enumerate(values):
            ink = "white" if _drawable(value) > (low + high) / 2 else "black"
            text = "–" if math.isnan(value) else "∞" if math.isinf(value) else f"{value:.2f}"
            axes.text(place, row, text, ha="center", va="center", fontsize=7, color=ink)
    figure.colorbar(image, ax=axes)


def draw_curves(experiment: Experiment, results: Path, overrides: Mapping[str, Any], path: Path) -> None:
    """Draw the mean over the seeds by round, in a band of one standard deviation: a row of panels for each metric.

    Cells and variants without results are left out; without any result there is no picture.
    """
    from matplotlib.figure import Figure  # slow to import
    from matplotlib.ticker import MaxNLocator

    metrics = experiment.curves or ("",)
    curves = {
        (metric, cell.name, variant.name): curve_of(
            experiment, results, overrides, cell, variant, metric or variant.metric
        )
        for metric in metrics
        for cell in experiment.cells
        for variant in experiment.variants
    }
    known = {cell for (_, cell, _), curve in curves.items() if curve}
    cells = [cell.name for cell in experiment.cells if cell.name in known]
    if not cells:
        return
    figure = Figure(figsize=(PANEL_IN * len(cells), 3.4 * len(metrics)), layout="constrained")
    figure.suptitle(_heading(experiment, PANEL_IN * len(cells)), fontsize=NAME_PT)
    for panels, metric in zip(figure.subplots(len(metrics), len(cells), squeeze=False), metrics, strict=True):
        for axes, cell in zip(panels, cells, strict=True):
            for place, variant in enumerate(experiment.variants):
                if curve := curves[metric, cell, variant.name]:
                    limit = PERCENT if scale_of(metric or variant.metric) == PERCENT else math.inf
                    name = in_lines(variant.name, PANEL_IN - EDGE_IN - HANDLE_IN, LEGEND_PT)
                    _draw_curve(axes, name, curve, line_style(place, len(experiment.variants)), limit)
            names = {metric} if metric else {variant.metric for variant in experiment.variants}
            title = _plain(in_lines(cell, PANEL_IN - HANDLE_IN, CELL_PT))
            axes.set(title=title, xlabel="round", ylabel=_label(names))
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            if axes.lines:
                axes.legend(fontsize=LEGEND_PT)
            drawn = [point for variant in experiment.variants for point in curves[metric, cell, variant.name]]
            if any(math.isinf(mean) for _, mean, _ in drawn):
                axes.set_xlim(min(drawn)[0] - 0.5, max(drawn)[0] + 0.5)
    _save(figure, path)


def _draw_curve(
    axes: Any, name: str, curve: Sequence[tuple[int, float, float]], style: Mapping[str, Any], limit: float
) -> None:
    """Draw a mean in its band, which ends at ``limit``: no accuracy is above 100 %."""
    rounds, means = [number for number, _, _ in curve], [_drawable(mean) for _, mean, _ in curve]
    axes.plot(rounds, means, label=_plain(name), **style, markevery=max(1, len(rounds) // 12))
    spread = [(mean, sd) for mean, (_, _, sd) in zip(means, curve, strict=True)]
    low, high = [mean - sd for mean, sd in spread], [min(limit, mean + sd) for mean, sd in spread]
    axes.fill_between(rounds, low, high, alpha=0.2, linewidth=0, color=style["color"])
    _mark_infinite(axes, ((number, mean) for number, mean, _ in curve))


def curve_of(
    experiment: Experiment, results: Path, overrides: Mapping[str, Any], cell: Cell, variant: Variant, metric: str
) -> list[tuple[int, float, float]]:
    """(round, mean, standard deviation) over the seeds that were run; rounds that were not measured are left out."""
    values: dict[int, list[float]] = {}
    for seed in experiment.seeds:
        scenario = experiment.scenario_of(cell, variant, seed, overrides)
        result = read_result(results / f"{key_of(scenario)}.json")
        for row in () if result is None else result.rows:
            if row.get(metric) is not None:
                values.setdefault(row["round"], []).append(row[metric] * scale_of(metric))
    return [(number, statistics.mean(known), deviation_of(known) or 0.0) for number, known in sorted(values.items())]


def _save(figure: Any, path: Path) -> None:
    """Write a picture for screens, and one without pixels for a paper beside it."""
    write_picture(figure, path.with_suffix(".png"))
    figure.savefig(drawn := BytesIO(), format="pdf")
    write_whole(drawn.getvalue(), path.with_suffix(".pdf"))


def _heading(experiment: Experiment, width: float) -> str:
    """Title of the experiment, and its number of seeds, for a picture ``width`` inches wide."""
    count = len(experiment.seeds)
    seeds = f"{count} seeds" if count != 1 else f"seed {experiment.seeds[0]}"
    return _plain(in_lines(f"{experiment.title}; {seeds}", width, NAME_PT))


def _reached(column: Column, metrics: set[str]) -> str:
    """The label of rounds, or of an expense, until a mark."""
    other, known = f"{column.fraction:g} of {_plain(column.of)}", f"{column.mark:g} of {', '.join(sorted(metrics))}"
    mark = other if column.of else known
    return f"{', '.join(column.spend)} until {mark}" if column.spend else f"round that reaches {mark}"


def _plain(text: str) -> str:
    """A text in which a dollar begins no formula, as it does in none of the tables."""
    return text.replace("$", r"\$")


def _label(metrics: set[str]) -> str:
    return ", ".join(sorted(metrics)) + (" (%)" if {scale_of(metric) for metric in metrics} == {PERCENT} else "")
