"""Workers that carry out whole runs, each in a process of its own: on this machine, or beside an actor of a cluster."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from fedchain.learning.executors.packing import portable
from fedchain.learning.executors.parent import wait_for_the_end_of_the_parent
from fedchain.learning.executors.workers import Gone, Workers
from fedchain.simulator.choices import PROCESSES
from fedchain.simulator.scenario import Scenario

OF_TERMINALS = (signal.SIGINT, signal.SIGHUP)
"""Signals that a terminal sends to all processes: one that is still importing would show where."""

OnRound = Callable[[int], None]
"""Called with the number of each round of a run when it is closed."""
Runner = Callable[[Scenario, OnRound], dict[str, Any]]
"""Runs a scenario; returns plain values, for a result file."""

POLL_S = 60.0

ENDING_S = 10.0
"""How long a process may take to end what it began; then it is killed, since own code may have turned off the signal
that tells it to."""


@dataclass(frozen=True, slots=True)
class Begin:
    """A run, on its way to a worker."""

    worker: int
    place: int
    """Its place among all."""
    run: Runner
    scenario: Scenario


@dataclass(frozen=True, slots=True)
class Closed:
    """A run has closed a round."""

    place: int
    round: int


@dataclass(frozen=True, slots=True)
class Finished:
    """A run has come to its end."""

    place: int
    result: dict[str, Any] | Exception
    """Plain values, or the error that ended it."""


def open_run_workers(executor: str, count: int, *, cards: bool) -> Workers:
    """Workers for whole runs, which are told :class:`Begin`. Raises ConfigurationError where Ray is missing.

    Args:
        executor: ``"processes"``, ``"ray"`` or ``"ray:ADDRESS"``.
        count: their number at most.
        cards: whether each worker of a cluster gets a graphics card for itself.
    """
    if executor == PROCESSES:
        return SpawnedWorkers(count)
    from fedchain.learning.executors.on_ray import RayWorkers

    return RayWorkers(RunWork, count, executor.partition(":")[2], cards=cards, pieces=True)


class SpawnedWorkers:
    """Processes of this machine as :class:`fedchain.learning.executors.workers.Workers`.

    They are spawned when they are first needed, so that each can fork its own training processes from a process
    without threads.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        """See :class:`Workers`."""
        self._processes: dict[int, tuple[SpawnProcess, Connection]] = {}

    def send(self, worker: int, message: Any) -> None:
        """See :class:`Workers`."""
        if worker not in self._processes:
            self._start(worker)
        with suppress(BrokenPipeError):  # it is gone, which `receive` will say
            self._processes[worker][1].send(message)

    def receive(self, timeout_s: float) -> Any:
        """See :class:`Workers`."""
        by_pipe = {pipe: worker for worker, (_, pipe) in self._processes.items()}
        for pipe in wait(list(by_pipe), timeout_s):
            worker = by_pipe[pipe]  # type: ignore[index]
            try:
                return self._processes[worker][1].recv()
            except (EOFError, OSError):  # even in the middle of a word
                process, _ = self._processes.pop(worker)
                process.join()
                return Gone(worker, f"its process ended with exit code {process.exitcode}")
        return None

    def replace(self, worker: int) -> bool:
        """See :class:`Workers`."""
        return True  # it is started when it is sent something

    def close(self) -> None:
        """See :class:`Workers`."""
        for process, pipe in self._processes.values():
            process.terminate()
            pipe.close()  # a finalizer may lose the interrupt; with nobody to tell, the run ends all the same
        latest_s = time.monotonic() + ENDING_S
        for process, _ in self._processes.values():
            process.join(max(0.0, latest_s - time.monotonic()))
            process.kill()
            process.join()
        self._processes.clear()

    def _start(self, worker: int) -> None:
        context = get_context("spawn")
        here, there = context.Pipe()
        process = context.Process(target=_serve, args=(there,), name=f"run-{worker}")
        resource_tracker.ensure_running()  # to start it unblocks signals
        before = signal.pthread_sigmask(signal.SIG_BLOCK, OF_TERMINALS)
        try:
            process.start()
            self._processes[worker] = process, here
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            there.close()


class RunWork:
    """The work of an actor: it has a process for its runs, which fork others and must not inherit its threads."""

    def __init__(self) -> None:
        self._workers = SpawnedWorkers(1)

    def do(self, begin: Begin) -> Iterator[Any]:
        """Carry out a run, and say what becomes of it."""
        self._workers.send(0, begin)
        while True:
            said = self._workers.receive(POLL_S)
            if isinstance(said, Gone):
                yield Gone(begin.worker, said.reason)
                return
            if said is not None:
                yield said
            if isinstance(said, Finished):
                return

    def close(self) -> None:
        """End the process."""
        self._workers.close()


def _serve(pipe: Connection) -> None:
    """Carry out runs, in a process of their own. The parent handles Ctrl-C, and ends this process."""
    sys.unraisablehook = _unless_interrupted
    for number in OF_TERMINALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, OF_TERMINALS)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError, ConnectionError, KeyboardInterrupt):
        while True:
            begin: Begin = pipe.recv()
            signal.signal(signal.SIGTERM, signal.default_int_handler)  # unwinding ends the processes that it began
            pipe.send(Finished(begin.place, _result(begin, pipe)))
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os._exit(1)


def _result(begin: Begin, pipe: Connection) -> dict[str, Any] | Exception:
    try:
        return begin.run(begin.scenario, lambda number: pipe.send(Closed(begin.place, number)))
    except ConnectionError:  # nobody wants the result any more
        raise
    except Exception as error:
        return portable(error)


def _unless_interrupted(lost: "sys.UnraisableHookArgs") -> None:
    """Tell of an error in a finalizer as ever, but for an interrupt, which comes in whatever runs just then."""
    if lost.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(lost)


def _end_with_parent() -> None:
    """Have this process end as if it were told to when the one that began it is gone."""
    wait_for_the_end_of_the_parent()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(ENDING_S)
    os._exit(1)
