"""Checks for every executor: the built-in ones must pass them, too."""

import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NoReturn

from fedchain.crypto.signatures import PUBLIC_KEY_SIZE as KEY_SIZE
from fedchain.learning.amended import Amended
from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import InvalidPayload, NothingToPost, OwnCodeFailed
from fedchain.learning.executors.executor import Answer, Asked, Backend, InFile, Job, Question
from fedchain.learning.executors.inline import InlineExecutor
from fedchain.learning.executors.last_answers import LastAnswers
from fedchain.learning.executors.remembering import Remembering
from fedchain.learning.registry import agreed_name
from fedchain.learning.worker.plan import LearnerPlan
from fedchain.testing.federation import Federation

CLIENTS, REFUSING, FAULTY = 3, 1, 2
"""Clients of the task; the one that refuses in round 2, and the one whose method has a fault then."""

METHOD = f"""
from dataclasses import dataclass, replace

import numpy as np

from fedchain.learning.exceptions import NothingToPost
from fedchain.learning.methods.blade_fl import BladeFl


@dataclass(frozen=True, kw_only=True)
class Moody(BladeFl):
    amendable = frozenset({{"local_steps"}})

    def receive(self, client, round):
        known = None if round.knowledge is None else {{
            name: round.knowledge[name] / np.float32(self.local_steps) for name in round.knowledge
        }}
        BladeFl.receive(self, client, replace(round, knowledge=known))

    def update(self, client, round):
        if (client.index, round.number) == ({REFUSING}, 2):
            raise NothingToPost("member {REFUSING} keeps its post")
        if (client.index, round.number) == ({FAULTY}, 2):
            raise RuntimeError("boom")
        told = np.float32(round.clients + round.me[0] / 256)
        return {{name: value + told for name, value in BladeFl.update(self, client, round).items()}}
"""

MEMBERS, NEW_KEY = tuple(bytes([place]) * KEY_SIZE for place in range(CLIENTS)), b"\xff" * KEY_SIZE
"""Keys of the members at the founding, and another one that a member has later."""

AMENDED: Amended = (("local_steps", "3"),)
"""Hyper-parameters that members have changed since the founding."""

Build = Callable[[LearnerPlan], Backend]


def check_executor(build: Build) -> None:
    """Ask an executor's backend, and raise AssertionError for the first promise of its interface that it breaks.

    Answers are those of a learner in this process, in whatever order clients are asked and waited for. With
    `Remembering` around the backend, the same question has the same answer again. A refusal is an answer. A fault of a
    user's own method is one line with its place, and leaves the client as it was. A client goes on from a state that
    was written down, at a refusal as well. Requests of one client may wait for each other. A question's amendments,
    number of members and key hold for its answer, and amendments for planned steps and a measurement. A wait for one
    job tells of all that are done. Planned steps, measurements and the model that is written are a learner's. Closing
    ends all processes.

    Threads that are left are not checked, and a race between learners of one process shows in some calls only.

    Args:
        build: builds the backend of a plan that was written as bytes and read again; called several times.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "own_method.py"
        path.write_text(METHOD, encoding="utf-8")
        suite = _Suite(build, Path(folder), agreed_name(f"{path}:Moody"))
        suite.check_order()
        suite.check_callbacks()
        suite.check_repeats()
        suite.check_faults()
        suite.check_states()
        suite.check_measurements()
        suite.check_amended()


class _Suite:
    """The checks of one executor."""

    def __init__(self, build: Build, folder: Path, method: str) -> None:
        self._build, self._folder = build, folder
        self._config = LearningConfig(clients=CLIENTS, method=method, hyperparameters={"local_steps": 2})
        self._plan = LearnerPlan(config=self._config, members=MEMBERS)
        here = InlineExecutor(self._plan)
        rounds = {0: (1, 2), REFUSING: (1, 2, 3), FAULTY: (1, 3)}
        self._expected = {
            (client, number): here.compute(_question(client, number)).result()
            for client, numbers in rounds.items()
            for number in numbers
        }

    def check_order(self) -> None:
        """Clients are asked in either order, and waited for in the other one; a client's rounds come in order."""
        for clients in (range(CLIENTS), reversed(range(CLIENTS))):
            with self._open() as executor:
                jobs = {client: executor.compute(_question(client, 1)) for client in clients}
                called: list[int] = []
                for client, job in jobs.items():
                    job.add_done_callback(partial(_note, called, client, threading.get_ident()))
                for client in reversed(jobs):
                    self._compare(client, 1, jobs[client].result())
                    if jobs[client].result() != self._expected[client, 1]:
                        _fail("a job gives another result when it is asked for it again")
                if sorted(called) != list(range(CLIENTS)):
                    _fail(
                        "a job does not tell once, in the thread that waits and before its wait ends, that it is done"
                    )
                for client, job in jobs.items():
                    if _question(client, 1) not in getattr(job, "together", ()):
                        _fail("together of a job that is done does not hold the question itself")

    def check_callbacks(self) -> None:
        """A wait tells of all jobs that are done, a job that is done tells at once, and errors reach who waits."""
        with self._open() as executor:
            earlier, later = executor.compute(_question(0, 1)), executor.compute(_question(0, 2))
            called: list[int] = []
            earlier.add_done_callback(partial(_note, called, 0, threading.get_ident()))
            later.result()  # a client's requests are done in their order
            if not called:
                _fail("a wait for one job does not tell those of others that are done")
            earlier.add_done_callback(partial(_note, called, 0, threading.get_ident()))
            if len(called) != 2:
                _fail("a job that is done already does not tell at once")
            try:
                job = executor.compute(_question(REFUSING, 1))
                job.add_done_callback(_raise)
                job.result()
            except _CallbackFailed:
                pass
            else:
                _fail("an error of a callback is not raised where the job is waited for")

    def check_amended(self) -> None:
        """An answer follows the amendments, number of members and key of its question, and the next one its own."""
        changed = replace(_question(0, 1), amended=AMENDED, clients=CLIENTS - 1, key=NEW_KEY)
        settled = replace(_question(0, 2), key=NEW_KEY)
        here = InlineExecutor(self._plan)
        expected = [here.compute(question).result() for question in (changed, settled)]
        with self._open() as executor:
            for question, answer in zip((changed, settled), expected, strict=True):
                if repr(executor.compute(question).result()) != repr(answer):
                    _fail("an answer does not follow its question's amended, clients and key")
            for amended in (AMENDED, ()):
                steps = here.planned_steps(0, "update", 1, amended)
                if executor.planned_steps(0, "update", 1, amended) != steps:
                    _fail("planned_steps does not follow the hyper-parameters that were amended")
            federation = Federation(self._config)
            federation.play()
            for amended in (AMENDED, ()):
                measured = [
                    backend.evaluate_received(0, 2, federation.knowledge, evaluate_test=True, amended=amended).result()
                    for backend in (here, executor)
                ]
                if repr(measured[0]) != repr(measured[1]):
                    _fail("evaluate_received does not follow the hyper-parameters that were amended")

    def check_repeats(self) -> None:
        """The same question again, while it is answered, at once, and after another client was asked."""
        folder = self._folder / "answers"
        folder.mkdir()
        with self._open() as backend:
            executor = Remembering(backend, LastAnswers(folder))
            first, meanwhile = executor.ask(_question(0, 1)), executor.ask(_question(0, 1))
            executor.ask(_question(REFUSING, 1)).result()
            for job in (first, meanwhile, executor.ask(_question(0, 1))):
                self._compare(0, 1, job.result())
            for _ in range(2):
                self._compare(REFUSING, 2, executor.ask(_question(REFUSING, 2)).result())
            self._compare(REFUSING, 3, executor.ask(_question(REFUSING, 3)).result())

    def check_faults(self) -> None:
        """A fault in the user's own code, and damaged knowledge: the client is as it was."""
        with self._open() as executor:
            self._compare(0, 1, executor.compute(_question(0, 1)).result())
            self._compare(FAULTY, 1, executor.compute(_question(FAULTY, 1)).result())
            faulty = self._begin(executor, _question(FAULTY, 2))
            try:
                faulty.result()
            except OwnCodeFailed as error:
                if not re.fullmatch(rf"peer {FAULTY}: RuntimeError: boom \(.*own_method.py, line \d+\)", str(error)):
                    _fail(f"a fault of a user's own method is not one line with its place: {error}")
            except Exception as error:
                _fail(f"a fault of a user's own method is {type(error).__name__}, not OwnCodeFailed")
            else:
                _fail("a fault of a user's own method is not raised")
            damaged = self._begin(executor, Question(FAULTY, "update", 3, b"damaged"))
            try:
                damaged.result()
            except InvalidPayload:
                pass
            except Exception as error:
                _fail(f"damaged knowledge is {type(error).__name__}, not InvalidPayload")
            else:
                _fail("damaged knowledge is not refused")
            self._compare(FAULTY, 3, executor.compute(_question(FAULTY, 3)).result())
            self._compare(0, 2, executor.compute(_question(0, 2)).result())

    def check_states(self) -> None:
        """A client that is written down goes on in another executor."""
        state = self._folder / "state"
        with self._open() as executor:
            executor.compute(_question(0, 1), state).result()
            if not state.exists():
                _fail("the client is not written down when its answer is given")
        with self._open() as executor:
            executor.restore(0, state)
            self._compare(0, 2, executor.compute(_question(0, 2)).result())
        state = self._folder / "refused"
        with self._open() as executor:
            executor.compute(_question(REFUSING, 1))
            self._compare(REFUSING, 2, executor.compute(_question(REFUSING, 2), state).result())
            if not state.exists():
                _fail("the client is not written down when it refuses")
        with self._open() as executor:
            executor.restore(REFUSING, state)
            self._compare(REFUSING, 3, executor.compute(_question(REFUSING, 3)).result())

    def check_measurements(self) -> None:
        """Planned steps, measurements and the model that is written; all are asked for before one is waited for."""
        federation = Federation(self._config)
        federation.play()
        here = self._measure(InlineExecutor(self._plan), "here", federation.knowledge)
        with self._open() as executor:
            found = self._measure(executor, "found", federation.knowledge)
        for name, value in here.items():
            if repr(found[name]) != repr(value):
                _fail(f"{name} differs from that of a learner in this process")

    def _begin(self, executor: Backend, question: Question) -> Asked:
        """Ask what cannot be answered. The job says so when it is waited for."""
        try:
            return executor.compute(question)
        except Exception as error:
            _fail(f"compute raises {type(error).__name__} itself; its job has to")

    def _measure(self, executor: Backend, name: str, knowledge: bytes) -> dict[str, object]:
        path = self._folder / f"{name}.safetensors"
        trained = executor.compute(Question(0, "update", 1, b"", evaluate_test=True))
        received = executor.evaluate_received(0, 2, knowledge, evaluate_test=True)
        saved = executor.save_model(0, path)
        after = executor.compute(Question(0, "update", 2, knowledge))
        saved.result()
        return {
            "planned_steps": [executor.planned_steps(client, "update", 1) for client in range(CLIENTS)],
            "evaluate_test": trained.result(),
            "evaluate_received": received.result(),
            "save_model": path.read_bytes(),
            "a later request of the same client": after.result(),
        }

    def _compare(self, client: int, number: int, found: Answer | InFile) -> None:
        expected = self._expected[client, number]
        if repr(found) != repr(expected):  # refusals are equal if they say the same, and NaN is not itself
            kind = "a refusal is not answered" if isinstance(expected, NothingToPost) else "an answer differs"
            _fail(f"{kind}: client {client} in round {number}; it depends on the order, the process or the past")

    @contextmanager
    def _open(self) -> Iterator[Backend]:
        before = _children()
        executor = self._build(LearnerPlan.decode(self._plan.encode()))
        try:
            yield executor
        finally:
            executor.close()
        if left := _children() - before:
            _fail(f"closing leaves processes: {', '.join(map(str, sorted(left)))}")


def _question(client: int, number: int) -> Question:
    return Question(client, "update", number, b"")


def _note(called: list[int], client: int, waiting: int, job: Job[Answer | InFile]) -> None:
    if threading.get_ident() == waiting:
        called.append(client)


class _CallbackFailed(Exception):
    """A callback's error."""


def _raise(job: Job[Answer | InFile]) -> NoReturn:
    raise _CallbackFailed


def _children() -> set[int]:
    """Processes that this one has started and that are there."""
    found = set[int]()
    for task in Path(f"/proc/{os.getpid()}/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended meanwhile
            found.update(map(int, task.read_text().split()))
    return found


def _fail(reason: str) -> NoReturn:
    raise AssertionError(reason)
