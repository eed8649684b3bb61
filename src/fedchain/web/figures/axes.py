"""Axes of charts: limits and labels that are round numbers, and how values are written."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

TICKS_MAX, DIGIT = 7, 3.7
"""Most distances between labels of the horizontal axis, and a digit's width on a telephone, in hundredths of its width.
"""

STEPS = (2, 3, 4)
"""Possible numbers of distances between the labels of a vertical axis; of axes that fit alike, the first is taken."""

SHARE_MIN = 1e-12
"""Values that differ by a smaller share, or a smaller share of this, are drawn as equal: numbers end soon below."""

DECADES_MAX = 6
"""Most distances between labels of a logarithmic axis; on a longer axis each is several decades."""


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
class Axis:
    """A vertical axis."""

    low: float
    """Value at its lower end; on a logarithmic axis, its decimal logarithm."""
    high: float
    """The same at its upper end."""
    labels: tuple[str, ...]
    """Labels at equal distances, from the top to the bottom."""
    is_log: bool = False
    """Whether equal distances are equal ratios."""

    def depth(self, value: float) -> float:
        """Distance of a value from the upper end, as a share of the axis; on a logarithmic axis, 1 for 0 and less."""
        if self.is_log:
            value = math.log10(value) if value > 0 else self.low
        return (self.high - value) / (self.high - self.low)


def linear_axis(low: float, high: float, unit: str) -> Axis:
    """An axis that contains both values: of three to five round numbers, those that fit most closely."""
    if unit == "%" and 0 <= low == high <= 1:
        low, high = max(0.0, low - 0.05), min(1.0, high + 0.05)  # no accuracy is above 100 %
    if high - low <= SHARE_MIN * max(abs(low), abs(high), SHARE_MIN):
        low, high = low - abs(low) * 0.1 - 1e-3, high + abs(high) * 0.1 + 1e-3
    digits = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8) if low == 0 else (1, 2, 2.5, 5)
    choices = [_levels(low, high, steps, digits) for steps in STEPS]
    levels = min(choices, key=lambda levels: round((levels[-1] - levels[0]) / (high - low), 9))
    if unit == "%" and all(abs(100 * y - round(100 * y)) < 1e-6 for y in levels):
        return Axis(levels[0], levels[-1], tuple(f"{100 * y:.0f} %" for y in reversed(levels)))
    return Axis(levels[0], levels[-1], tuple(number_text(y, unit) for y in reversed(levels)))


def log_axis(low: float, high: float, unit: str) -> Axis:
    """An axis from a power of ten to another that contains both values, which are above 0."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    step = max(1, -(-(last - first) // DECADES_MAX))
    last = first + step * max(1, -(-(last - first) // step))
    labels = [_power_text(exponent + (2 if unit == "%" else 0), unit) for exponent in range(last, first - 1, -step)]
    return Axis(first, last, tuple(labels), is_log=True)


def ticks(low: float, high: float) -> Iterator[Tick]:
    """Labels of a horizontal axis: both ends, and round numbers between them that stand far enough from each other."""
    if low == high:
        yield Tick(f"{low:,.0f}", 50.0, "middle")
        return
    first, last = (_width(f"{end:,.0f}") + DIGIT / 2 for end in (low, high))  # with the room between two labels
    step = next(_round_numbers(max(1.0, (high - low) * max(1 / TICKS_MAX, last / 100)), (1, 2, 5)))
    inner = (number * step for number in range(math.ceil(low / step), math.floor(high / step) + 1))
    yield Tick(f"{low:,.0f}", 0.0, "start")
    for value in inner:
        place, text = 100 * (value - low) / (high - low), f"{value:,.0f}"
        if first <= place - _width(text) / 2 and place + _width(text) / 2 <= 100 - last:
            yield Tick(text, round(place, 2), "middle")
    yield Tick(f"{high:,.0f}", 100.0, "end")


def _width(text: str) -> float:
    """Width of a label on a telephone, in hundredths of the axis; a comma is half a digit."""
    return DIGIT * (len(text) - text.count(",") / 2)


def number_text(value: float, unit: str) -> str:
    """A value for people."""
    if unit == "%":
        return f"{100 * value:.1f} %"
    if 1e-12 < abs(value) < 0.0005:
        return f"{value:.2e}{f' {unit}' if unit else ''}"
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 100 else 2 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f}{f' {unit}' if unit else ''}"


def _power_text(exponent: int, unit: str) -> str:
    if -4 <= exponent < 0:
        text = f"{10.0**exponent:.{-exponent}f}"
    else:
        text = f"{10**exponent:,}" if 0 <= exponent < 7 else f"1e{exponent}"
    return f"{text}{f' {unit}' if unit else ''}"


def _levels(low: float, high: float, steps: int, digits: Sequence[float]) -> list[float]:
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
