"""Calls go out together or alone, in each client's order; whoever waits gets the reply, the error, or is stopped."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fedchain.learning.amended import Amended
from fedchain.learning.exceptions import InvalidPayload
from fedchain.learning.executors.calling import CallingExecutor
from fedchain.learning.executors.executor import Interrupted, Job, Question
from fedchain.learning.executors.packing import Reply
from fedchain.learning.executors.serving import Call

CLIENTS = 4


class Handing:
    """Hands nothing over, and counts."""

    def __init__(self) -> None:
        self.handed = 0

    def hand(self, data: bytes) -> bytes:
        self.handed += 1
        return data

    def done(self, handed: bytes) -> None:
        self.handed -= 1


class Noting(CallingExecutor):
    """Two workers that answer, one call at each hearing, with what they were sent; client 3 fails."""

    def __init__(self, together: int = 0, stop: threading.Event | None = None, learner: Any = None) -> None:
        self.handing = Handing()
        super().__init__(learner, 2, self.handing, together=together, stop=stop)
        self.sent: list[tuple[int, list[tuple[str, int]]]] = []
        self.waiting: list[Call] = []
        self.is_silent = False

    def close(self) -> None:
        """There is nothing to end."""

    def _send(self, worker: int, calls: Sequence[Call]) -> None:
        self.sent.append((worker, [(call.method, call.client) for call in calls]))
        self.waiting += calls

    def _hear(self, timeout_s: float) -> bool:
        if self.is_silent:
            return False
        call = self.waiting.pop(0)
        failed = call.client == CLIENTS - 1
        self._take(Reply(call.number, not failed, InvalidPayload("damaged") if failed else (call.method, call.client)))
        return True


def ask(client: int) -> Question:
    return Question(client, "update", 1, b"known")


def test_each_call_goes_out_at_once_and_alone() -> None:
    executor = Noting()
    jobs = [executor.compute(ask(client)) for client in (0, 1)]
    assert executor.sent == [(0, [("contribute", 0)]), (1, [("contribute", 1)])]
    assert [job.together for job in jobs] == [(ask(0),), (ask(1),)]


def test_calls_are_held_back_until_they_are_enough_or_somebody_waits() -> None:
    executor = Noting(together=3)
    jobs = [executor.compute(ask(client)) for client in (0, 1)]
    assert executor.sent == []
    jobs.append(executor.compute(ask(2)))
    assert executor.sent == [(0, [("contribute", 0), ("contribute", 2)]), (1, [("contribute", 1)])]
    assert jobs[2].together == (ask(0), ask(2))
    last: Job[Any] = executor.compute(ask(1))
    assert last.result() == ("contribute", 1)
    assert executor.sent[2:] == [(1, [("contribute", 1)])]


def test_a_client_is_put_back_alone_and_in_its_order(tmp_path: Path) -> None:
    executor = Noting(together=9)
    executor.restore(0, tmp_path)
    executor.compute(ask(2))
    executor.restore(0, tmp_path)
    assert executor.sent == [(0, [("restore", 0)]), (0, [("restore", 0)])]
    executor.compute(ask(0))
    executor.restore(0, tmp_path)
    assert executor.sent[2:] == [(0, [("contribute", 2), ("contribute", 0)]), (0, [("restore", 0)])]


def test_the_thread_that_waits_for_one_hears_of_all() -> None:
    executor = Noting()
    jobs: list[Job[Any]] = [executor.compute(ask(client)) for client in range(CLIENTS)]
    heard: list[Job[Any]] = []
    for job in jobs[:2]:
        job.add_done_callback(heard.append)
    assert executor.handing.handed == CLIENTS
    with pytest.raises(InvalidPayload, match="damaged"):
        jobs[3].result()
    assert heard == jobs[:2]
    assert executor.handing.handed == 0
    jobs[2].add_done_callback(heard.append)
    assert heard == jobs[:3], "at once if it is there already"
    assert [job.result() for job in jobs[:3]] == [("contribute", client) for client in range(3)]


class Planning:
    """Plans as many steps as the members have amended to."""

    steps = 10

    def amend(self, amended: Amended) -> None:
        self.steps = int(dict(amended).get("local_steps", 10))

    def planned_steps(self, client: int, phase: str, round_number: int) -> int:
        return self.steps


def test_steps_are_planned_as_the_members_have_amended_them() -> None:
    executor = Noting(learner=Planning())
    amended = (("local_steps", "3"),)
    assert [executor.planned_steps(0, "update", 1, given) for given in ((), amended, ())] == [10, 3, 10]


def test_whoever_waits_is_stopped() -> None:
    stop = threading.Event()
    executor = Noting(stop=stop)
    job = executor.compute(ask(0))
    stop.set()
    executor.is_silent = True
    with pytest.raises(Interrupted):
        job.result()
