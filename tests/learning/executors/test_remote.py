"""Workers elsewhere: what they are sent is enough, and a loss of any of them changes no answer."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fedchain import testing
from fedchain.crypto.hashing import Hash, sha256
from fedchain.learning.config import LearningConfig
from fedchain.learning.executors import remote, serving
from fedchain.learning.executors.executor import Backend, Question
from fedchain.learning.executors.inline import InlineExecutor
from fedchain.learning.executors.remote import LOSSES_MAX, RemoteExecutor
from fedchain.learning.executors.remote_training import RemoteTraining, Sent
from fedchain.learning.executors.workers import WorkerDiedError
from fedchain.learning.payload.part_folder import PartFolder
from fedchain.learning.worker.plan import LearnerPlan, Named
from tests.support.hanging import no_hang
from tests.support.learning.workers import WorkersHere

CONFIG = LearningConfig(clients=4, method="scaffold", hyperparameters={"local_steps": 2})
"""A method whose clients remember."""


@contextmanager
def opened(config: LearningConfig = CONFIG, **options: Any) -> Iterator[tuple[RemoteExecutor, WorkersHere]]:
    plan = LearnerPlan(config=config)
    workers = WorkersHere(partial(RemoteTraining, plan.encode(), None), **options)
    with closing(RemoteExecutor(plan, workers)) as executor:
        yield executor, workers


def played(executor: Backend, before: Callable[[int], object] = lambda number: None) -> list[Any]:
    """Contributions of all clients in three rounds; ``before`` is called when those of a round have been asked for."""
    found = []
    for number in (1, 2, 3):
        jobs = [executor.compute(Question(client, "update", number, b"")) for client in range(CONFIG.clients)]
        before(number)
        found += [job.result() for job in jobs]
    return found


@pytest.fixture(scope="module")
def expected() -> list[Any]:
    return played(InlineExecutor(LearnerPlan(config=CONFIG)))


def test_remote_workers_pass() -> None:
    testing.check_executor(lambda plan: RemoteExecutor(plan, WorkersHere(partial(RemoteTraining, plan.encode(), None))))


def test_another_worker_goes_on_with_the_clients_of_one_that_is_gone(expected: list[Any]) -> None:
    with opened() as (executor, workers):
        assert played(executor, lambda number: workers.kill(number % 2)) == expected
        assert workers.room == 6


def test_those_that_are_left_serve_all_clients_where_there_is_no_room_for_another_one(expected: list[Any]) -> None:
    def lose(number: int) -> None:
        if number < 3:
            workers.kill(number)

    with opened(count=3, room=0) as (executor, workers):
        assert played(executor, lose) == expected
        assert [worker is None for worker in workers.working] == [False, True, True]


def test_the_loss_of_the_last_worker_is_an_error() -> None:
    with opened(room=0, fatal=lambda sent: True) as (executor, _), pytest.raises(WorkerDiedError, match="none is left"):
        played(executor)


def test_a_task_that_kills_all_its_workers_is_an_error() -> None:
    with opened(fatal=lambda sent: True, count=1) as (executor, workers):
        with pytest.raises(WorkerDiedError, match="the same task, contribute of peer 0; the last one: worker 0 was"):
            played(executor)
        assert workers.room == 9 - LOSSES_MAX


@pytest.mark.parametrize("method", ["contribute", "restore"])
def test_a_client_that_kills_its_workers_is_an_error_though_others_are_answered(method: str) -> None:
    def kills(sent: Sent) -> bool:
        return any((call.method, call.client) == (method, 3) and call.number > 4 for call in sent.calls)

    with opened(fatal=kills) as (executor, workers), no_hang():
        with pytest.raises(WorkerDiedError, match=rf"{LOSSES_MAX + 1} .* the same task, {method} of peer [13];"):
            played(executor, lambda number: None if number == 1 else workers.kill(1))
        assert workers.room < 9


def test_a_client_that_is_answered_may_lose_a_worker_in_each_of_many_rounds() -> None:
    """Machines that are lent are taken away now and then, for days."""
    rounds = range(1, LOSSES_MAX + 3)
    here = InlineExecutor(LearnerPlan(config=CONFIG))
    with opened(count=1) as (executor, workers):
        for number in rounds:
            job = executor.compute(question := Question(0, "update", number, b""))
            workers.kill(0)
            assert job.result() == here.compute(question).result()
        assert workers.room == 9 - len(rounds)


def test_many_workers_may_be_lost_at_once() -> None:
    config = replace(CONFIG, clients=LOSSES_MAX + 2)
    questions = [Question(client, "update", 1, b"") for client in range(config.clients)]
    here = InlineExecutor(LearnerPlan(config=config))
    with opened(config, count=config.clients) as (executor, workers):
        jobs = [executor.compute(question) for question in questions]
        for worker in range(workers.count):
            workers.kill(worker)
        assert [job.result() for job in jobs] == [here.compute(question).result() for question in questions]


def test_a_client_that_was_put_back_is_put_back_again(expected: list[Any], tmp_path: Path) -> None:
    state = tmp_path / "state"
    with opened() as (executor, _):
        executor.compute(Question(1, "update", 1, b""), state).result()
    for is_asked_before in (True, False):
        with opened() as (executor, workers):
            restored = executor.restore(1, state)
            if is_asked_before:
                restored.result()
            job = executor.compute(Question(1, "update", 2, b""))
            workers.kill(1)
            assert job.result() == expected[CONFIG.clients + 1]


def test_parts_are_where_their_client_is_served_and_go_when_they_go_here(tmp_path: Path) -> None:
    kept = Named("fedchain.learning.payload.part_folder:parts_of_each", (str(tmp_path),))
    plan = LearnerPlan(config=CONFIG, parts=kept)
    workers = WorkersHere(partial(RemoteTraining, plan.encode(), None), count=1)
    here: PartFolder = kept.resolve()(0)
    here.write(sha256(b"part"), b"part")
    with closing(RemoteExecutor(plan, workers)) as executor:
        for number, held in ((1, {sha256(b"part")}), (2, {sha256(b"part")}), (3, set[Hash]())):
            here.keep_only(held)
            job = executor.compute(Question(0, "update", number, b""))
            if number == 2:
                workers.kill(0)
            job.result()
            assert workers.working[0] is not None
            assert {*workers.working[0]._parts_of(0).hashes()} == held, number


def test_a_knowledge_is_put_there_once_for_all_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    federation = testing.Federation(CONFIG)
    federation.play()
    monkeypatch.setattr(remote, "SHARED_SIZE", 1)
    with opened() as (executor, workers):
        here = InlineExecutor(LearnerPlan(config=CONFIG))
        questions = [Question(client, "update", 2, federation.knowledge) for client in range(CONFIG.clients)]
        jobs = [executor.compute(question) for question in questions]
        assert [job.result() for job in jobs] == [here.compute(question).result() for question in questions]
        assert workers.puts == [federation.knowledge]


def test_a_large_payload_comes_whole(monkeypatch: pytest.MonkeyPatch, expected: list[Any]) -> None:
    monkeypatch.setattr(serving, "LARGE_SIZE", 1)
    with opened() as (executor, workers):
        assert executor.compute(Question(0, "update", 1, b"")).result() == expected[0]
        assert workers.working[0] is not None
        assert not [path for path in workers.working[0]._folder.rglob("*") if path.is_file()], "nothing is left there"
