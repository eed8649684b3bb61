"""Charts as numbers for the templates: where lines and bars run, in units of their drawing.

Drawings stretch with the page and their labels stand beside them as text, so both can be read at every width.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 1000, 300
"""Units of a line chart's drawing."""

POINTS_MAX = 400
"""Points of a line; of longer ones each stands for several."""

STYLES = 8
"""Line styles, by colour and dashes; see ``explorer.css``."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a chart."""

    label: str
    """What it shows."""
    style: int
    """Its style, from 0."""
    points: str
    """``x,y`` pairs, as SVG's polyline has them."""
    last: str
    """Its last value, for people."""


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over common axes."""

    title: str
    """What is shown, and in which unit."""
    lines: tuple[Line, ...]
    """At least one."""
    y_labels: tuple[str, str, str]
    """Top, middle and bottom."""
    x_labels: tuple[str, ...]
    """Left to right."""
    x_name: str
    """What the horizontal axis counts."""
    rows: tuple[tuple[str, ...], ...]
    """The values as a table: x, then each line's, some of them where there are many."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a bar."""

    name: str
    """What took the time: posts, train, exchange, mine or vote."""
    x: float
    """Where it begins, of 1,000."""
    width: float
    """How wide it is."""
    time_ms: int
    """How long it took, in milliseconds."""


Series = tuple[str, Sequence[tuple[float, float]]]
"""A label, and (x, y) points in the order of x."""


def line_chart(
    title: str, series: Iterable[Series], *, x_name: str, unit: str = "", low: float | None = None
) -> Chart | None:
    """A chart of all series with at least one point; None where there is none.

    Args:
        title: what is shown.
        series: the lines.
        x_name: what x counts.
        unit: of y; ``%`` has fractions shown in hundredths.
        low: the lowest y of the axis, unless a value is lower.
    """
    shown = [(label, thin(points)) for label, points in series if points]
    if not shown:
        return None
    xs = [x for _, points in shown for x, _ in points]
    ys = [y for _, points in shown for _, y in points]
    x_low, x_high = min(xs), max(xs)
    y_low, y_high = min(ys) if low is None else min(low, *ys), max(ys)
    if y_high == y_low:
        y_low, y_high = y_low - abs(y_low) * 0.1 - 1e-3, y_high + abs(y_high) * 0.1 + 1e-3

    def place(x: float, y: float) -> str:
        across = 0.5 if x_high == x_low else (x - x_low) / (x_high - x_low)
        return f"{across * WIDTH:.1f},{(y_high - y) / (y_high - y_low) * HEIGHT:.1f}"

    lines = tuple(
        Line(label, number % STYLES, _drawn([place(x, y) for x, y in points]), number_text(points[-1][1], unit))
        for number, (label, points) in enumerate(shown)
    )
    y_labels = tuple(number_text(y, unit) for y in (y_high, (y_low + y_high) / 2, y_low))
    ticks = sorted({x_low, round((x_low + x_high) / 2), x_high})
    return Chart(
        title=title,
        lines=lines,
        y_labels=(y_labels[0], y_labels[1], y_labels[2]),
        x_labels=tuple(f"{tick:,.0f}" for tick in ticks),
        x_name=x_name,
        rows=_rows(shown, unit),
    )


def bar(parts: Sequence[tuple[str, int]], longest_ms: int) -> tuple[Segment, ...]:
    """Parts of a duration as a bar; the longest of all bars fills its width."""
    segments, x = list[Segment](), 0.0
    for name, time_ms in parts:
        width = WIDTH * max(0, time_ms) / max(1, longest_ms)
        if time_ms > 0:
            segments.append(Segment(name, round(x, 2), round(width, 2), time_ms))
        x += width
    return tuple(segments)


def thin(points: Sequence[tuple[float, float]], most: int = POINTS_MAX) -> Sequence[tuple[float, float]]:
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
    """A single point is drawn as a line without length, which round ends make visible."""
    return " ".join(places * 2 if len(places) == 1 else places)


def _rows(shown: Sequence[Series], unit: str) -> tuple[tuple[str, ...], ...]:
    values = [dict(points) for _, points in shown]
    places = sorted({x for points in values for x in points})
    step = -(-len(places) // 40)
    some = [*places[:-1:step], places[-1]] if step > 1 else places
    cells = [[number_text(points[x], unit) if x in points else "–" for points in values] for x in some]
    return tuple((f"{x:,.0f}", *row) for x, row in zip(some, cells, strict=True))
