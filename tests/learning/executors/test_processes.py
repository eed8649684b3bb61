"""Worker processes do what a learner in this process does, and say so when they cannot."""

import errno
import itertools
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedchain.crypto.hashing import sha256
from fedchain.learning.application import Application
from fedchain.learning.client import Client
from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import InvalidPayload, NothingToPost, OwnCodeFailed
from fedchain.learning.executors import handover, serving
from fedchain.learning.executors.executor import InFile, Question
from fedchain.learning.executors.inline import InlineExecutor
from fedchain.learning.executors.last_answers import LastAnswers
from fedchain.learning.executors.outcomes import Counts
from fedchain.learning.executors.processes import ProcessExecutor
from fedchain.learning.executors.remembering import Remembering
from fedchain.learning.executors.workers import WorkerDiedError
from fedchain.learning.methods.fedavg import FedAvg
from fedchain.learning.round import OffChain, Round, Tensors
from fedchain.learning.worker.client_state import save_client
from fedchain.learning.worker.contribution import Contribution
from fedchain.learning.worker.learner import Learner
from fedchain.learning.worker.plan import LearnerPlan, Named
from tests.support.hanging import no_hang
from tests.support.learning.federation import secrets_of

CONFIG = LearningConfig(clients=4, hyperparameters={"local_steps": 2})


@dataclass(frozen=True, kw_only=True)
class Census(FedAvg):
    """Clients post how many clients they are told that there are."""

    def update(self, client: Client, round: Round) -> Tensors:
        return {**super().update(client, round), "examples": np.array([round.clients])}


def ask(client: int, round_number: int = 1, knowledge: bytes = b"") -> Question:
    return Question(client, "update", round_number, knowledge)


@pytest.fixture
def executor() -> Iterator[ProcessExecutor]:
    executor = ProcessExecutor(LearnerPlan(config=CONFIG), 2)
    yield executor
    executor.close()


def test_processes_compute_what_a_learner_computes(executor: ProcessExecutor) -> None:
    jobs = [executor.compute(ask(client)) for client in range(4)]
    found = [job.result() for job in reversed(jobs)][::-1]
    here = Learner(CONFIG)
    assert found == [here.contribute(client, "update", 1, b"") for client in range(4)]
    assert [job.result() for job in jobs] == found, "a result can be asked for again"
    planned = [here.planned_steps(client, "update", 1) for client in range(4)]
    assert [executor.planned_steps(client, "update", 1) for client in range(4)] == planned


@pytest.mark.parametrize("last", [5, 6])
def test_processes_that_were_started_end_where_the_system_refuses_another_one(
    last: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe, turns = os.pipe, itertools.count(1)

    def refusing() -> tuple[int, int]:
        if next(turns) == last:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return pipe()

    before = os.listdir("/proc/self/fd"), multiprocessing.active_children()
    monkeypatch.setattr(os, "pipe", refusing)
    with pytest.raises(OSError, match="Too many open files"):
        ProcessExecutor(LearnerPlan(config=CONFIG), 2)
    assert next(turns) > last, "a process of two has its pipes by then"
    assert (os.listdir("/proc/self/fd"), multiprocessing.active_children()) == before


def test_a_large_payload_is_left_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "LARGE_SIZE", 1)
    executor, expected = ProcessExecutor(LearnerPlan(config=CONFIG), 1), Learner(CONFIG).contribute(0, "update", 1, b"")
    try:
        found = executor.compute(ask(0)).result()
        assert isinstance(found, InFile)
        assert found.path.read_bytes() == expected.payload
        assert (found.made, found.hash) == (replace(expected, payload=b""), sha256(expected.payload))
    finally:
        executor.close()


def test_calls_that_wait_are_computed_together(tmp_path: Path) -> None:
    chosen = replace(CONFIG, method="fedavg", model="logistic")
    here = Learner(chosen)
    here.train_on("cpu", vectorize_clients=True)
    processes = ProcessExecutor(LearnerPlan(config=chosen, vectorize_clients=True), 2, together=6)
    executor = Remembering(processes, LastAnswers(tmp_path))
    try:
        jobs = [executor.ask(ask(client)) for client in range(4)]
        damaged = executor.ask(ask(1, 2, b"damaged"))
        again = executor.ask(ask(2))
        found = [job.result() for job in jobs]
        expected = [here.contribute_together(cohort, "update", 1, b"") for cohort in ((0, 2), (1, 3))]
        assert [found[0::2], found[1::2]] == expected, "each process has a cohort"
        assert again.result() == found[2]
        with pytest.raises(InvalidPayload):
            damaged.result()
    finally:
        executor.close()


def test_a_question_says_how_many_clients_there_are_now() -> None:
    chosen = replace(CONFIG, method=f"{__name__}:Census", model="logistic", hyperparameters={})
    rules, plan = Application(chosen), LearnerPlan(config=chosen)
    as_cohorts = ProcessExecutor(replace(plan, vectorize_clients=True), 1, together=2)
    for backend in (InlineExecutor(plan), ProcessExecutor(plan, 1), as_cohorts):
        jobs = [
            backend.compute(Question(client, "update", 1, b"", clients=count)) for client, count in enumerate((0, 7, 7))
        ]
        found = []
        for job in jobs:
            made = job.result()
            assert isinstance(made, Contribution)
            post = rules._read(OffChain("update", 1), b"", made.payload)
            found.append(int(post.payload["examples"][0]))
        backend.close()
        assert found == [4, 7, 7], "0 is as many as at the founding"


def test_questions_that_go_out_together_are_known(executor: ProcessExecutor) -> None:
    alone = executor.compute(ask(0))
    assert alone.together == (ask(0),)
    executor._together = 9
    jobs = [executor.compute(ask(client, 2)) for client in (0, 1, 2)]
    executor.flush()
    assert [len(job.together) for job in jobs] == [2, 1, 2]
    assert jobs[0].together == (ask(0, 2), ask(2, 2))


def test_an_error_travels_to_whom_it_belongs_and_the_process_goes_on(executor: ProcessExecutor) -> None:
    with pytest.raises(InvalidPayload):
        executor.compute(ask(0, 2, b"damaged")).result()
    with pytest.raises(KeyError) as caught:
        executor.compute(Question(0, "nonsense", 2, b"")).result()
    assert "Traceback" in "".join(caught.value.__notes__), "a fault of ours keeps its kind and shows where it was"
    assert isinstance(executor.compute(ask(0)).result(), Contribution)


def test_a_killed_process_is_noticed(executor: ProcessExecutor) -> None:
    victim = executor._processes[1].pid
    assert victim is not None
    os.kill(victim, signal.SIGKILL)
    with pytest.raises(WorkerDiedError, match="train-1 ended with exit code -9"):
        executor.compute(ask(1)).result()


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGHUP])
def test_what_a_terminal_sends_to_all_processes_is_the_parents_to_handle(
    sent: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    """A command takes SIGHUP as Ctrl-C, and each process that it trained with printed a traceback of that."""
    before = signal.signal(sent, signal.default_int_handler)
    executor = ProcessExecutor(LearnerPlan(config=CONFIG), 1)
    try:
        os.kill(executor._processes[0].pid or 0, sent)
        with no_hang():
            assert isinstance(executor.compute(ask(0)).result(), Contribution)
    finally:
        signal.signal(sent, before)
        executor.close()
    assert capfd.readouterr().err == ""


def test_a_process_that_the_machine_cannot_start_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(os, "fork", refuse)
    with pytest.raises(WorkerDiedError, match=r"^training process train-0 cannot be started: Resource temporarily"):
        ProcessExecutor(LearnerPlan(config=CONFIG), 1)


def test_a_process_that_is_killed_in_the_middle_of_its_reply_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    large = Contribution(b"x" * 2**19, 0, None, None)
    monkeypatch.setattr(Learner, "contribute", lambda *args, **options: large)
    executor = ProcessExecutor(LearnerPlan(config=CONFIG), 2)
    try:
        with no_hang():
            job = executor.compute(ask(1))
            wait([executor._replies[1].fileno()])  # the pipe has room for a part of it
            os.kill(executor._processes[1].pid or 0, signal.SIGKILL)
            with pytest.raises(WorkerDiedError, match="train-1 ended with exit code -9 in the middle of a reply"):
                job.result()
    finally:
        executor.close()


def test_a_process_whose_pipe_another_one_holds_is_missed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def leave_a_process(learner: Learner, client: int, *args: Any, **options: Any) -> None:
        holder = os.fork()
        if holder == 0:
            signal.pause()
        (tmp_path / "holder").write_text(str(holder))
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(Learner, "contribute", leave_a_process)
    executor = ProcessExecutor(LearnerPlan(config=CONFIG), 1)
    try:
        with no_hang(), pytest.raises(WorkerDiedError, match="train-0 ended with exit code -9"):
            executor.compute(ask(0)).result()
    finally:
        executor.close()
        os.kill(int((tmp_path / "holder").read_text()), signal.SIGKILL)


class Locked(NothingToPost):
    """A refusal that cannot be pickled."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


def test_what_cannot_be_pickled_is_answered_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def contribute(learner: Learner, client: int, *args: Any, **options: Any) -> Any:
        if client == 0:
            return Contribution(b"", 0, None, None, skipped=threading.Lock())  # type: ignore[arg-type]
        if client == 1:
            raise Locked("member 1 keeps its post")
        raise OSError(errno.ENOSPC, threading.Lock())

    monkeypatch.setattr(Learner, "contribute", contribute)
    executor = ProcessExecutor(LearnerPlan(config=CONFIG), 2)
    try:
        jobs = [executor.compute(ask(client)) for client in range(3)]
        with no_hang():
            with pytest.raises(OwnCodeFailed, match="peer 0: an answer cannot be sent"):
                jobs[0].result()
            refusal = jobs[1].result()
            assert (type(refusal), str(refusal)) == (NothingToPost, "member 1 keeps its post")
            with pytest.raises(OSError, match="lock"):
                jobs[2].result()
    finally:
        executor.close()


def test_clients_are_sticky_and_closing_ends_the_processes(executor: ProcessExecutor) -> None:
    os.kill(executor._processes[1].pid or 0, signal.SIGKILL)
    assert isinstance(executor.compute(ask(0)).result(), Contribution)
    assert isinstance(executor.compute(ask(2)).result(), Contribution)
    executor.close()
    assert not any(process.is_alive() for process in executor._processes)


@dataclass(frozen=True, kw_only=True)
class Deaf(FedAvg):
    """Clients turn off the signal that ends a process, as libraries do that want to end in order."""

    def update(self, client: Client, round: Round) -> Tensors:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        return super().update(client, round)


def test_a_process_in_which_own_code_turned_off_a_signal_ends_with_the_others() -> None:
    config = replace(CONFIG, method=f"{__name__}:Deaf")
    executor = ProcessExecutor(LearnerPlan(config=config), 1)
    with no_hang(30):
        executor.compute(ask(0)).result()
        executor.close()
    assert not executor._processes[0].is_alive()


def test_a_process_that_holds_one_client_computes_the_same() -> None:
    executor, here = ProcessExecutor(LearnerPlan(config=CONFIG), 1, clients_size_max=1), Learner(CONFIG)
    try:
        for number in (1, 2):
            jobs = [executor.compute(ask(client, number)) for client in range(4)]
            expected = [here.contribute(client, "update", number, b"") for client in range(4)]
            assert [job.result() for job in jobs] == expected
        assert len(list(executor.folder.iterdir())) == 4
    finally:
        executor.close()
    assert not executor.folder.exists()


def test_what_is_foreseen_is_the_answer_and_anything_else_leaves_no_trace(executor: ProcessExecutor) -> None:
    executor.foresee(ask(0))
    executor.foresee(ask(1, 2))
    settle(executor, [0, 1])
    found = [executor.compute(ask(client)).result() for client in (0, 1)]
    here = Learner(CONFIG)
    assert found == [here.contribute(client, "update", 1, b"") for client in (0, 1)]
    again = [executor.compute(ask(client, 2)).result() for client in (0, 1)]
    assert again == [here.contribute(client, "update", 2, b"") for client in (0, 1)], "they went on as if asked alone"
    assert executor.forecasts == Counts(4, ready=1, thrown_away=3)
    assert not executor._ahead


def test_a_client_that_is_put_back_has_no_forecast_of_before(executor: ProcessExecutor, tmp_path: Path) -> None:
    here = Learner(CONFIG)
    here.contribute(0, "update", 1, b"")
    save_client(here, 0, tmp_path / "state")
    executor.foresee(ask(0, 2))
    settle(executor, [0])
    executor.restore(0, tmp_path / "state").result()
    assert executor.compute(ask(0, 2)).result() == here.contribute(0, "update", 2, b"")


def settle(executor: ProcessExecutor, clients: Sequence[int]) -> None:
    """Wait until the clients' processes have made their forecasts: they fail with another, which they get after it."""
    for client in clients:
        executor.foresee(ask(client + 2, 1, b"damaged"))
        while min(executor._ahead) == -executor.forecasts.foreseen:
            executor.receive()


def test_a_large_knowledge_goes_when_its_forecast_has_ended(
    executor: ProcessExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "LARGE_SIZE", 1)
    executor.foresee(ask(0, 2, b"damaged"))
    executor.foresee(ask(0, 2, b"damaged, too"))
    assert len(list(executor.folder.glob("knowledge-*"))) == 2
    assert isinstance(executor.compute(ask(0)).result(), Contribution)
    executor.compute(ask(0, 2)).result()
    assert executor.forecasts.open == 0
    assert len(list(executor.folder.glob("knowledge-*"))) == 1, "the last one may be handed over again"


def test_nothing_is_foreseen_where_clients_are_computed_together() -> None:
    executor = ProcessExecutor(LearnerPlan(config=CONFIG, vectorize_clients=True), 1, together=2)
    executor.foresee(ask(0))
    assert executor.forecasts.foreseen == 0
    executor.close()


def test_a_phase_that_cannot_be_foreseen_is_not_tried_again() -> None:
    noisy = replace(CONFIG, hyperparameters={"local_steps": 2, "prototype_noise": 6.0})
    plan = LearnerPlan(config=noisy, secrets=Named(f"{secrets_of.__module__}:{secrets_of.__name__}"))
    executor = ProcessExecutor(plan, 1)
    executor.foresee(ask(0))
    while executor.forecasts.open:
        executor.receive()
    for client in (0, 1, 2):
        executor.foresee(ask(client))
    assert executor.forecasts == Counts(1, refused=1)
    executor.close()
