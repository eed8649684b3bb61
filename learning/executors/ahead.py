"""Training ahead of the votes: answers to questions that will be asked if a candidate becomes final.

A contribution follows from the knowledge, the client's state and the seeds. While a block is voted on, workers are
idle, and the knowledge that it brings is known. So they compute what will be asked of them then. If another block is
decided, the work was in vain, and nothing is left of it.
"""

from collections.abc import Callable
from dataclasses import dataclass

from fedchain.learning.amended import Amended
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.executors.executor import Question, QuestionId
from fedchain.learning.executors.outcomes import Outcome
from fedchain.learning.worker.contribution import Contribution
from fedchain.learning.worker.foresight import Foreseen
from fedchain.learning.worker.learner import Learner

HELD_SIZE_MAX = 256 * 2**20
"""Bytes of forecasts that a worker holds; as long as there are more, it makes no other."""


@dataclass(slots=True)
class _Made:
    """A forecast that is held."""

    number: int
    question: tuple[QuestionId, int, Amended, bytes]
    """The question that it answers: its identity, the number of members with data, amended values, and a key."""
    foreseen: Foreseen
    was_awaited: bool
    """Whether it was under way when it was asked for."""


class Forecasts:
    """The forecasts that a worker has made: one of each client at most.

    Args:
        learner: serves the clients.
        on_end: called with the number of each forecast that ends, and how it ended.
        size_max: bytes that are held.
    """

    def __init__(
        self,
        learner: Learner,
        on_end: Callable[[int, Outcome], object] = lambda number, outcome: None,
        size_max: int = HELD_SIZE_MAX,
    ) -> None:
        self._learner, self.on_end, self._size_max = learner, on_end, size_max
        self._made: dict[int, _Made] = {}
        self._size = 0

    def make(self, number: int, question: Question, is_asked: Callable[[int], bool] = lambda client: False) -> None:
        """Answer a question that nobody has asked yet.

        Args:
            number: of the forecast.
            question: what may be asked.
            is_asked: whether by now somebody waits for a client's contribution; called when the work is done.
        """
        client, asked = question.client, _asked(question)
        held = self._made.get(client)
        if held is not None and held.question == asked:
            self.on_end(number, Outcome.OVERTAKEN)
            return
        self.drop(client)
        if self._size >= self._size_max:
            self.on_end(number, Outcome.OVERTAKEN)
            return
        try:
            self._learner.amend(question.amended)
        except ConfigurationError:  # asked in earnest, the client tells
            self.on_end(number, Outcome.REFUSED)
            return
        self._learner.take_key(client, question.key)
        foreseen = self._learner.foresee(
            client,
            question.phase,
            question.round,
            question.knowledge,
            evaluate_test=question.evaluate_test,
            clients_count=question.clients,
        )
        if foreseen is None:
            can_foresee = self._learner.can_foresee(question.phase)
            self.on_end(number, Outcome.THROWN_AWAY if can_foresee else Outcome.REFUSED)
            return
        self._made[client] = _Made(number, asked, foreseen, is_asked(client))
        self._size += foreseen.size

    def take(self, question: Question) -> Contribution | None:
        """Answer a question by what was foreseen, and let the client go on from there; None if something else was.

        The next question begins with another client, so no forecast is left of this one.
        """
        made = self._made.get(question.client)
        if made is None:
            return None
        if made.question != _asked(question):
            self.drop(question.client)
            return None
        self._forget(made, Outcome.RUNNING if made.was_awaited else Outcome.READY)
        return self._learner.adopt(question.client, made.foreseen)

    def drop(self, client: int) -> None:
        """Throw away what was foreseen of a client."""
        made = self._made.get(client)
        if made is not None:
            self._forget(made, Outcome.THROWN_AWAY)

    def _forget(self, made: _Made, outcome: Outcome) -> None:
        del self._made[made.question[0].client]
        self._size -= made.foreseen.size
        self.on_end(made.number, outcome)


def _asked(question: Question) -> tuple[QuestionId, int, Amended, bytes]:
    return question.id, question.clients, question.amended, question.key
