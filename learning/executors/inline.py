"""Training in this process, one question at a time: no process to start, and nothing to wait for."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Generic

from fedchain.learning.amended import Amended
from fedchain.learning.exceptions import NothingToPost, told
from fedchain.learning.executors.ahead import Forecasts
from fedchain.learning.executors.executor import Answer, Asked, Job, Question, Result
from fedchain.learning.training.measured import Evaluation
from fedchain.learning.worker.building import build_learner
from fedchain.learning.worker.client_state import restore_client, save_client
from fedchain.learning.worker.learner import Learner
from fedchain.learning.worker.plan import LearnerPlan


class Done(Generic[Result]):
    """A job whose result is there.

    Args:
        value: the result, or the error that it raises.
        question: what was asked, if it is an answer.
    """

    def __init__(self, value: Result | Exception, question: Question | None = None) -> None:
        self._value = value
        self._question = question

    def result(self) -> Result:
        """See :class:`Job`. A refusal is a result."""
        if isinstance(self._value, Exception) and not isinstance(self._value, NothingToPost):
            raise self._value
        return self._value  # type: ignore[return-value]

    def add_done_callback(self, call: Callable[[Job[Result]], object]) -> None:
        """See :class:`Job`."""
        call(self)

    @property
    def together(self) -> Sequence[Question]:
        """See :class:`Asked`."""
        return () if self._question is None else (self._question,)


class InlineExecutor:
    """A :class:`Backend` with a plan's learner in this process.

    Args:
        plan: of the learner.
        report: (error, client's name) -> the error that whoever waits for a job gets.
    """

    def __init__(self, plan: LearnerPlan, report: Callable[[Exception, str], Exception] = told) -> None:
        self.learner, self._report = build_learner(plan), report
        self.ahead = Forecasts(self.learner)
        """Forecasts of this process; its owner has it make them while nothing is asked."""

    def planned_steps(self, client: int, phase: str, round_number: int, amended: Amended = ()) -> int:
        """See :class:`Clients`."""
        self.learner.amend(amended)
        return self.learner.planned_steps(client, phase, round_number)

    def compute(self, question: Question, state: Path | None = None) -> Asked:
        """See :class:`Backend`."""
        work = partial(_answer, self.learner, self.ahead, question, state)
        return Done(self._attempt(question.client, work), question)

    def evaluate_received(
        self, client: int, round_number: int, knowledge: bytes, *, evaluate_test: bool, amended: Amended = ()
    ) -> Job[Evaluation | None]:
        """See :class:`Clients`."""

        def measure() -> Evaluation | None:
            self.learner.amend(amended)
            return self.learner.evaluate_received(client, round_number, knowledge, evaluate_test=evaluate_test)

        return Done(self._attempt(client, measure))

    def save_model(self, client: int, path: Path) -> Job[None]:
        """See :class:`Clients`."""
        return Done(self._attempt(client, lambda: self.learner.save_model(client, path)))

    def restore(self, client: int, path: Path) -> Job[None]:
        """See :class:`Backend`."""
        self.ahead.drop(client)
        return Done(self._attempt(client, lambda: restore_client(self.learner, client, path)))

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """There is no process to end."""

    def _attempt(self, client: int, work: Callable[[], Result]) -> Result | Exception:
        try:
            return work()
        except Exception as error:  # whoever waits for the job gets it
            return self._report(error, f"peer {client}")


def _answer(learner: Learner, forecasts: Forecasts, question: Question, state: Path | None) -> Answer:
    return answer(learner, question, state, forecasts.take(question))


def answer(learner: Learner, question: Question, state: Path | None, made: Answer | Exception | None = None) -> Answer:
    """Have a learner answer a question, and leave the client in a file if one is given.

    Args:
        learner: serves the client.
        question: what is asked.
        state: the file; None: the client is not written down.
        made: the answer or the error, if the learner has computed it already.
    """
    try:
        if isinstance(made, Exception):
            raise made
        if made is not None:
            return made
        learner.amend(question.amended)
        learner.take_key(question.client, question.key)
        return learner.contribute(
            question.client,
            question.phase,
            question.round,
            question.knowledge,
            evaluate_test=question.evaluate_test,
            clients_count=question.clients,
        )
    except NothingToPost as refusal:
        return refusal
    finally:
        if state is not None:
            save_client(learner, question.client, state)
