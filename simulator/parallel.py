"""Many simulations, several at a time, each in a process of its own; what is finished is handed over at once."""

import gc
import json
import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from fedchain.simulator.metrics import RoundMetrics
from fedchain.simulator.run import load_learner, simulate
from fedchain.simulator.scenario import Scenario
from fedchain.simulator.worker import WorkerDiedError

ESTIMATE_S = 1e6
"""Over how long the speed is averaged from which the remaining time follows: runs take minutes, and differ."""


def run_all(
    scenarios: Sequence[Scenario],
    jobs: int,
    on_result: Callable[[int, dict[str, Any]], str],
    console: Console,
    run: Callable[[Scenario], dict[str, Any]] | None = None,
) -> None:
    """Run the scenarios, ``jobs`` at a time, under a progress bar.

    Args:
        scenarios: validated.
        jobs: simulations at a time.
        on_result: told the place of a scenario and its result (see :func:`run_one`) when it is finished, in whatever
            order that is; returns the line to print about it.
        console: where bar and lines go.
        run: what is done with a scenario, a module's function; None: :func:`run_one`.

    Raises:
        LearningError: the data of the first scenario cannot be used, or training diverged.
        WorkerDiedError: a simulation's process was killed.
    """
    if not scenarios:
        return
    load_learner(scenarios[0])  # bad data shall be one line, not one per run
    columns = (
        TextColumn("runs"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    # Spawned, so that each can fork its own training process from a process without threads.
    with (
        Progress(*columns, console=console, speed_estimate_period=ESTIMATE_S) as progress,
        ProcessPoolExecutor(max_workers=jobs, mp_context=get_context("spawn"), initializer=_leave_it_to_parent) as pool,
    ):
        task = progress.add_task("runs", total=len(scenarios))
        pending = {pool.submit(_run, run or run_one, scenario): place for place, scenario in enumerate(scenarios)}
        try:
            for future in as_completed(pending):
                line = on_result(pending[future], future.result())
                progress.advance(task)
                progress.console.print(f"{_reached(progress.tasks[task])}  {line}", markup=False)
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


def _leave_it_to_parent() -> None:
    """Ctrl-C is the parent's to handle: it ends this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _reached(task: Task) -> str:
    """How far everything is: a log file shows no bar."""
    left = task.time_remaining
    return f"{task.completed:.0f}/{task.total:.0f}" + (f", {left / 60:.0f} min left" if left else "")


def run_one(scenario: Scenario) -> dict[str, Any]:
    """Simulate one scenario in memory; plain values, for a result file."""
    outcome = simulate(scenario, load_learner(scenario), _require_parent)
    gc.collect()  # the peers know each other, and with them stays the data set, until somebody looks
    return {
        "scenario": scenario.to_dict(),
        "rows": [row.to_dict() for row in outcome.rows],
        "tip": outcome.tip,
        "trace_hash": outcome.trace_hash,
        "violations": outcome.violations,
    }


def _run(run: Callable[[Scenario], dict[str, Any]], scenario: Scenario) -> dict[str, Any]:
    """Run a scenario in a process of the pool.

    The process ends if nobody is left to give it a next one, and when it is terminated: the pool would take that for a
    result and begin the run that it holds ready.
    """
    with suppress(_Orphaned, KeyboardInterrupt):
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # it unwinds, which ends the processes it began
        result = run(scenario)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if _has_parent():
            return result
    os._exit(1)


class _Orphaned(Exception):
    """The process that wants the result is gone."""


def _require_parent(_: RoundMetrics) -> None:
    if not _has_parent():
        raise _Orphaned


def _has_parent() -> bool:
    parent = parent_process()
    return parent is None or parent.is_alive()


def write_result(results: Path, key: str, result: dict[str, Any]) -> None:
    """A result is there whole or not at all: its presence is what a resumed experiment goes by."""
    temporary = results / f"{key}.part"
    temporary.write_text(json.dumps(result), encoding="utf-8")
    temporary.rename(results / f"{key}.json")
