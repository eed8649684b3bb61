"""The run folder: the scenario, the measurements, the chain, and pictures."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
from numpy.typing import NDArray

import fedchain
from fedchain.files.layout import (
    CHAIN_FOLDER,
    MEMBERS_FILE,
    METRICS_FILE,
    MODELS_FOLDER,
    RECORD_FOLDER,
    RESULT_FILE,
    SCENARIO_FILE,
    TIMELINE_FILE,
    read_metrics,
)
from fedchain.files.members import members_text
from fedchain.node.shell.timeline import newest_lines
from fedchain.simulator.engine.measurement import RoundMetrics, Span
from fedchain.simulator.engine.simulation import Outcome
from fedchain.simulator.palette import colour, line_style, title_of
from fedchain.simulator.resuming.record import Record, RecordError
from fedchain.simulator.scenario import Scenario, ScenarioError
from fedchain.wording import some_of

PRIVATE_RANDOMNESS = "follows from private_seed of the scenario, not from the operating system: it protects no data"
"""A result's note on the noise in it."""

PEERS_DRAWN, ROUNDS_DRAWN = 40, 20
"""Largest numbers in a timeline: more would be too small to see."""

PHASE_COLOURS = {"training": colour(0), "exchange": colour(5), "mining": colour(4), "voting": colour(2)}


class RunFolder:
    """Writes one run's files. Runs are never mixed or overwritten.

    Args:
        path: the folder, which must not exist yet.
        scenario: the scenario of the run.
        is_resumed: whether it is the folder of an interrupted run that goes on.
    """

    def __init__(self, path: Path, scenario: Scenario, *, is_resumed: bool = False) -> None:
        self.path, self._title = path, title_of(scenario)
        self._rows_count: int | None = None if is_resumed else 0  # rounds in metrics.jsonl; None: not counted yet
        if is_resumed:
            return
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            raise ScenarioError(f"{path} exists already; name another folder with --out") from None
        except OSError as error:
            raise ScenarioError(f"{path} cannot be made: {error.strerror}") from None
        self._write(SCENARIO_FILE, tomli_w.dumps(scenario.to_dict()))

    def open_record(self, identity: Mapping[str, str], *, is_resumed: bool) -> Record:
        """Begin the record of the run's results, or open that of an interrupted run.

        Raises ScenarioError if another process has it, or finished the run. Until it is closed, the folder is ours.
        """
        try:
            return (Record.open if is_resumed else Record.create)(self.path / RECORD_FOLDER, identity)
        except RecordError:
            require_unfinished(self.path)
            raise

    @property
    def chain(self) -> Path:
        """Folder of peer 0's chain."""
        return self.path / CHAIN_FOLDER

    @property
    def models(self) -> Path:
        """Folder of the members' final models."""
        return self.path / MODELS_FOLDER

    @property
    def keeps_models(self) -> bool:
        """Whether the final models are written."""
        return self.models.exists()

    def keep_models(self) -> None:
        """Have the final models written, also if the run is interrupted and goes on."""
        self.models.mkdir(exist_ok=True)

    def read_rows(self) -> list[RoundMetrics]:
        """Return the measurements of each round that was closed."""
        return [RoundMetrics(**row) for row in read_metrics(self.path)]

    def write_rows(self, rows: Sequence[RoundMetrics]) -> None:
        """Write ``metrics.jsonl``, one object a round. A resumed run writes nothing until it is as far as it was."""
        if self._rows_count is None:
            self._rows_count = len(self.read_rows())
        if len(rows) >= self._rows_count:
            self._write(METRICS_FILE, "".join(json.dumps(row.to_dict()) + "\n" for row in rows))
            self._rows_count = len(rows)

    def draw(
        self, rows: Sequence[RoundMetrics], timeline: Mapping[tuple[int, int], Span], histogram: NDArray[np.int64]
    ) -> None:
        """Draw all pictures from the known rounds."""
        draw_curves(rows, self._title, self.path / "curves.png")
        draw_heat_map(histogram, self._title, self.path / "classes.png")
        draw_timeline(timeline, self._title, self.path / "timeline.png")

    def write_outcome(self, outcome: Outcome, histogram: NDArray[np.int64], wall_s: float) -> None:
        """Write all files of a finished run; the result comes last, and marks the run as finished."""
        self.write_rows(outcome.rows)
        self.draw(outcome.rows, outcome.timeline, histogram)
        self._write(MEMBERS_FILE, members_text(outcome.members))
        self._write(TIMELINE_FILE, newest_lines(outcome.seen))
        self._write(RESULT_FILE, json.dumps(result_of(outcome) | {"wall_s": round(wall_s, 3)}, indent=2) + "\n")

    def _write(self, name: str, content: str | bytes) -> None:
        """Replace a file atomically: a process that is killed leaves the old one or the new one."""
        temporary = self.path / f"{name}.part"
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)
        temporary.replace(self.path / name)


def holds_finished(folder: Path) -> bool:
    """Whether a folder holds a run that was finished."""
    return (folder / RESULT_FILE).exists() and (folder / SCENARIO_FILE).exists()


def require_unfinished(folder: Path) -> None:
    """Raise ScenarioError if a folder holds a finished run."""
    if holds_finished(folder):
        raise ScenarioError(f"{folder} holds a finished run; to run it again, name another folder with --out")


def result_of(outcome: Outcome) -> dict[str, Any]:
    """The content of ``result.json``, apart from wall-clock times."""
    spent = [row.epsilon for row in outcome.rows if row.epsilon is not None]
    noise = {"epsilon": max(spent), "private_randomness": PRIVATE_RANDOMNESS} if spent else {}
    return {
        "version": fedchain.__version__,
        "tip": outcome.tip,
        "knowledge_root": outcome.knowledge_root,
        "trace_hash": outcome.trace_hash,
        "virtual_s": round(outcome.virtual_s, 3),
        "events": outcome.events,
        "violations": outcome.violations,
        **outcome.totals,
        **noise,
    }


def draw_curves(rows: Sequence[RoundMetrics], title: str, path: Path) -> None:
    """Draw accuracy and loss over the rounds."""
    figure, (left, right) = _subplots(2, (9.0, 3.8), title)
    accuracies = (
        ("taa", "local models, own test sets (TAA)"),
        ("taa_received", "aggregated model, own test sets"),
        ("taa_prototype", "nearest prototype, own test sets"),
        ("test_accuracy", "local models, whole test set"),
        ("test_accuracy_received", "aggregated model, whole test set"),
    )
    _draw_lines(left, rows, accuracies, 100)
    left.set(xlabel="round", ylabel="accuracy (%)")
    left.margins(y=0.1)
    _draw_lines(right, rows, (("tal", "local models (TAL)"), ("tal_received", "aggregated model")), 1)
    right.set(xlabel="round", ylabel="test loss (nats)")
    right.set_ylim(bottom=0)
    _save(figure, path)


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
    """Says which classes no peer has training images of; empty if there are none. ``histogram`` is (K, C)."""
    missing = [str(label) for label in np.flatnonzero(histogram.sum(axis=0) == 0)]
    return f"no peer holds class{'es' if len(missing) > 1 else ''} {some_of(missing)}" if missing else ""


def draw_heat_map(histogram: NDArray[np.int64], title: str, path: Path) -> None:
    """Draw the number of training images of each class at each peer, as in DFPL Fig. 3."""
    peers, classes = histogram.shape
    absent = not_held(histogram)
    figure, (axes,) = _subplots(1, (max(4.0, min(0.32 * peers + 1.5, 16.0)), 4.2), title)
    image = axes.imshow(histogram.T, aspect="auto", cmap="Blues", origin="lower", vmin=0)
    axes.set(xlabel="peer", ylabel="class", title=f"training images{absent and f' ({absent})'}")
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
                    )
    axes.set_yticks(range(classes))
    figure.colorbar(image, ax=axes, shrink=0.8)
    _save(figure, path)


def draw_timeline(timeline: Mapping[tuple[int, int], Span], title: str, path: Path) -> None:
    """Draw the times of each peer's work: training, exchange, mining, voting.

    A dotted line with a number is the beginning of a round; a star marks the mining of a block that became final. Only
    the first peers and rounds are drawn if there are many; the title says so.
    """
    shown = {key: span for key, span in timeline.items() if key[0] < PEERS_DRAWN and 0 < key[1] <= ROUNDS_DRAWN}
    peers = 1 + max((peer for peer, _ in shown), default=0)
    figure, (axes,) = _subplots(1, (10.0, max(2.4, 0.2 * peers + 1.6)), title + _left_out(timeline))
    for phase, shade in PHASE_COLOURS.items():
        bars = [(peer, *part) for (peer, _), span in shown.items() if (part := _part(span, phase))]
        if bars:
            axes.barh([b[0] for b in bars], [b[2] for b in bars], left=[b[1] for b in bars], color=shade, label=phase)
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
        figure.legend(ncols=5, fontsize=7, loc="outside lower center", frameon=False)
    _save(figure, path)


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


def _part(span: Span, phase: str) -> tuple[float, float] | None:
    """Begin and length of one phase of a round; None if the peer did not reach it."""
    ends = {
        "training": (span.started, span.trained),
        "exchange": (span.trained, span.mining),
        "mining": (span.mining, span.voted),
        "voting": (span.voted, span.closed),
    }
    begin, end = ends[phase]
    return None if begin is None or end is None or end < begin else (begin, end - begin)


def _subplots(columns: int, size: tuple[float, float], title: str) -> tuple[Any, Sequence[Any]]:
    from matplotlib.figure import Figure  # slow to import, and only needed at the end of a run

    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle(title, fontsize=10)
    return figure, list(np.atleast_1d(figure.subplots(1, columns)))


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=130)
