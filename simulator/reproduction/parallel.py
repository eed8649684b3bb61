"""Many simulations, several at a time, each by a worker of an executor; results are handed over as runs finish."""

import gc
import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fedchain.files.json_text import to_json
from fedchain.files.spool import write_whole
from fedchain.learning.device import DEVICE, find_device
from fedchain.learning.exceptions import LearningError
from fedchain.learning.executors.workers import Gone, WorkerDiedError, Workers
from fedchain.simulator.choices import PROCESSES
from fedchain.simulator.engine.measurement import RoundMetrics
from fedchain.simulator.reproduction.run_workers import Begin, Closed, Finished, OnRound, Runner, open_run_workers
from fedchain.simulator.resuming.no_record import NO_RECORD
from fedchain.simulator.resuming.resume import continued
from fedchain.simulator.run import load_learner, simulate
from fedchain.simulator.scenario import Scenario

ESTIMATE_S = 1e6
"""Seconds over which the speed is averaged for the remaining time: rounds of some methods take longer."""
REFRESH_S = 1.0
LINES = 10
"""Number of lines about rounds in a log file, which shows no bar."""

LOSSES_MAX = 2
"""Workers that one run may lose; the next loss is taken for its own fault."""

OnResult = Callable[[int, dict[str, Any]], str]
"""Called with the place of a scenario and its result when it is finished; returns the line to print about it."""


def run_all(
    scenarios: Sequence[Scenario],
    jobs: int,
    on_result: OnResult,
    console: Console,
    run: Runner | None = None,
    executor: str = PROCESSES,
) -> None:
    """Run the scenarios, ``jobs`` at a time, under a progress bar; a run whose worker is lost goes on with another one.

    Args:
        scenarios: validated.
        jobs: simulations at a time.
        on_result: called in order of completion.
        console: console for bars and lines.
        run: runs a scenario, a function of a module; None: :func:`run_one`.
        executor: see :func:`open_run_workers`.

    Raises:
        WorkerDiedError: the workers of a run, or the processes that it trained with, were lost again and again, and all
            others are finished; or no worker is left.
    """
    if not scenarios:
        return
    cards = any(find_device(scenario.device).type != DEVICE for scenario in scenarios)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with (
        closing(open_run_workers(executor, min(jobs, len(scenarios)), cards=cards)) as workers,
        Progress(*columns, console=console, speed_estimate_period=ESTIMATE_S) as progress,
    ):
        shown = RunsProgress(progress, scenarios)
        _Runs(scenarios, run or run_one, workers, on_result, shown).carry_out()


def require_usable(scenarios: Sequence[Scenario]) -> None:
    """Raise LearningError if no scenario of the first seed has data that it can use: it is told once, not for each."""
    errors = list[LearningError]()
    for scenario in scenarios:
        if scenario.seed != scenarios[0].seed:
            break
        try:
            load_learner(scenario)
        except LearningError as error:
            errors.append(error)
        else:
            return
    if errors:
        raise errors[0]


class _Runs:
    """Runs on their way through workers."""

    def __init__(
        self,
        scenarios: Sequence[Scenario],
        run: Runner,
        workers: Workers,
        on_result: OnResult,
        shown: "RunsProgress",
    ) -> None:
        self._scenarios, self._run, self._workers = scenarios, run, workers
        self._on_result, self._shown = on_result, shown
        self._waiting = deque(range(len(scenarios)))
        self._idle = deque(range(workers.count))
        self._running: dict[int, int] = {}  # place by worker
        self._losses: Counter[int] = Counter()  # by place
        self._given_up: dict[int, str] = {}  # by place, the reason

    def carry_out(self) -> None:
        """Do them all; a run that is given up keeps no other one from its end."""
        while self._waiting or self._running:
            while self._waiting and self._idle:
                worker, place = self._idle.popleft(), self._waiting.popleft()
                self._running[worker] = place
                self._shown.begin(place)
                self._workers.send(worker, Begin(worker, place, self._run, self._scenarios[place]))
            match self._workers.receive(REFRESH_S):
                case Closed(place, number):
                    self._shown.update(place, number)
                case Finished(place, result):
                    (worker,) = (worker for worker, its in self._running.items() if its == place)
                    del self._running[worker]
                    self._idle.append(worker)
                    if isinstance(result, WorkerDiedError):
                        self._lose(place, str(result))
                        continue
                    if isinstance(result, Exception):
                        raise result
                    self._shown.finish(place, self._on_result(place, result))
                case Gone() as gone:
                    self._replace(gone)
        if self._given_up:
            raise WorkerDiedError(self._what_is_missing())

    def _replace(self, gone: Gone) -> None:
        """Replace a worker that is gone, which may have had no run."""
        place = self._running.pop(gone.worker, None)
        if place is None:
            self._idle.remove(gone.worker)
        if self._workers.replace(gone.worker):
            self._idle.append(gone.worker)
        if place is not None:
            self._lose(place, gone.reason)

    def _lose(self, place: int, reason: str) -> None:
        """Have a run that lost its worker go on with another one, from its record if it has one, or give it up."""
        self._losses[place] += 1
        is_given_up = self._losses[place] > LOSSES_MAX
        if is_given_up or not (self._idle or self._running):
            self._given_up[place] = reason
        if not (self._idle or self._running):
            raise WorkerDiedError(self._what_is_missing())
        if not is_given_up:
            self._waiting.appendleft(place)
        self._shown.lose(place, reason, is_given_up=is_given_up)

    def _what_is_missing(self) -> str:
        said = (f"{self._shown.name_of(place)} ({reason})" for place, reason in sorted(self._given_up.items()))
        return (
            "a simulation's processes were killed, perhaps for want of memory; what is finished is kept, and the same "
            f"command goes on from there; fewer --jobs need less memory; not finished: {'; '.join(said)}"
        )


class RunsProgress:
    """Progress of all runs: bars on a terminal, for all together and for each that runs; lines in a log file."""

    def __init__(self, progress: Progress, scenarios: Sequence[Scenario]) -> None:
        self._progress, self._scenarios = progress, scenarios
        self._closed = [0] * len(scenarios)  # rounds by place
        self._runs, self._lines = 0, 0
        self._rounds_total = sum(scenario.last_round for scenario in scenarios)
        self._task: TaskID = progress.add_task(self._reached(), total=self._rounds_total)
        self._tasks: dict[int, TaskID] = {}  # of those that run, by place

    def begin(self, place: int) -> None:
        """A run begins, or begins again."""
        label, total = f"  {self.name_of(place)}", self._scenarios[place].last_round
        self._tasks[place] = self._progress.add_task(label, total=total, completed=self._closed[place])

    def name_of(self, place: int) -> str:
        """A run's method and seed."""
        return f"{self._scenarios[place].method}, seed {self._scenarios[place].seed}"

    def update(self, place: int, number: int) -> None:
        """A run has closed a round."""
        self._closed[place] = max(self._closed[place], number)  # one that goes on repeats its rounds
        self._progress.update(self._tasks[place], completed=number)
        self._show()
        if self._lines_now() > self._lines and not self._progress.console.is_terminal:
            self._lines = self._lines_now()
            self._say(f"rounds {sum(self._closed)}/{self._rounds_total}")

    def finish(self, place: int, line: str) -> None:
        """A run is finished: print ``line`` about it."""
        self._runs += 1
        self._closed[place] = self._scenarios[place].last_round  # one that diverged closed fewer
        self._progress.remove_task(self._tasks.pop(place))
        self._show()
        self._lines = self._lines_now()
        self._say(f"{self._runs}/{len(self._scenarios)}", line)

    def lose(self, place: int, reason: str, *, is_given_up: bool = False) -> None:
        """A run's worker is lost."""
        self._progress.remove_task(self._tasks.pop(place))
        what = "is given up, and the others go on" if is_given_up else "goes on with another worker"
        said = f"{self.name_of(place)}, {what}; its own was lost: {reason}"
        self._progress.console.print(said, markup=False, soft_wrap=True)

    def _show(self) -> None:
        self._progress.update(self._task, completed=sum(self._closed), description=self._reached())

    def _reached(self) -> str:
        runs, rounds = f"{self._runs}/{len(self._scenarios)}", f"{sum(self._closed)}/{self._rounds_total}"
        return f"runs {runs}, rounds {rounds}"

    def _lines_now(self) -> int:
        return LINES * sum(self._closed) // self._rounds_total

    def _say(self, reached: str, line: str = "") -> None:
        (task,) = (task for task in self._progress.tasks if task.id == self._task)
        left = f", {math.ceil(task.time_remaining / 60)} min left" if task.time_remaining else ""
        self._progress.console.print(f"{reached}{left}  {line}".rstrip(), markup=False, soft_wrap=True)


@dataclass(slots=True)
class Begun:
    """A simulation's result, as far as it is known while it goes on."""

    scenario: Scenario
    rows: list[RoundMetrics] = field(default_factory=list)
    """Measurements of the rounds that are closed; some come later, until the end."""
    data: str = ""
    """The SHA-256 of the user's own data, in hexadecimal, if it has any."""

    def result(self) -> dict[str, Any]:
        """Plain values, for a result file."""
        known = {"scenario": self.scenario.to_dict(), "rows": [row.to_dict() for row in self.rows]}
        return known | ({"data": self.data} if self.data else {})


def run_one(
    scenario: Scenario, on_round: OnRound, begun: Begun | None = None, record_folder: Path | None = None
) -> dict[str, Any]:
    """Simulate one scenario; returns plain values, for a result file.

    Args:
        scenario: validated.
        on_round: see :data:`OnRound`; a run that goes on begins with the first round again.
        begun: gets what is known so far, so that the caller has it even if training diverges.
        record_folder: keeps what is computed, so that an interrupted run goes on; None: in memory.
    """
    known = Begun(scenario) if begun is None else begun

    def keep(row: RoundMetrics) -> None:
        known.rows.append(row)
        on_round(row.round)

    learner = load_learner(scenario)
    known.data = learner.hash_own()
    with closing(NO_RECORD if record_folder is None else continued(record_folder, scenario, known.data)) as record:
        outcome = simulate(scenario, learner, keep, record=record)
    gc.collect()  # the peers form cycles, which hold the data set until they are collected
    return known.result() | {
        "tip": outcome.tip,
        "trace_hash": outcome.trace_hash,
        "violations": outcome.violations,
    }


def record_folder(results: Path, key: str) -> Path:
    """Folder of the record of a run whose result is not there yet."""
    return results / f"{key}.record"


def write_result(results: Path, key: str, result: dict[str, Any]) -> None:
    """Write a result atomically: a resumed experiment skips runs whose result exists."""
    write_whole(to_json(result), results / f"{key}.json")
