"""Executors that count what they are asked, or answer late."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fedchain.learning.amended import Amended
from fedchain.learning.executors.executor import Answer, Job, Question
from fedchain.learning.executors.inline import Done
from fedchain.learning.executors.last_answers import LastAnswers
from fedchain.learning.executors.remembering import Remembering
from fedchain.learning.training.measured import Evaluation
from fedchain.learning.worker.contribution import Contribution


class Counting:
    """A backend that answers with how often it was asked, or with what it is told to, when somebody waits."""

    def __init__(self) -> None:
        self.asked: list[Question] = []
        self.next: Contribution | Exception | None = None
        self.flushed = 0

    def planned_steps(self, client: int, phase: str, round_number: int, amended: Amended = ()) -> int:
        return 3

    def compute(self, question: Question, state: Path | None = None) -> "Late":
        self.asked.append(question)
        value = self.next or Contribution(b"%d" % len(self.asked), 1, None, None)
        self.next = None
        return Late(value, question)

    def evaluate_received(
        self, client: int, round_number: int, knowledge: bytes, *, evaluate_test: bool, amended: Amended = ()
    ) -> Job[Evaluation | None]:
        return Done(None)

    def save_model(self, client: int, path: Path) -> Job[None]:
        return Done(None)

    def restore(self, client: int, path: Path) -> Job[None]:
        raise AssertionError("nothing was written down")

    def flush(self) -> None:
        self.flushed += 1

    def close(self) -> None:
        self.asked.clear()


class Late(Done[Answer]):
    """A job that is done when somebody waits for it."""

    def __init__(self, value: Answer | Exception, question: Question) -> None:
        super().__init__(value, question)
        self.callbacks: list[Callable[[Job[Answer]], object]] = []

    def add_done_callback(self, call: Callable[[Job[Answer]], object]) -> None:
        self.callbacks.append(call)

    def result(self) -> Answer:
        callbacks, self.callbacks = self.callbacks, []
        for call in callbacks:
            call(self)
        return super().result()


@pytest.fixture
def backend() -> Counting:
    return Counting()


@pytest.fixture
def executor(backend: Counting, tmp_path: Path) -> Remembering:
    return Remembering(backend, LastAnswers(tmp_path))
