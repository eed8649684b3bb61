"""Many simulations, several at a time, each in a process of its own; results are handed over as runs finish."""

import gc
import json
import math
import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, suppress
from ctypes import Array, c_int64
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fedchain.learning.executors.workers import WorkerDiedError
from fedchain.simulator.engine.measurement import RoundMetrics
from fedchain.simulator.engine.no_record import NO_RECORD
from fedchain.simulator.resuming.resume import continued
from fedchain.simulator.run import load_learner, simulate
from fedchain.simulator.scenario import Scenario

ESTIMATE_S = 1e6
"""Seconds over which the speed is averaged for the remaining time: rounds of some methods take longer."""
REFRESH_S = 1.0
LINES = 10
"""Number of lines about rounds in a log file, which shows no bar."""

OnRound = Callable[[int], None]
"""Called with the number of each round of a run when it is closed."""
Runner = Callable[[Scenario, OnRound], dict[str, Any]]
"""Runs a scenario; returns plain values, for a result file."""


def run_all(
    scenarios: Sequence[Scenario],
    jobs: int,
    on_result: Callable[[int, dict[str, Any]], str],
    console: Console,
    run: Runner | None = None,
) -> None:
    """Run the scenarios, ``jobs`` at a time, under a progress bar.

    Args:
        scenarios: validated.
        jobs: simulations at a time.
        on_result: called with the place of a scenario and its result (see :func:`run_one`) when it is finished, in
            order of completion; returns the line to print about it.
        console: console for bar and lines.
        run: runs a scenario, a function of a module; None: :func:`run_one`.

    Raises:
        LearningError: the data of the first scenario cannot be used, or training diverged.
        WorkerDiedError: a simulation's process was killed.
    """
    if not scenarios:
        return
    load_learner(scenarios[0])  # report bad data once, not for each run
    columns = (
        TextColumn("runs {task.fields[runs]}/{task.fields[runs_total]}, rounds {task.completed:.0f}/{task.total:.0f}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    context = get_context("spawn")  # so that each can fork its own training process from a process without threads
    closed = context.RawArray(c_int64, len(scenarios))  # without a lock, which a killed process might hold
    with (
        Progress(*columns, console=console, speed_estimate_period=ESTIMATE_S) as progress,
        ProcessPoolExecutor(jobs, context, _begin, (closed,)) as pool,
    ):
        shown = RunsProgress(progress, scenarios)
        pending: dict[Future[dict[str, Any]], int] = {
            pool.submit(_run, run or run_one, place, scenario): place for place, scenario in enumerate(scenarios)
        }
        try:
            while pending:
                finished, _ = wait(pending, REFRESH_S, FIRST_COMPLETED)
                for future in finished:
                    place = pending.pop(future)
                    line = on_result(place, future.result())
                    closed[place] = scenarios[place].rounds  # a run that diverged closed fewer
                    shown.finish(line, sum(closed))
                shown.update(sum(closed))
        except BaseException as error:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in active_children():
                process.terminate()
            if isinstance(error, BrokenProcessPool):
                raise WorkerDiedError(
                    "a simulation's process was killed, perhaps for want of memory; what is finished is kept, and "
                    "the same command goes on from there; fewer --jobs need less memory"
                ) from None
            raise


class RunsProgress:
    """Progress of all runs: a bar on a terminal, lines in a log file."""

    def __init__(self, progress: Progress, scenarios: Sequence[Scenario]) -> None:
        self._progress = progress
        self._runs, self._runs_total = 0, len(scenarios)
        self._rounds_total = sum(scenario.rounds for scenario in scenarios)
        self._task: TaskID = progress.add_task(
            "runs", total=self._rounds_total, runs=self._runs, runs_total=self._runs_total
        )
        self._lines = 0

    def finish(self, line: str, rounds: int) -> None:
        """A run is finished: print ``line`` about it."""
        self._runs += 1
        self._lines = self._lines_at(rounds)
        self._progress.update(self._task, completed=rounds, runs=self._runs)
        self._say(f"{self._runs}/{self._runs_total}", line)

    def update(self, rounds: int) -> None:
        """All runs together have closed ``rounds`` rounds."""
        self._progress.update(self._task, completed=rounds)
        if self._lines_at(rounds) > self._lines and not self._progress.console.is_terminal:
            self._lines = self._lines_at(rounds)
            self._say(f"rounds {rounds}/{self._rounds_total}")

    def _lines_at(self, rounds: int) -> int:
        return LINES * rounds // self._rounds_total

    def _say(self, reached: str, line: str = "") -> None:
        (task,) = self._progress.tasks
        left = f", {math.ceil(task.time_remaining / 60)} min left" if task.time_remaining else ""
        self._progress.console.print(f"{reached}{left}  {line}".rstrip(), markup=False)


_closed: "Array[c_int64]"
"""In a process of the pool: the last closed round of every run, shared with the parent."""


def _begin(closed: "Array[c_int64]") -> None:
    """Begin a process of the pool. The parent handles Ctrl-C, and ends this process."""
    global _closed  # noqa: PLW0603, shared memory cannot travel with a task
    _closed = closed
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def run_one(
    scenario: Scenario, on_round: OnRound, rows: list[RoundMetrics] | None = None, record_folder: Path | None = None
) -> dict[str, Any]:
    """Simulate one scenario; returns plain values, for a result file.

    Args:
        scenario: validated.
        on_round: see :data:`OnRound`; a run that goes on begins with the first round again.
        rows: each round's row is appended as the round closes, so that the caller has it even if training diverges.
        record_folder: keeps what is computed, so that an interrupted run goes on; None: in memory.
    """

    def keep(row: RoundMetrics) -> None:
        if rows is not None:
            rows.append(row)
        on_round(row.round)

    learner = load_learner(scenario)
    with closing(NO_RECORD if record_folder is None else continued(record_folder, scenario)) as record:
        outcome = simulate(scenario, learner, keep, record=record)
    gc.collect()  # the peers form cycles, which hold the data set until they are collected
    return {
        "scenario": scenario.to_dict(),
        "rows": [row.to_dict() for row in outcome.rows],
        "tip": outcome.tip,
        "trace_hash": outcome.trace_hash,
        "violations": outcome.violations,
    }


def _run(run: Runner, place: int, scenario: Scenario) -> dict[str, Any]:
    """Run a scenario in a process of the pool.

    The process exits if its parent is gone, and when it is terminated: the pool would take an exception for a result
    and begin the next run.
    """

    def on_round(number: int) -> None:
        _closed[place] = number
        if not _has_parent():
            raise _Orphaned

    with suppress(_Orphaned, KeyboardInterrupt):
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # unwinding ends the processes that it began
        try:
            result = run(scenario, on_round)
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if _has_parent():
            return result
    os._exit(1)


class _Orphaned(Exception):
    """The process that wants the result is gone."""


def _has_parent() -> bool:
    parent = parent_process()
    return parent is None or parent.is_alive()


def record_folder(results: Path, key: str) -> Path:
    """Folder of the record of a run whose result is not there yet."""
    return results / f"{key}.record"


def write_result(results: Path, key: str, result: dict[str, Any]) -> None:
    """Write a result atomically: a resumed experiment skips runs whose result exists."""
    temporary = results / f"{key}.part"
    temporary.write_text(json.dumps(result), encoding="utf-8")
    temporary.rename(results / f"{key}.json")
