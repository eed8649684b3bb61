"""Pictures of a run: curves of learning, who holds which classes, who did what when."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedchain.files.spool import write_whole
from fedchain.simulator.disturbances import Trouble
from fedchain.simulator.engine.measurement import RoundMetrics, Span
from fedchain.simulator.palette import colour, line_style
from fedchain.wording import some_of

PEERS_DRAWN, ROUNDS_DRAWN = 40, 20
"""Largest numbers in a timeline: more would be too small to see."""

LETTER = 0.58 / 72
"""Width of a letter in inches, for each point of its size: texts that are wider than their place have several lines."""

TITLE_PT = 10.0
"""Size of titles."""

PHASE_COLOURS = {
    "training": colour(0),
    "waiting to sign or for the round": "#c8c8c8",
    "waiting for posts": colour(5),
    "mining": colour(4),
    "voting": colour(2),
}

TROUBLE_STYLES: Mapping[str, Mapping[str, Any]] = {
    "down": {"label": "down", "height": 0.8, "facecolor": "#eeeeee", "edgecolor": "#666666", "hatch": "////"},
    "lying": {"label": "does not follow the protocol", "height": 0.8, "facecolor": "#f7e3ef", "edgecolor": "none"},
    "cut": {"label": "cut off", "height": -0.2, "facecolor": "black"},
    "slow": {"label": "slow", "height": -0.2, "facecolor": colour(3)},
    "clock": {"label": "wrong clock", "height": -0.2, "facecolor": colour(1)},
}
"""Bars of troubles: in the row of the peer, or, with a negative height, on the edge below it."""

_ACCURACIES = (
    ("taa", "local models, own test sets (TAA)"),
    ("taa_received", "aggregated model, own test sets"),
    ("taa_prototype", "nearest prototype, own test sets"),
    ("test_accuracy", "local models, whole test set"),
    ("test_accuracy_received", "aggregated model, whole test set"),
    ("taa_new", "members that joined lately, own test sets"),
)
_LOSSES = (("tal", "local models (TAL)"), ("tal_received", "aggregated model"))
"""Metrics that a picture has a line for, and what its legend calls them."""


def draw_curves(rows: Sequence[RoundMetrics], title: str, path: Path) -> None:
    """Draw accuracy and loss over the rounds; nothing, and no file, if no model was measured."""
    if not any(getattr(row, name) is not None for row in rows for name, _ in (*_ACCURACIES, *_LOSSES)):
        return
    figure, (left, right) = _subplots(2, (9.0, 3.8), title)
    _draw_lines(left, rows, _ACCURACIES, 100)
    left.set(xlabel="round", ylabel="accuracy (%)")
    left.margins(y=0.1)
    _draw_lines(right, rows, _LOSSES, 1)
    right.set(xlabel="round", ylabel="test loss (nats)")
    right.set_ylim(bottom=0)
    write_picture(figure, path)


def _draw_lines(axes: Any, rows: Sequence[RoundMetrics], lines: Sequence[tuple[str, str]], scale: float) -> None:
    """Draw a line for each metric that was measured; a metric has the same colour in every picture."""
    from matplotlib.ticker import MaxNLocator

    known = [
        (place, label, points)
        for place, (name, label) in enumerate(lines)
        if (points := [(row.round, scale * value) for row in rows if (value := getattr(row, name)) is not None])
    ]
    for rank, (place, label, points) in enumerate(known):
        axes.plot(*zip(*points, strict=True), label=label, **line_style(place, len(known), rank))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    if axes.lines:
        axes.legend(fontsize=7, loc="best")


def not_held(histogram: NDArray[np.int64]) -> str:
    """Says which classes no peer has training examples of; empty if there are none. ``histogram`` is (K, C)."""
    missing = [str(label) for label in np.flatnonzero(histogram.sum(axis=0) == 0)]
    return f"no peer holds class{'es' if len(missing) > 1 else ''} {some_of(missing)}" if missing else ""


def draw_heat_map(histogram: NDArray[np.int64], title: str, path: Path) -> None:
    """Draw the number of training examples of each class at each peer, as in DFPL Fig. 3."""
    peers, classes = histogram.shape
    absent = not_held(histogram)
    width = max(4.0, min(0.32 * peers + 1.5, 16.0))
    figure, (axes,) = _subplots(1, (width, 4.2), title)
    image = axes.imshow(histogram.T, aspect="auto", cmap="Blues", origin="lower", vmin=0)
    axes.set(xlabel="peer", ylabel="class")
    counts = f"training examples{absent and f' ({absent})'}"
    axes.set_title(in_lines(counts, width - 1.0, TITLE_PT), fontsize=TITLE_PT)  # beside the scale of the colours
    if peers <= 40:
        axes.set_xticks(range(peers))
        for peer in range(peers):
            for label in range(classes):
                if count := int(histogram[peer, label]):
                    dark = count > histogram.max() / 2
                    axes.text(
                        peer,
                        label,
                        str(count),
                        ha="center",
                        va="center",
                        fontsize=6,
                        color="white" if dark else "black",
                        in_layout=False,  # it stays within the axes, which need not be fitted around it
                    )
    axes.set_yticks(range(classes))
    figure.colorbar(image, ax=axes, shrink=0.8)
    write_picture(figure, path)


def draw_timeline(
    timeline: Mapping[tuple[int, int], Span], title: str, path: Path, marked: Sequence[Trouble] = ()
) -> None:
    """Draw the times of each peer's work and waiting, and when something was wrong with it.

    A dotted line with a number is the beginning of a round; a star marks the mining of a block that became final. Only
    the first peers and rounds are drawn if there are many; the title says so.
    """
    shown = {key: span for key, span in timeline.items() if key[0] < PEERS_DRAWN and 0 < key[1] <= ROUNDS_DRAWN}
    peers = 1 + max((peer for peer, _ in shown), default=0)
    figure, (axes,) = _subplots(1, (10.0, max(2.4, 0.2 * peers + 1.6)), title + _left_out(timeline))
    for phase, shade in PHASE_COLOURS.items():
        bars = [(peer, *part) for (peer, number), span in shown.items() for part in _parts(shown, peer, number, phase)]
        _draw_bars(axes, bars, facecolor=shade, edgecolor="none", label=phase)
    _draw_troubles(axes, marked, peers, max((span.closed or 0.0 for span in shown.values()), default=0.0))
    sealed = [(span.sealed, peer) for (peer, _), span in shown.items() if span.sealed is not None]
    if sealed:
        star = {"marker": "*", "s": 90, "color": "black", "edgecolors": "white", "linewidths": 0.6, "zorder": 3}
        axes.scatter(*zip(*sealed, strict=True), label="mined the block", **star)
    for round_number in sorted({number for _, number in shown}):
        begins = [span.started for (_, n), span in shown.items() if n == round_number and span.started is not None]
        if begins:
            axes.axvline(min(begins), color="black", linewidth=0.7, linestyle=":")
            axes.annotate(str(round_number), (min(begins), 1.0), (2, 2), xycoords=("data", "axes fraction"), **_NUMBER)
    axes.set(xlabel="virtual seconds (numbers above: rounds)", ylabel="peer")
    axes.set_yticks(range(0, peers, max(1, peers // 20)))
    axes.set_ylim(peers - 0.4, -0.6)
    if axes.get_legend_handles_labels()[0]:
        figure.legend(ncols=6, fontsize=7, loc="outside lower center", frameon=False)
    write_picture(figure, path)


def _left_out(timeline: Mapping[tuple[int, int], Span]) -> str:
    """The title's note on peers and rounds that are not drawn; empty if all are."""
    peers = 1 + max((peer for peer, _ in timeline), default=0)
    rounds = max((number for _, number in timeline), default=0)
    drawn = (
        (ROUNDS_DRAWN, rounds, f"rounds 1 to {ROUNDS_DRAWN}"),
        (PEERS_DRAWN, peers, f"peers 0 to {PEERS_DRAWN - 1}"),
    )
    cut = [f"{text} of {count}" for most, count, text in drawn if count > most]
    return f"\n({', '.join(cut)})" if cut else ""


_NUMBER: Mapping[str, Any] = {"textcoords": "offset points", "fontsize": 7, "annotation_clip": False}
"""Style of the number of a round above the picture."""


def _parts(shown: Mapping[tuple[int, int], Span], peer: int, number: int, phase: str) -> Iterator[tuple[float, float]]:
    """Begin and length of the times that a peer spent on something in a round; none if it did not."""
    span, before = shown[peer, number], shown.get((peer, number - 1))
    idle_since = None if before is None else before.closed
    ends = {
        "training": ((span.started, span.trained),),
        "waiting to sign or for the round": ((span.trained, span.posted), (idle_since, span.started)),
        "waiting for posts": ((span.posted, span.mining),),
        "mining": ((span.mining, span.voted),),
        "voting": ((span.voted, span.closed),),
    }
    for begin, end in ends[phase]:
        if begin is not None and end is not None and end > begin:
            yield begin, end - begin


def _draw_troubles(axes: Any, marked: Sequence[Trouble], peers: int, until_s: float) -> None:
    """Draw when something was wrong with the first ``peers``; liars, whose work is not measured, by their behaviour."""
    for kind, style in TROUBLE_STYLES.items():
        bars = [
            (peer, item.begin_s, min(until_s, until_s if item.end_s is None else item.end_s) - item.begin_s)
            for item in marked
            for peer in item.peers
            if item.kind == kind and peer < peers and item.begin_s < until_s
        ]
        below = 0.0 if style["height"] > 0 else 0.5
        rows = [(peer + below, begin, length) for peer, begin, length in bars]
        _draw_bars(axes, rows, zorder=2, **{**style, "height": abs(style["height"])})
    for item in marked:
        for peer in (peer for peer in item.peers if item.kind == "lying" and peer < peers):
            axes.annotate(
                item.detail, (item.begin_s, peer), (3, 0), va="center", fontsize=7, textcoords="offset points"
            )


def _draw_bars(axes: Any, bars: Sequence[tuple[float, float, float]], *, height: float = 0.8, **style: Any) -> None:
    """Draw (row, begin, length) of each bar, all as one thing: bars of their own take most of a run's last second."""
    from matplotlib.collections import PolyCollection

    if not bars:
        return
    rows, begins, lengths = np.array(bars, dtype=float).T
    ends, tops, bottoms = begins + lengths, rows - height / 2, rows + height / 2
    corners = np.stack([begins, tops, begins, bottoms, ends, bottoms, ends, tops], axis=1).reshape(-1, 4, 2)
    drawn = PolyCollection(list(corners), linewidth=0, **style)
    drawn.sticky_edges.x.append(begins.min())  # no margin before the first one
    axes.add_collection(drawn)
    axes.autoscale_view()


def _subplots(columns: int, size: tuple[float, float], title: str) -> tuple[Any, Sequence[Any]]:
    from matplotlib.figure import Figure  # slow to import, and only needed at the end of a run

    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle(in_lines(title, size[0], TITLE_PT), fontsize=TITLE_PT, parse_math=False)
    return figure, list(np.atleast_1d(figure.subplots(1, columns)))


def in_lines(text: str, width: float, size: float) -> str:
    """A text whose lines are at most so many inches wide, for letters of so many points."""
    letters = max(1, int(width / (LETTER * size)))
    return "\n".join(textwrap.fill(line, letters, break_on_hyphens=False) for line in text.splitlines())


def write_picture(figure: Any, path: Path) -> None:
    """Write a figure of matplotlib as a PNG file, whole or not at all.

    It is written as it is drawn; `savefig` would draw it once more before, to find out its size.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure.set_dpi(130)
    canvas: Any = FigureCanvasAgg(figure)
    canvas.print_png(drawn := BytesIO())  # in memory first: matplotlib and PIL take a full disk for other errors
    write_whole(drawn.getvalue(), path)
