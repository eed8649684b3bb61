"""Lanes: a line for each place over the rounds, which shows when its member counted; drawn by the server as SVG."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from fedchain.chain.explorer.lives import Life, LivesView, OtherRules, Span
from fedchain.web.figures.axes import Tick, ticks

SIGNS = {"rekey": "◆", "recover": "◇"}
"""The sign of each kind of other key."""

KINDS = {"rekey": "took another key", "recover": "got another key from the others"}
"""The same in words."""

STANDINGS = {
    "active": "counts",
    "coming": "comes, and does not count yet",
    "away": "away",
    "left": "left",
    "removed": "removed by the others",
    "convicted": "convicted",
}
"""Standings in words, in the order of the legend."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A standing. Places and widths are hundredths of the width."""

    standing: str
    x: float
    width: float
    text: str
    """The standing and its rounds, for people."""


@dataclass(frozen=True, slots=True)
class Sign:
    """Another key."""

    sign: str
    x: float
    text: str


@dataclass(frozen=True, slots=True)
class Lane:
    """One place."""

    number: int
    address: str
    bars: tuple[Bar, ...]
    signs: tuple[Sign, ...]

    @property
    def text(self) -> str:
        """All of it in words."""
        return "; ".join([*(bar.text for bar in self.bars), *(sign.text for sign in self.signs)])


@dataclass(frozen=True, slots=True)
class Lanes:
    """The figure."""

    lanes: tuple[Lane, ...]
    standings: tuple[tuple[str, str], ...]
    """Those that are drawn, each in words."""
    signs: tuple[tuple[str, str], ...]
    """Signs that are drawn, each in words."""
    lines: tuple[tuple[float, str], ...]
    """Beginnings of amendments across all lanes, each with its text."""
    ticks: tuple[Tick, ...]
    """Labels of the rounds."""


def lanes(view: LivesView, most: int, *, is_finished: bool = False) -> Lanes | None:
    """The lanes of the first places, ``most`` of them at most; None where members are the same for ever.

    Args:
        view: the lives.
        most: how many are drawn.
        is_finished: whether the round of the view never comes, as the one before it was the last.
    """
    if not view.lives:
        return None
    first = min(life.spans[0].first for life in view.lives)
    scale = _Scale(first, max(view.round + (not is_finished), first + 1))
    shown = tuple(_lane(life, scale) for life in view.lives[:most])
    drawn = {bar.standing for lane in shown for bar in lane.bars}
    signs = {sign.sign for lane in shown for sign in lane.signs}
    return Lanes(
        lanes=shown,
        standings=tuple(item for item in STANDINGS.items() if item[0] in drawn),
        signs=tuple((sign, KINDS[kind]) for kind, sign in SIGNS.items() if sign in signs),
        lines=tuple((scale.place(item.round), _rules_text(item)) for item in view.rules),
        ticks=tuple(_ticks(scale, scale.end - 1)),
    )


def lanes_files(view: LivesView) -> dict[str, Any]:
    """The lives as a file of the page."""
    return {"lives.csv": partial(_lives_text, view)}


@dataclass(frozen=True, slots=True)
class _Scale:
    """Rounds from ``first`` on, and up to ``end``, which is not drawn."""

    first: int
    end: int

    def place(self, round_number: int) -> float:
        return round(100 * (round_number - self.first) / (self.end - self.first), 3)


def _ticks(scale: _Scale, newest: int) -> Iterator[Tick]:
    """Labels where rounds begin; the newest one takes some room itself."""
    for tick in ticks(scale.first, newest):
        yield replace(tick, place=round(tick.place * (newest - scale.first) / (scale.end - scale.first), 2))


def _lane(life: Life, scale: _Scale) -> Lane:
    bars = tuple(_bar(span, scale) for span in life.spans)
    signs = tuple(
        Sign(SIGNS[item.kind], scale.place(item.round), f"{KINDS[item.kind]} in round {item.round:,}")
        for item in life.keys
    )
    return Lane(life.number, life.address, bars, signs)


def _bar(span: Span, scale: _Scale) -> Bar:
    x, end = scale.place(span.first), scale.end if span.last is None else span.last + 1
    if span.last is None:
        rounds = f"since round {span.first:,}"
    else:
        rounds = f"in round {span.first:,}" if span.last <= span.first else f"in rounds {span.first:,} to {span.last:,}"
    return Bar(span.standing, x, round(scale.place(end) - x, 3), f"{STANDINGS[span.standing]} {rounds}")


def _rules_text(item: OtherRules) -> str:
    values = ", ".join(f"{name} {value}" for name, value in item.values)
    return f"from round {item.round:,} on: {values}"


def _lives_text(view: LivesView) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["place", "address", "standing", "first round", "last round"])
    writer.writerows(_rows(view.lives))
    return file.getvalue()


def _rows(lives: Sequence[Life]) -> Iterator[tuple[Any, ...]]:
    for life in lives:
        for span in life.spans:
            yield life.number, life.address, span.standing, span.first, "" if span.last is None else span.last
        for item in life.keys:
            yield life.number, life.address, item.kind, item.round, item.round
