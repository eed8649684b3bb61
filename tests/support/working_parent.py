"""A program that has processes work for it, and waits until somebody ends it; they inherit where it prints.

``python -m tests.support.working_parent train`` or ``run``. A bystander, which is forked last, inherits the program's
ends of their pipes, and outlives it. Its id is printed once all the others have begun.
"""

import os
import signal
import sys
import time
from contextlib import ExitStack, closing
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

from fedchain.learning.config import LearningConfig
from fedchain.learning.executors.executor import Question
from fedchain.learning.executors.processes import ProcessExecutor
from fedchain.learning.worker.plan import LearnerPlan
from fedchain.simulator.reproduction.run_workers import Begin, OnRound, SpawnedWorkers
from fedchain.simulator.scenario import Scenario

COUNT = 2


def train_and_wait(scenario: Scenario, on_round: OnRound) -> dict[str, Any]:
    """A run that never ends, and has processes that train."""
    with closing(trained()):
        on_round(1)
        wait()
    return {}


def trained() -> ProcessExecutor:
    """An executor whose processes have trained."""
    executor = ProcessExecutor(LearnerPlan(config=LearningConfig(clients=COUNT)), COUNT)
    for job in [executor.compute(Question(client, "update", 1, b"")) for client in range(COUNT)]:
        job.result()
    return executor


def wait() -> None:
    """Wait for ever. A signal that comes just before a `signal.pause` would be looked at only after it."""
    while True:
        time.sleep(0.2)


def main() -> None:
    """Begin, and wait."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with ExitStack() as opened:
        if sys.argv[1] == "train":
            opened.enter_context(closing(trained()))
        else:
            workers = opened.enter_context(closing(SpawnedWorkers(COUNT)))
            for worker in range(COUNT):
                workers.send(worker, Begin(worker, worker, train_and_wait, Scenario()))
            for _ in range(COUNT):
                while workers.receive(1.0) is None:
                    pass
        bystander = os.fork()
        if bystander == 0:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            tracker = vars(resource_tracker._resource_tracker)["_fd"]
            if tracker is not None:  # a process of Python's own, which would wait for this one
                os.close(tracker)
            devnull = os.open(os.devnull, os.O_WRONLY)
            os.dup2(devnull, 1)
            os.dup2(devnull, 2)
            wait()
        print(bystander, flush=True)
        wait()


if __name__ == "__main__":
    sys.path.insert(0, str(Path.cwd()))
    main()
