"""``check_executor``: the two executors pass, and what another one does wrong is named."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fedchain import testing
from fedchain.learning.amended import Amended
from fedchain.learning.executors.executor import Answer, Asked, Backend, InFile, Job, Question
from fedchain.learning.executors.inline import Done, InlineExecutor
from fedchain.learning.executors.processes import ProcessExecutor
from fedchain.learning.training.measured import Evaluation
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
        self, client: int, round_number: int, knowledge: bytes, *, evaluate_test: bool
    ) -> Job[Evaluation | None]:
        return Done(None)


class Mistaken(InlineExecutor):
    """Writes another client's model."""

    def save_model(self, client: int, path: Path) -> Job[None]:
        return super().save_model(client + 1, path)


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
