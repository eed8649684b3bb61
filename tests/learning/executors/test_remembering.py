"""The first answer to a question is the answer: while it is computed, when it is there, and after a start anew."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fedchain.learning.exceptions import DecryptionRefused, InvalidPayload
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

    def planned_steps(self, client: int, phase: str, round_number: int) -> int:
        return 3

    def compute(self, question: Question, state: Path | None = None) -> "Late":
        self.asked.append(question)
        value = self.next or Contribution(b"%d" % len(self.asked), 1, None, None)
        self.next = None
        return Late(value, question)

    def evaluate_received(
        self, client: int, round_number: int, knowledge: bytes, *, evaluate_test: bool
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


QUESTION = Question(1, "update", 1, b"known")


def test_the_first_answer_is_the_answer(executor: Remembering, backend: Counting) -> None:
    first, meanwhile = executor.ask(QUESTION), executor.ask(QUESTION)
    assert first.result() == meanwhile.result() == executor.ask(QUESTION).result()
    assert first.result() is first.result()
    assert len(backend.asked) == 1


def test_another_client_knowledge_or_measurement_is_another_question(executor: Remembering, backend: Counting) -> None:
    questions = [
        QUESTION,
        Question(1, "update", 1, b"other"),
        Question(1, "update", 1, b"known", evaluate_test=True),
        Question(2, "update", 1, b"known"),
        Question(1, "reveal", 1, b"known"),
        Question(1, "update", 2, b"known"),
    ]
    jobs = [executor.ask(question) for question in questions]
    assert len({repr(job.result()) for job in jobs}) == len(questions)
    assert backend.asked == questions


def test_an_answer_that_nobody_waited_for_yet_outlives_the_next_one(executor: Remembering) -> None:
    first, second = executor.ask(QUESTION), executor.ask(Question(1, "update", 2, b"known"))
    later = second.result()
    assert first.result() != later
    assert second.result() == later


def test_a_refusal_is_an_answer(executor: Remembering, backend: Counting) -> None:
    refusal = backend.next = DecryptionRefused("member 1")
    assert executor.ask(QUESTION).result() is executor.ask(QUESTION).result() is refusal
    assert len(backend.asked) == 1


def test_a_fault_is_no_answer_and_the_question_can_be_asked_again(executor: Remembering, backend: Counting) -> None:
    backend.next = InvalidPayload("damaged")
    job = executor.ask(QUESTION)
    for _ in range(2):
        with pytest.raises(InvalidPayload):
            job.result()
    assert isinstance(executor.ask(QUESTION).result(), Contribution)
    assert len(backend.asked) == 2


def test_who_waits_for_a_remembered_answer_lets_others_begin(executor: Remembering, backend: Counting) -> None:
    executor.ask(QUESTION).result()
    before = backend.flushed
    executor.ask(QUESTION).result()
    assert backend.flushed == before + 1


def test_a_callback_comes_with_the_answer(executor: Remembering) -> None:
    told: list[Answer] = []
    job = executor.ask(QUESTION)
    job.add_done_callback(lambda done: told.append(done.result()))
    assert told == []
    answer = job.result()
    job.add_done_callback(lambda done: told.append(done.result()))
    assert told == [answer, answer]
