"""Training that is remembered: the first answer to a question is the answer, however often it is asked.

A restarted peer asks again, and an interrupted run is repeated from its start. A second computation would begin with a
client that has gone on since; on other hardware, or in a batch, it might differ by rounding.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from fedchain.learning.amended import Amended
from fedchain.learning.executors.executor import Answer, Asked, Backend, Foreseeing, InFile, Job, Question, QuestionId
from fedchain.learning.training.measured import Evaluation

Kept = Callable[[], Answer]
"""Reads an answer that is kept."""


class Answers(Protocol):
    """Where answers are kept. Each client's questions are given to it in the order in which they are asked."""

    def recall(self, question: QuestionId) -> Kept | None:
        """The answer to a question, if it is kept."""

    def begin(self, question: QuestionId) -> Path | None:
        """A question is about to be answered. Return where its client is to be written down then; None: nowhere."""

    def is_next_kept(self, client: int) -> bool:
        """Whether the answer to a client's next question is kept, whatever it is asked."""

    def keep(self, question: QuestionId, answer: Answer | InFile, together: Sequence[QuestionId]) -> Kept:
        """Keep a first answer, and return how it is read.

        Args:
            question: what was asked.
            answer: what came of it; its client has been written down where `begin` said.
            together: the questions whose answers show in each other's rounding, this one among them.
        """

    def left(self, client: int) -> Path | None:
        """Where a client was written down that has to be put back before anything is computed; None: it has not."""


class Remembering:
    """An :class:`Executor` that keeps the first answer to each question.

    Args:
        backend: computes what is not kept. It is closed with this one.
        answers: keeps what is computed.
    """

    def __init__(self, backend: Backend, answers: Answers) -> None:
        self._backend, self._answers = backend, answers
        self._under_way: dict[QuestionId, Remembered] = {}

    def planned_steps(self, client: int, phase: str, round_number: int, amended: Amended = ()) -> int:
        """See :class:`Clients`."""
        return self._backend.planned_steps(client, phase, round_number, amended)

    def ask(self, question: Question) -> Job[Answer]:
        """See :class:`Executor`. Asked again, it gives the same answer."""
        key = question.id
        if key in self._under_way:
            return self._under_way[key]
        kept = self._answers.recall(key)
        if kept is not None:
            return Remembered(self._backend, kept=kept)
        self._restore(question.client)
        work = self._backend.compute(question, self._answers.begin(key))
        job = self._under_way[key] = Remembered(self._backend, work)
        work.add_done_callback(lambda _: self._keep(key, work))
        return job

    def foresee(self, question: Question) -> None:
        """See :class:`Executor`. Nothing is computed ahead for a client whose answers are still read from a record."""
        if isinstance(self._backend, Foreseeing) and not self._answers.is_next_kept(question.client):
            self._restore(question.client)
            self._backend.foresee(question)

    def evaluate_received(
        self, client: int, round_number: int, knowledge: bytes, *, evaluate_test: bool, amended: Amended = ()
    ) -> Job[Evaluation | None]:
        """See :class:`Clients`."""
        self._restore(client)
        return self._backend.evaluate_received(
            client, round_number, knowledge, evaluate_test=evaluate_test, amended=amended
        )

    def save_model(self, client: int, path: Path) -> Job[None]:
        """See :class:`Clients`."""
        self._restore(client)
        return self._backend.save_model(client, path)

    def close(self) -> None:
        """See :class:`Clients`."""
        self._backend.close()

    def _restore(self, client: int) -> None:
        """Have a client put back to what it was, before anything is computed for it."""
        path = self._answers.left(client)
        if path is not None:
            self._backend.restore(client, path).add_done_callback(lambda job: job.result())

    def _keep(self, key: QuestionId, work: Asked) -> None:
        """Keep what came of a question. A fault is no answer: whoever waits for the job gets it, and may ask again."""
        job = self._under_way.pop(key)
        try:
            answer = work.result()
        except Exception:
            return
        job.keep(self._answers.keep(key, answer, [question.id for question in work.together]))


class Remembered:
    """A job whose result is kept, or will be.

    Args:
        backend: computes it.
        work: its computation; None: it is done.
        kept: reads the answer; None: it is not there yet.
    """

    def __init__(self, backend: Backend, work: Asked | None = None, kept: Kept | None = None) -> None:
        self._backend, self._work, self._kept = backend, work, kept
        self._answer: Answer | None = None

    def result(self) -> Answer:
        """See :class:`Job`. Held-back questions go out as with any wait, so a repeated run holds back the same ones."""
        self._backend.flush()
        if self._work is not None:
            self._work.result()
        if self._answer is None:
            assert self._kept is not None, "what has been computed is kept"
            self._answer, self._kept = self._kept(), None
        return self._answer

    def add_done_callback(self, call: Callable[[Job[Answer]], object]) -> None:
        """See :class:`Job`."""
        if self._work is None:
            call(self)
        else:
            self._work.add_done_callback(lambda work: call(self))

    def keep(self, kept: Kept) -> None:
        """The answer is there, and read by ``kept`` when somebody wants it."""
        self._work, self._kept = None, kept
