"""Choices of a run beside its scenario; nothing heavy is imported for them."""

import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from fedchain.learning.exceptions import RAY_IS_MISSING, ConfigurationError
from fedchain.simulator.scenario import ScenarioError

if TYPE_CHECKING:
    from fedchain.learning.executors.executor import Backend
    from fedchain.learning.worker.plan import LearnerPlan

PROCESSES, RAY = "processes", "ray"

EXECUTOR_HELP = """Where the work is done: processes of this machine, or ray, a Ray cluster; ray:ADDRESS names one."""


JOBS_HELP = "Simulations at a time [default: 2; as many as cores on Ray]."


def validated(executor: str | None) -> str:
    """The name of an executor, by default processes. Raises ScenarioError if there is none of that name."""
    name = executor or PROCESSES
    if not isinstance(name, str) or (name != PROCESSES and name.partition(":")[0] != RAY):
        raise ScenarioError(f"executor is {name!r}, it must be processes, ray, or ray:ADDRESS")
    return name


def installed(executor: str) -> str:
    """The name of an executor, before any work is done for it. Raises ConfigurationError if it needs what is missing.

    The backend says the same where it is opened, which is late for a command.
    """
    if executor != PROCESSES and find_spec(RAY) is None:
        raise ConfigurationError(RAY_IS_MISSING)
    return executor


def require_processes() -> None:
    """Raise ScenarioError in a process that may start none, before any work is done or a folder is made for it."""
    import multiprocessing

    if multiprocessing.current_process().daemon:
        raise ScenarioError(
            "clients train in processes, and this one may start none, as those of multiprocessing.Pool: take "
            "concurrent.futures.ProcessPoolExecutor, whose processes may"
        )


def default_jobs(executor: str) -> int:
    """Simulations at a time, at most."""
    return 2 if executor == PROCESSES else sys.maxsize


@dataclass(frozen=True, slots=True)
class Training:
    """How a run has its clients train, which changes none of its results."""

    executor: "str | Callable[[LearnerPlan], Backend]" = PROCESSES
    """``"processes"``, ``"ray"``, ``"ray:ADDRESS"``, or one of the user's own, as
    :func:`fedchain.testing.check_executor` takes it."""
    stop: threading.Event | None = None
    """Ends the run with Interrupted when another thread sets it, as Ctrl-C would in this one."""

    def __post_init__(self) -> None:
        if not callable(self.executor):
            validated(self.executor)


HERE = Training()
"""In processes of this machine, to the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How a run in a folder is carried out, and what it keeps beside what it always writes."""

    keep_models: bool = False
    """Whether the members' final models are written; a resumed run keeps them if it began so."""
    track: Sequence[str] = ()
    """Trackers, as :func:`open_tracker` reads them; they get all rounds."""
    draws: bool = False
    """Whether pictures are drawn when the run is over."""
    is_resumed: bool = False
    """Whether the run in the folder goes on: see :func:`fedchain.simulator.resuming.resume.resumed_run`."""
    keeps_record: bool = True
    """Whether the run can go on if it is interrupted."""
    training: Training = HERE


NO_OPTIONS = RunOptions()
