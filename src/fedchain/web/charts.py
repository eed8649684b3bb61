"""Charts as numbers for the templates: coordinates of lines, in units of their drawing.

Drawings stretch with the page and their labels are text beside them, so both can be read at every width. A reader may
ask for a part of the horizontal axis, and for a logarithmic vertical one.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TypeVar

from fedchain.chain.explorer.names import read_number
from fedchain.web.figures.axes import Axis, Tick, linear_axis, log_axis, number_text, ticks

WIDTH, HEIGHT = 1000, 300
"""Units of a line chart's drawing."""

POINTS_MAX = 400
"""Most points of a line; in longer lines each point stands for several."""

ROWS_MAX = 40
"""About the most rows of a chart's table."""

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
    readings: "Readings"
    """The values of its points."""


@dataclass(frozen=True, slots=True)
class Band:
    """An area between two curves."""

    label: str
    """Name of the values that it contains."""
    points: str
    """``x,y`` pairs around it, as SVG's polygon has them: the upper curve, then the lower one back."""
    last: str
    """Its last limits, for people."""
    readings: "Readings"
    """Its limits at each point of the upper curve."""


@dataclass(frozen=True, slots=True)
class Readings:
    """Values of points in their order, for people: texts with semicolons between them."""

    x: str
    y: str


@dataclass(frozen=True, slots=True)
class View:
    """The part of a chart that is drawn."""

    first: float = -math.inf
    """The least x."""
    last: float = math.inf
    """The largest x."""
    is_log: bool = False
    """Whether the vertical axis is logarithmic."""


WHOLE = View()


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
    values: "Values"
    """All values, from which other parts of it are drawn."""
    view: View
    """The part that is drawn."""
    left_out: int = 0
    """Lines that are not drawn: more could not be told apart."""
    below: int = 0
    """Values of lines that a logarithmic axis cannot show: 0 and less."""
    bands: tuple[Band, ...] = ()
    """Areas behind the lines; a later one lies on the earlier ones."""
    marks: tuple[Mark, ...] = ()
    """Moments, left to right."""

    @property
    def name(self) -> str:
        """Its name in addresses of pages and files."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower().replace("'", "")).strip("-")

    def seen(self, question: Mapping[str, str]) -> "Chart":
        """The part of it that a reader asked for behind the question mark of an address, by ``NAME.first`` and so on.

        A part without a value counts as not asked for.
        """
        first, last = (read_number(question.get(f"{self.name}.{end}", "")) for end in ("first", "last"))
        is_log = question.get(f"{self.name}.log") == "on"
        view = View(-math.inf if first is None else first, math.inf if last is None else last, is_log)
        return self if view == WHOLE else self.values.drawn(view)


Point = TypeVar("Point", bound=tuple[float, ...])

Curve = Sequence[tuple[float, float]]
"""(x, y) points in the order of x."""

Limits = Sequence[tuple[float, float, float]]
"""(x, low, high) in the order of x, at least two."""

Series = tuple[str, Curve]
"""A label, and its points."""

Area = tuple[str, Limits]
"""A label, and its limits."""


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
        low: a y that the axis includes even if no value is so low, unless it is logarithmic.
        areas: areas behind the lines.
        marks: x and text of moments, in the order of x; those left or right of all lines are left out.
    """
    found = tuple((label, points) for label, points in series if points)
    return Values(title, found, x_name, unit, low, tuple(areas), tuple(marks)).drawn() if found else None


@dataclass(frozen=True, slots=True)
class Values:
    """The values of a chart; see :func:`line_chart`. Each of the series has points."""

    title: str
    series: tuple[Series, ...]
    x_name: str
    unit: str
    low: float | None
    areas: tuple[Area, ...]
    marks: tuple[tuple[float, str], ...] = ()

    def within(self, view: View) -> "Values":
        """The values between the view's ends; series may have no points there, areas have at least two."""
        series = tuple((label, _between(points, view)) for label, points in self.series)
        areas = [(label, _between(limits, view)) for label, limits in self.areas]
        return replace(self, series=series, areas=tuple(item for item in areas if len(item[1]) > 1))

    def drawn(self, view: View = WHOLE) -> Chart:
        """The chart of a part of the values; of all if that part has none."""
        part = self.within(view)
        if not any(points for _, points in part.series[:STYLES]):
            view, part = View(is_log=view.is_log), self
        shown, below = part.series[:STYLES], 0
        is_log = view.is_log and any(y > 0 for _, points in shown for _, y in points)
        if is_log:
            below = sum(y <= 0 for _, points in shown for _, y in points)
            shown = tuple((label, [point for point in points if point[1] > 0]) for label, points in shown)
        thinned = [(style, label, thin(points)) for style, (label, points) in enumerate(shown) if points]
        areas = [(label, thin(limits)) for label, limits in part.areas]
        plane = self._plane([points for _, _, points in thinned], [limits for _, limits in areas], is_log=is_log)
        return Chart(
            bands=tuple(plane.band(label, limits) for label, limits in areas),
            title=self.title,
            lines=tuple(plane.line(label, style, points) for style, label, points in thinned),
            y_labels=plane.axis.labels,
            ticks=tuple(ticks(plane.x_low, plane.x_high)),
            x_name=self.x_name,
            rows=_rows([points for _, _, points in thinned], self.unit),
            left_out=len(self.series) - len(shown),
            values=self,
            view=View(view.first, view.last, is_log),
            below=below,
            marks=tuple(_marks(self.marks, plane.x_low, plane.x_high, self.x_name)),
        )

    def _plane(self, lines: Sequence[Curve], areas: Sequence[Limits], *, is_log: bool) -> "_Plane":
        """Axes that contain all points."""
        xs = [point[0] for points in (*lines, *areas) for point in points]
        ys = [y for points in (*lines, *areas) for _, *values in points for y in values if y > 0 or not is_log]
        low = min(ys) if self.low is None or is_log else min(self.low, *ys)
        return _Plane(min(xs), max(xs), (log_axis if is_log else linear_axis)(low, max(ys), self.unit), self.unit)


@dataclass(frozen=True, slots=True)
class _Plane:
    """Both axes of a drawing."""

    x_low: float
    x_high: float
    axis: Axis
    unit: str

    def line(self, label: str, style: int, points: Curve) -> Line:
        places, texts = [self._place(x, y) for x, y in points], [number_text(y, self.unit) for _, y in points]
        # A single point becomes a line without length, which round ends make visible.
        return Line(label, style, " ".join(places * 2 if len(places) == 1 else places), texts[-1], _read(points, texts))

    def band(self, label: str, limits: Limits) -> Band:
        around = [self._place(x, high) for x, _, high in limits] + [self._place(x, low) for x, low, _ in limits[::-1]]
        texts = [f"{number_text(low, self.unit)} – {number_text(high, self.unit)}" for _, low, high in limits]
        return Band(label, " ".join(around), texts[-1], _read(limits, texts))

    def _place(self, x: float, y: float) -> str:
        across = 0.5 if self.x_high == self.x_low else (x - self.x_low) / (self.x_high - self.x_low)
        return f"{across * WIDTH:.1f},{self.axis.depth(y) * HEIGHT:.1f}"


def _marks(moments: Sequence[tuple[float, str]], low: float, high: float, x_name: str) -> Iterator[Mark]:
    """One mark for each x between the limits: texts at the same x are joined."""
    for x, same in groupby(moments, key=lambda moment: moment[0]):
        if low <= x <= high and low < high:
            yield Mark(
                f"{x_name} {x:,.0f}: {'; '.join(text for _, text in same)}", round(100 * (x - low) / (high - low), 2)
            )


def thin(points: Sequence[Point], most: int = POINTS_MAX) -> Sequence[Point]:
    """At most about ``most`` of the points, the last among them; each stands for those before it."""
    step = -(-len(points) // most)
    return points if step <= 1 else [*points[:-1:step], points[-1]]


def _between(points: Sequence[Point], view: View) -> Sequence[Point]:
    return [point for point in points if view.first <= point[0] <= view.last]


def _read(points: Sequence[tuple[float, ...]], texts: Sequence[str]) -> Readings:
    return Readings(";".join(f"{point[0]:,.0f}" for point in points), ";".join(texts))


def _rows(lines: Sequence[Curve], unit: str) -> tuple[tuple[str, ...], ...]:
    values = [dict(points) for points in lines]
    places = thin(sorted({(x,) for points in values for x in points}), ROWS_MAX)
    cells = [[number_text(points[x], unit) if x in points else "–" for points in values] for (x,) in places]
    return tuple((f"{x:,.0f}", *row) for (x,), row in zip(places, cells, strict=True))
