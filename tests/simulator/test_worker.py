"""The training pool does what a learner in this process does, and says so when it cannot."""

import os
import signal
from collections.abc import Iterator

import pytest

from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import InvalidPayload
from fedchain.learning.learner import Learner
from fedchain.simulator.worker import TrainingPool, WorkerDiedError

CONFIG = LearningConfig(clients=4, hyperparameters={"local_steps": 2})


@pytest.fixture
def pool() -> Iterator[TrainingPool]:
    learner = Learner(CONFIG)
    learner.histogram()
    pool = TrainingPool(learner, 2)
    yield pool
    pool.close()


def test_the_pool_computes_what_a_learner_computes(pool: TrainingPool) -> None:
    jobs = [pool.contribute(client, "update", 1, b"", evaluate_test=False) for client in range(4)]
    found = [job.result() for job in reversed(jobs)][::-1]
    here = Learner(CONFIG)
    assert found == [here.contribute(client, "update", 1, b"") for client in range(4)]
    assert [pool.planned_steps(client) for client in range(4)] == [here.planned_steps(client) for client in range(4)]


def test_a_restarted_peer_gets_the_same_contribution_again(pool: TrainingPool) -> None:
    first, again = (pool.contribute(1, "update", 1, b"", evaluate_test=False).result() for _ in range(2))
    assert first == again
    assert pool.contribute(1, "update", 2, b"", evaluate_test=False).result() != first


def test_an_error_travels_to_whom_it_belongs_and_the_pool_goes_on(pool: TrainingPool) -> None:
    with pytest.raises(InvalidPayload):
        pool.contribute(0, "update", 2, b"damaged", evaluate_test=False).result()
    with pytest.raises(KeyError):
        pool.contribute(0, "nonsense", 2, b"", evaluate_test=False).result()
    assert pool.contribute(0, "update", 1, b"", evaluate_test=False).result().payload


def test_a_killed_process_is_noticed(pool: TrainingPool) -> None:
    victim = pool._processes[1].pid
    assert victim is not None
    os.kill(victim, signal.SIGKILL)
    with pytest.raises(WorkerDiedError, match="train-1 ended with exit code -9"):
        pool.contribute(1, "update", 1, b"", evaluate_test=False).result()


def test_clients_are_sticky_and_closing_ends_the_processes(pool: TrainingPool) -> None:
    os.kill(pool._processes[1].pid or 0, signal.SIGKILL)
    assert pool.contribute(0, "update", 1, b"", evaluate_test=False).result().payload
    assert pool.contribute(2, "update", 1, b"", evaluate_test=False).result().payload
    pool.close()
    assert not any(process.is_alive() for process in pool._processes)
