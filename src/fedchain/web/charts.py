"""Charts as numbers for the templates: coordinates of lines and bars, in units of their drawing.

Drawings stretch with the page and their labels are text beside them, so both can be read at every width.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, groupby
from typing import TypeVar

WIDTH, HEIGHT = 1000, 300
"""Units of a line chart's drawing."""

POINTS_MAX = 400
"""Most points of a line; in longer lines each point stands for several."""

TICKS_MAX, TICKS_APART = 7, 8.0
"""Most labels of the horizontal axis, and the least distance between two, in hundredths of its width."""

LEVELS = (2, 3, 4)
"""Possible numbers of distances between the labels of the vertical axis; of axes that fit alike, the first is taken."""

STYLES = 8
"""Line styles, by colour and dashes, each used once in a chart; see ``explorer.css``."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a chart."""

    label: str
    """Name of the values that it shows."""
    style: int
    """Its style, from 0."""
    points: str
    """``x,y`` pairs, as SVG's polyline has them."""
    last: str
    """Its last value, for people."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A label of the horizontal axis."""

    text: str
    """The value."""
    place: float
    """Distance from the left, in hundredths of the width."""
    anchor: str
    """Part of the text that stands there: start, middle or end, as in SVG."""


@dataclass(frozen=True, slots=True)
class Band:
    """An area between two curves."""

    label: str
    """Name of the values that it contains."""
    points: str
    """``x,y`` pairs around it, as SVG's polygon has them."""
    last: str
    """Its last limits, for people."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment: a vertical line, whose text stands below the chart under the same number."""

    text: str
    """The event."""
    place: float
    """Distance from the left, in hundredths of the width."""


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over common axes."""

    title: str
    """The values that are shown, and their unit."""
    lines: tuple[Line, ...]
    """At least one."""
    y_labels: tuple[str, ...]
    """Labels of the vertical axis at equal distances, from the top to the bottom."""
    ticks: tuple[Tick, ...]
    """Labels of the horizontal axis, left to right."""
    x_name: str
    """Name of the horizontal axis: the unit that it counts."""
    rows: tuple[tuple[str, ...], ...]
    """The values as a table: x, then each line's value; a selection if there are many."""
    left_out: int = 0
    """Lines that are not drawn: more could not be told apart."""
    bands: tuple[Band, ...] = ()
    """Areas behind the lines; a later one lies on the earlier ones."""
    marks: tuple[Mark, ...] = ()
    """Moments, left to right."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a bar."""

    name: str
    """Use of the time: wait, posts, train, exchange, mine or vote."""
    x: float
    """Where it begins, in thousandths of the drawing."""
    width: float
    """How wide it is, in the same unit."""
    time_ms: int
    """How long it took, in milliseconds."""


Point = TypeVar("Point")

Series = tuple[str, Sequence[tuple[float, float]]]
"""A label, and (x, y) points in the order of x."""

Area = tuple[str, Sequence[tuple[float, float, float]]]
"""A label, and (x, low, high) in the order of x, at least two."""


def line_chart(
    title: str,
    series: Iterable[Series],
    *,
    x_name: str,
    unit: str = "",
    low: float | None = None,
    areas: Sequence[Area] = (),
    marks: Sequence[tuple[float, str]] = (),
) -> Chart | None:
    """A chart of the series that have points, limited to the first ``STYLES`` of them; None if there is none.

    Args:
        title: name of the values that are shown.
        series: the lines.
        x_name: what x counts.
        unit: unit of y; with ``%``, fractions are shown in hundredths.
        low: a y that the axis includes even if no value is so low.
        areas: areas behind the lines.
        marks: x and text of moments, in the order of x; those left or right of all lines are left out.
    """
    found = [(label, thin(points)) for label, points in series if points]
    if not found:
        return None
    shown = found[:STYLES]
    xs = [x for _, points in shown for x, _ in points]
    ys = [y for _, points in shown for _, y in points]
    areas = [(label, thin(limits)) for label, limits in areas]
    ys += [y for _, limits in areas for _, *both in limits for y in both]
    xs += [x for _, limits in areas for x, _, _ in limits]
    x_low, x_high = min(xs), max(xs)
    y_low, y_high = min(ys) if low is None else min(low, *ys), max(ys)
    if unit == "%" and y_low == y_high:
        y_low, y_high = max(0.0, y_low - 0.05), min(1.0, y_high + 0.05)  # no accuracy is above 100 %
    levels = _levels(y_low, y_high)
    y_low, y_high = levels[0], levels[-1]

    def place(x: float, y: float) -> str:
        across = 0.5 if x_high == x_low else (x - x_low) / (x_high - x_low)
        return f"{across * WIDTH:.1f},{(y_high - y) / (y_high - y_low) * HEIGHT:.1f}"

    lines = tuple(
        Line(label, number, _drawn([place(x, y) for x, y in points]), number_text(points[-1][1], unit))
        for number, (label, points) in enumerate(shown)
    )
    bands = tuple(
        Band(
            label,
            " ".join([place(x, high) for x, _, high in limits] + [place(x, low) for x, low, _ in reversed(limits)]),
            f"{number_text(limits[-1][1], unit)} – {number_text(limits[-1][2], unit)}",
        )
        for label, limits in areas
    )
    return Chart(
        bands=bands,
        title=title,
        lines=lines,
        y_labels=_y_labels(levels, unit),
        ticks=tuple(_ticks(x_low, x_high)),
        x_name=x_name,
        rows=_rows(shown, unit),
        left_out=len(found) - len(shown),
        marks=tuple(_marks(marks, x_low, x_high, x_name)),
    )


def _levels(low: float, high: float) -> list[float]:
    """The labels of an axis that contains both, ascending: three to five round numbers that fit most closely."""
    if high == low:
        low, high = low - abs(low) * 0.1 - 1e-3, high + abs(high) * 0.1 + 1e-3
    digits = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8) if low == 0 else (1, 2, 2.5, 5)
    axes = [_axis(low, high, count, digits) for count in LEVELS]
    return min(axes, key=lambda levels: round((levels[-1] - levels[0]) / (high - low), 9))


def _axis(low: float, high: float, steps: int, digits: Sequence[float]) -> list[float]:
    for step in _round_numbers((high - low) / steps, digits):
        first = math.floor(low / step + 1e-9)
        if (first + steps) * step >= high - 1e-9 * step:
            return [(first + number) * step for number in range(steps + 1)]
    raise AssertionError("steps grow without end")


def _round_numbers(least: float, digits: Sequence[float]) -> Iterator[float]:
    """Numbers that begin with the ``digits``, from about ``least`` up."""
    for exponent in count(math.floor(math.log10(least))):
        numbers = (digit * 10.0**exponent for digit in digits)
        yield from (number for number in numbers if number >= least * (1 - 1e-9))


def _y_labels(levels: Sequence[float], unit: str) -> tuple[str, ...]:
    if unit == "%" and all(abs(100 * y - round(100 * y)) < 1e-6 for y in levels):
        return tuple(f"{100 * y:.0f} %" for y in reversed(levels))
    return tuple(number_text(y, unit) for y in reversed(levels))


def _ticks(low: float, high: float) -> Iterator[Tick]:
    """Both ends, and round numbers between them that stand far enough from each other."""
    if low == high:
        yield Tick(f"{low:,.0f}", 50.0, "middle")
        return
    step = next(_round_numbers(max(1.0, (high - low) / TICKS_MAX), (1, 2, 5)))
    inner = (number * step for number in range(math.ceil(low / step), math.floor(high / step) + 1))
    yield Tick(f"{low:,.0f}", 0.0, "start")
    for value in inner:
        place = 100 * (value - low) / (high - low)
        if TICKS_APART <= place <= 100 - TICKS_APART:
            yield Tick(f"{value:,.0f}", round(place, 2), "middle")
    yield Tick(f"{high:,.0f}", 100.0, "end")


def _marks(moments: Sequence[tuple[float, str]], low: float, high: float, x_name: str) -> Iterator[Mark]:
    """One mark for each x between the limits: texts at the same x are joined."""
    for x, same in groupby(moments, key=lambda moment: moment[0]):
        if low <= x <= high and low < high:
            yield Mark(
                f"{x_name} {x:,.0f}: {'; '.join(text for _, text in same)}", round(100 * (x - low) / (high - low), 2)
            )


def bar(parts: Sequence[tuple[str, int]], longest_ms: int) -> tuple[Segment, ...]:
    """Parts of a duration as a bar. Its full width stands for ``longest_ms``, or for their sum if that is more."""
    segments, x = list[Segment](), 0.0
    whole_ms = max(1, longest_ms, sum(max(0, time_ms) for _, time_ms in parts))
    for name, time_ms in parts:
        width = WIDTH * max(0, time_ms) / whole_ms
        if time_ms > 0:
            segments.append(Segment(name, round(x, 2), round(width, 2), time_ms))
        x += width
    return tuple(segments)


def thin(points: Sequence[Point], most: int = POINTS_MAX) -> Sequence[Point]:
    """At most about ``most`` of the points, the last among them; each stands for those before it."""
    step = -(-len(points) // most)
    return points if step <= 1 else [*points[:-1:step], points[-1]]


def number_text(value: float, unit: str) -> str:
    """A value for people."""
    if unit == "%":
        return f"{100 * value:.1f} %"
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 100 else 2 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f}{f' {unit}' if unit else ''}"


def _drawn(places: list[str]) -> str:
    """Points of a polyline. A single point becomes a line without length, which round ends make visible."""
    return " ".join(places * 2 if len(places) == 1 else places)


def _rows(shown: Sequence[Series], unit: str) -> tuple[tuple[str, ...], ...]:
    values = [dict(points) for _, points in shown]
    places = sorted({x for points in values for x in points})
    step = -(-len(places) // 40)
    some = [*places[:-1:step], places[-1]] if step > 1 else places
    cells = [[number_text(points[x], unit) if x in points else "–" for points in values] for x in some]
    return tuple((f"{x:,.0f}", *row) for x, row in zip(some, cells, strict=True))
