"""``check_executor``: the two executors pass, and what another one does wrong is named."""

import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedchain import testing
from fedchain.learning.amended import Amended
from fedchain.learning.exceptions import OwnCodeFailed, told
from fedchain.learning.executors.ahead import Forecasts
from fedchain.learning.executors.executor import Answer, Asked, Backend, InFile, Job, Question
from fedchain.learning.executors.inline import Done, InlineExecutor
from fedchain.learning.executors.processes import ProcessExecutor
from fedchain.learning.training.measured import Evaluation
from fedchain.learning.worker.building import build_learner
from fedchain.learning.worker.contribution import Contribution
from fedchain.learning.worker.plan import LearnerPlan


def test_training_in_this_process_passes() -> None:
    testing.check_executor(InlineExecutor)


def test_worker_processes_pass() -> None:
    testing.check_executor(lambda plan: ProcessExecutor(plan, 2))


@pytest.mark.slow
def test_processes_that_wait_for_more_questions_pass() -> None:
    testing.check_executor(lambda plan: ProcessExecutor(plan, 2, together=5))


class Confused(InlineExecutor):
    """Always asks the client that was asked first."""

    first: int | None = None

    def compute(self, question: Question, state: Path | None = None) -> Asked:
        self.first = question.client if self.first is None else self.first
        return super().compute(Question(self.first, question.phase, question.round, question.knowledge), state)


class Silent(InlineExecutor):
    """Gives an empty contribution where there was a fault."""

    def compute(self, question: Question, state: Path | None = None) -> Asked:
        job = super().compute(question, state)
        try:
            return Done[Answer | InFile](job.result(), question)
        except Exception:
            return Done[Answer](Contribution(b"", 0, None, None), question)


class Stateless(InlineExecutor):
    """Writes no client down."""

    def compute(self, question: Question, state: Path | None = None) -> Asked:
        return super().compute(question)


class Leaving(InlineExecutor):
    """Leaves a process behind, until the test ends it."""

    left: list["subprocess.Popen[bytes]"] = []  # noqa: RUF012 - of all

    def __init__(self, plan: LearnerPlan) -> None:
        super().__init__(plan)
        self.left.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))


class Untold(InlineExecutor):
    """Writes a client down where it contributes, and not where it refuses."""

    def compute(self, question: Question, state: Path | None = None) -> Asked:
        return super().compute(question, None if question.round > 1 else state)


class Idle(InlineExecutor):
    """Plans no steps."""

    def planned_steps(self, client: int, phase: str, round_number: int, amended: Amended = ()) -> int:
        return 0


class Unmeasured(InlineExecutor):
    """Measures nothing on the whole test set."""

    def compute(self, question: Question, state: Path | None = None) -> Asked:
        return super().compute(replace(question, evaluate_test=False), state)


class Blind(InlineExecutor):
    """Measures no knowledge."""

    def evaluate_received(
        self, client: int, round_number: int, knowledge: bytes, *, evaluate_test: bool, amended: Amended = ()
    ) -> Job[Evaluation | None]:
        return Done(None)


class MeasuresAsFounded(InlineExecutor):
    """Measures with the hyper-parameters of the founding."""

    def evaluate_received(
        self, client: int, round_number: int, knowledge: bytes, *, evaluate_test: bool, amended: Amended = ()
    ) -> Job[Evaluation | None]:
        return super().evaluate_received(client, round_number, knowledge, evaluate_test=evaluate_test)


class Mistaken(InlineExecutor):
    """Writes another client's model."""

    def save_model(self, client: int, path: Path) -> Job[None]:
        return super().save_model(client + 1, path)


class Deaf(InlineExecutor):
    """Answers as if nothing of one kind had been said of the federation."""

    unheard: dict[str, Any] = {}  # noqa: RUF012 - of the class

    def compute(self, question: Question, state: Path | None = None) -> Asked:
        return super().compute(replace(question, **self.unheard), state)


class DeafToAmendments(Deaf):
    unheard = {"amended": ()}  # noqa: RUF012


class DeafToMembers(Deaf):
    unheard = {"clients": 0}  # noqa: RUF012


class DeafToKeys(Deaf):
    unheard = {"key": b""}  # noqa: RUF012


class PlansAsFounded(InlineExecutor):
    """Plans the steps of the founding."""

    def planned_steps(self, client: int, phase: str, round_number: int, amended: Amended = ()) -> int:
        return super().planned_steps(client, phase, round_number)


class Lonely(InlineExecutor):
    """Says of no question that it was computed together with any, itself included."""

    def compute(self, question: Question, state: Path | None = None) -> Asked:
        return Done[Answer | InFile](super().compute(question, state).result())


class Hasty(InlineExecutor):
    """Raises where it is asked, and not where somebody waits."""

    def compute(self, question: Question, state: Path | None = None) -> Asked:
        job = super().compute(question, state)
        job.result()
        return job


class Foreign(InlineExecutor):
    """Tells an error as another process had it, but for faults of the user's own code."""

    def __init__(self, plan: LearnerPlan) -> None:
        super().__init__(
            plan,
            lambda error, name: (
                found if isinstance(found := told(error, name), OwnCodeFailed) else RuntimeError(repr(error))
            ),
        )


class Restarting(InlineExecutor):
    """After a fault it begins anew: the client at fault is as it was, and all others have forgotten everything."""

    def compute(self, question: Question, state: Path | None = None) -> Asked:
        before = self.learner.checkpoint(question.client)
        job = super().compute(question, state)
        try:
            job.result()
        except Exception:
            self.learner = build_learner(self.learner.plan)
            self.learner.restore(question.client, before)
            self.ahead = Forecasts(self.learner)
        return job


class Waiting:
    """A job that is done, and tells so in a way of its own when it is waited for."""

    def __init__(self, job: Asked, executor: "Telling") -> None:
        self.job, self.executor, self.together = job, executor, job.together
        self.calls: list[Callable[[Any], object]] = []
        self.is_waited_for = False

    def result(self) -> Answer | InFile:
        self.executor.tell(self)
        return self.job.result()

    def tell(self) -> None:
        self.is_waited_for, calls, self.calls = True, self.calls, []
        for call in calls:
            call(self)

    def add_done_callback(self, call: Callable[[Any], object]) -> None:
        if self.is_waited_for:
            self.executor.tell_at_once(self, call)
        else:
            self.calls.append(call)


class Telling(InlineExecutor):
    """Tells of jobs as promised."""

    def __init__(self, plan: LearnerPlan) -> None:
        super().__init__(plan)
        self.jobs: list[Waiting] = []

    def compute(self, question: Question, state: Path | None = None) -> Asked:
        self.jobs.append(job := Waiting(super().compute(question, state), self))
        return job

    def tell(self, waited_for: Waiting) -> None:
        for job in list(self.jobs):
            job.tell()

    def tell_at_once(self, job: Waiting, call: Callable[[Any], object]) -> None:
        call(job)


class TellsOfOne(Telling):
    """A wait tells of the job that is waited for, and of no other."""

    def tell(self, waited_for: Waiting) -> None:
        waited_for.tell()


class TellsNobodyLate(Telling):
    """Tells nobody who asks when a job is done."""

    def tell_at_once(self, job: Waiting, call: Callable[[Any], object]) -> None:
        pass


class KeepsErrors(Telling):
    """Keeps the errors of callbacks to itself."""

    def tell(self, waited_for: Waiting) -> None:
        with suppress(Exception):
            super().tell(waited_for)


class TellsElsewhere(Telling):
    """Tells in another thread, as `concurrent.futures` does, and in time."""

    def tell(self, waited_for: Waiting) -> None:
        thread = threading.Thread(target=super().tell, args=(waited_for,))
        thread.start()
        thread.join()


def test_jobs_that_tell_when_they_are_waited_for_pass() -> None:
    testing.check_executor(Telling)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Confused, "an answer differs: client"),
        (Silent, "a fault of a user's own method is not raised"),
        (Stateless, "the client is not written down when its answer is given"),
        (Untold, "the client is not written down when it refuses"),
        (Idle, "planned_steps differs"),
        (Unmeasured, "evaluate_test differs"),
        (Blind, "evaluate_received differs"),
        (Mistaken, "save_model differs"),
        (Leaving, "closing leaves processes: "),
        (DeafToAmendments, "an answer does not follow its question's amended, clients and key"),
        (DeafToMembers, "an answer does not follow its question's amended, clients and key"),
        (DeafToKeys, "an answer does not follow its question's amended, clients and key"),
        (MeasuresAsFounded, "evaluate_received does not follow the hyper-parameters that were amended"),
        (PlansAsFounded, "planned_steps does not follow the hyper-parameters that were amended"),
        (Lonely, "together of a job that is done does not hold the question itself"),
        (Hasty, "compute raises OwnCodeFailed itself; its job has to"),
        (Foreign, "damaged knowledge is RuntimeError, not InvalidPayload"),
        (Restarting, "an answer differs: client 0 in round 2"),
        (TellsOfOne, "a wait for one job does not tell those of others that are done"),
        (TellsNobodyLate, "a job that is done already does not tell at once"),
        (KeepsErrors, "an error of a callback is not raised where the job is waited for"),
        (
            TellsElsewhere,
            "a job does not tell once, in the thread that waits and before its wait ends, that it is done",
        ),
    ],
)
def test_a_promise_that_is_broken_is_named(kind: type[Backend], reason: str) -> None:
    try:
        with pytest.raises(AssertionError, match=reason):
            testing.check_executor(kind)
    finally:
        for process in Leaving.left:
            process.communicate()
        Leaving.left.clear()
