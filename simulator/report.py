"""The run folder: the scenario, the measurements, the chain, and pictures if they are asked for."""

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
import tomli_w
from numpy.typing import NDArray

import fedchain
from fedchain.files.json_text import to_json
from fedchain.files.layout import (
    CHAIN_FOLDER,
    LINKS_FILE,
    MEMBERS_FILE,
    METRICS_FILE,
    MODELS_FOLDER,
    RECORD_FOLDER,
    RESULT_FILE,
    SCENARIO_FILE,
    TIMELINE_FILE,
    read_metrics,
)
from fedchain.files.links import links_text
from fedchain.files.members import members_text
from fedchain.files.spool import write_whole
from fedchain.node.shell.timeline import SeenBlock, line_of_block, newest_lines
from fedchain.simulator.disturbances import troubles
from fedchain.simulator.engine.measurement import RoundMetrics, Span
from fedchain.simulator.engine.outcome import Outcome
from fedchain.simulator.palette import title_of
from fedchain.simulator.pictures import draw_curves, draw_heat_map, draw_timeline
from fedchain.simulator.resuming.record import Record, RecordError
from fedchain.simulator.scenario import Scenario, ScenarioError

PRIVATE_RANDOMNESS = "follows from private_seed of the scenario, not from the operating system: it protects no data"
"""A result's note on the noise in it."""


NO_CODE: Mapping[str, str] = MappingProxyType({})

AT_ONCE = 1_000
"""Rounds of a run that is not long: each is written when it is closed."""

PAUSE = 20
"""After all rounds of a longer run were written, the next write waits so many times as long as that took."""


class RunFolder:
    """Writes one run's files. Runs are never mixed or overwritten.

    Args:
        path: the folder, which must not exist yet.
        scenario: the scenario of the run.
        is_resumed: whether it is the folder of an interrupted run that goes on.
        own_code: hashes of the user's own code, which the result keeps.
    """

    def __init__(
        self, path: Path, scenario: Scenario, *, is_resumed: bool = False, own_code: Mapping[str, str] = NO_CODE
    ) -> None:
        self.path, self._title, self._own_code = path, title_of(scenario), own_code
        self._troubles = troubles(scenario.faults, scenario.clocks, scenario.adversaries)
        self._lines: dict[int, tuple[SeenBlock, bytes]] = {}  # by height, a block with its line
        self._row_lines: dict[int, tuple[dict[str, Any], str]] = {}  # by round, what its line says, and the line
        self._rows_count: int | None = None if is_resumed else 0  # rounds in metrics.jsonl; None: not counted yet
        self._due_s = 0.0  # time from which many rounds are written again
        self._waiting: tuple[Sequence[RoundMetrics], Callable[[], Sequence[SeenBlock]]] | None = None
        if is_resumed:
            return
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            raise ScenarioError(f"{path} exists already; name another folder with --out") from None
        except OSError as error:
            raise ScenarioError(f"{path} cannot be made: {error.strerror}") from None
        with self._whole_or_not():
            self._write(SCENARIO_FILE, tomli_w.dumps(scenario.to_dict()))

    def open_record(self, identity: Mapping[str, str], *, is_resumed: bool) -> Record:
        """Begin the record of the run's results, or open that of an interrupted run.

        Raises ScenarioError if another process has it, or finished the run. Until it is closed, the folder is ours.
        """
        try:
            if is_resumed:
                return Record.open(self.path / RECORD_FOLDER, identity)
            with self._whole_or_not():
                return Record.create(self.path / RECORD_FOLDER, identity)
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
        """Return the measurements of each round that was closed. Raises ScenarioError if the file was damaged."""
        try:
            return [msgspec.convert(row, RoundMetrics) for row in read_metrics(self.path)]
        except msgspec.ValidationError as error:
            raise ScenarioError(f"{self.path / METRICS_FILE} cannot be read: {error}") from None

    def write_rows(
        self, rows: Sequence[RoundMetrics], seen: Callable[[], Sequence[SeenBlock]], *, may_wait: bool = False
    ) -> None:
        """Write ``metrics.jsonl``, one object a round, and ``timeline.jsonl``, one a block that ``seen`` returns.

        A resumed run writes nothing until it is as far as it was. Where this ``may_wait`` for later rounds, many rounds
        are not written whenever one is closed: the longer a run, the longer each of its rounds would take.
        """
        begun_s = time.perf_counter()
        is_waiting = may_wait and len(rows) > AT_ONCE and begun_s < self._due_s
        self._waiting = (rows, seen) if is_waiting else None
        if is_waiting:
            return
        if self._rows_count is None:
            self._rows_count = sum(1 for _ in read_metrics(self.path))
        if len(rows) >= self._rows_count:
            self._write(METRICS_FILE, "".join(map(self._line_of_row, rows)))
            self._write(TIMELINE_FILE, newest_lines(seen(), self._line_of))
            self._rows_count = len(rows)
        now_s = time.perf_counter()
        self._due_s = now_s + PAUSE * (now_s - begun_s)

    def write_waiting(self) -> None:
        """Write the rounds that still wait for later ones: the run has ended."""
        if self._waiting is not None:
            self.write_rows(*self._waiting)

    def _line_of_row(self, row: RoundMetrics) -> str:
        """The line of a round, which is written again if its row was filled in since."""
        values, known = row.to_dict(), self._row_lines.get(row.round)
        if known is None or known[0] != values:
            known = self._row_lines[row.round] = values, to_json(values) + "\n"
        return known[1]

    def _line_of(self, block: SeenBlock) -> bytes:
        """The line of a block, which is written once for each object: all lines are asked for in every round."""
        known = self._lines.get(block.height)
        if known is None or known[0] is not block:
            known = self._lines[block.height] = block, line_of_block(block)
        return known[1]

    def draw(
        self, rows: Sequence[RoundMetrics], timeline: Mapping[tuple[int, int], Span], histogram: NDArray[np.int64]
    ) -> None:
        """Draw all pictures from the known rounds."""
        draw_curves(rows, self._title, self.path / "curves.png")
        draw_heat_map(histogram, self._title, self.path / "classes.png")
        draw_timeline(timeline, self._title, self.path / "timeline.png", self._troubles)

    def write_outcome(self, outcome: Outcome, wall_s: float) -> None:
        """Write all files of a finished run; the result comes last, and marks the run as finished."""
        self._rows_count = 0  # whatever the file says of the run before it was interrupted
        self.write_rows(outcome.rows, lambda: outcome.seen)
        self._write(MEMBERS_FILE, members_text(outcome.members))
        if outcome.links:
            self._write(LINKS_FILE, links_text(outcome.links))
        result = result_of(outcome) | {"wall_s": round(wall_s, 3)}
        if self._own_code:
            result["own_code"] = dict(self._own_code)
        self._write(RESULT_FILE, to_json(result, indent=2) + "\n")

    @contextmanager
    def _whole_or_not(self) -> Iterator[None]:
        """Remove the new folder where the disk refuses: it would be in the way of the same command, given again."""
        try:
            yield
        except OSError:
            shutil.rmtree(self.path, ignore_errors=True)
            raise

    def _write(self, name: str, content: str | bytes) -> None:
        """Replace a file atomically: a process that is killed leaves the old one or the new one."""
        write_whole(content, self.path / name)


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
        **({"trained_on": dict(outcome.trained_on)} if outcome.trained_on else {}),
    }
