"""The first answer to a question is the answer: while it is computed, when it is there, and after a start anew."""

from pathlib import Path

import pytest

from fedchain.learning.exceptions import DecryptionRefused, InvalidPayload
from fedchain.learning.executors.executor import Answer, Job, Question
from fedchain.learning.executors.inline import Done
from fedchain.learning.executors.last_answers import LastAnswers
from fedchain.learning.executors.outcomes import Counts
from fedchain.learning.executors.remembering import Remembering
from fedchain.learning.worker.contribution import Contribution
from tests.support.learning.counting import Counting
from tests.support.learning.counting import backend as backend
from tests.support.learning.counting import executor as executor

QUESTION = Question(1, "update", 1, b"known")


def test_the_first_answer_is_the_answer(executor: Remembering, backend: Counting) -> None:
    first, meanwhile = executor.ask(QUESTION), executor.ask(QUESTION)
    assert first.result() == meanwhile.result() == executor.ask(QUESTION).result()
    assert first.result() is first.result()
    assert len(backend.asked) == 1


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


class Foretelling(Counting):
    """Notes what it is to compute ahead, and what is put back."""

    def __init__(self) -> None:
        super().__init__()
        self.forecasts, self.noted = Counts(), list[object]()

    def foresee(self, question: Question) -> None:
        self.noted.append(question)

    def restore(self, client: int, path: Path) -> Job[None]:
        self.noted.append(path)
        return Done(None)


class Recorded(LastAnswers):
    """The next answer of client 1 is kept, and client 2 has to be put back first."""

    def is_next_kept(self, client: int) -> bool:
        return client == 1

    def left(self, client: int) -> Path | None:
        return Path("state") if client == 2 else None


def test_a_client_is_put_back_before_it_is_foreseen_and_not_foreseen_where_its_answer_is_kept(tmp_path: Path) -> None:
    backend = Foretelling()
    executor = Remembering(backend, Recorded(tmp_path))
    for client in (0, 1, 2):
        executor.foresee(Question(client, "update", 2, b"known"))
    assert backend.noted == [Question(0, "update", 2, b"known"), Path("state"), Question(2, "update", 2, b"known")]
    assert not LastAnswers(tmp_path).is_next_kept(1)


def test_a_client_is_put_back_before_anything_is_asked_of_it(tmp_path: Path) -> None:
    backend = Foretelling()
    executor = Remembering(backend, Recorded(tmp_path))
    executor.ask(Question(2, "update", 1, b"known"))
    assert backend.noted == [Path("state")]
    executor.save_model(2, tmp_path / "model")
    assert backend.noted == [Path("state")] * 2
    executor.evaluate_received(2, 1, b"known", evaluate_test=False)
    assert backend.noted == [Path("state")] * 3


def test_a_backend_that_foresees_nothing_is_told_nothing(executor: Remembering, backend: Counting) -> None:
    executor.foresee(QUESTION)
    assert backend.asked == []
