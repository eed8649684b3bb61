"""Training that is recorded: a run that goes on is given its own answers again, as far as it had got.

A client's answers follow from the client and its questions, and the questions come in the same order whenever a run is
repeated. So its answers are numbered. Up to the client's newest saved state they come from the record, and the client
continues from that state. Without a saved state it begins again, and its new answers must be those of the record.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from fedchain.learning.exceptions import NothingToPost
from fedchain.learning.executors.executor import Answer, InFile, QuestionId
from fedchain.learning.executors.remembering import Kept
from fedchain.learning.payload.part_folder import PartFolder
from fedchain.learning.worker.client_state import is_saved
from fedchain.learning.worker.contribution import Contribution
from fedchain.simulator.resuming.answers import Batch, RecordedAnswer
from fedchain.simulator.resuming.record import Record, RecordError

QUESTIONS_KEPT = 4
"""Newest questions of a client that are kept. After a restart it may be asked one of them again."""


class RecordedAnswers:
    """A record as the :class:`fedchain.learning.executors.remembering.Answers` of its run.

    Args:
        record: of this run.
        parts: folder with each client's parts, in a folder of its number.
        together: whether what several clients are asked is computed together.
    """

    def __init__(self, record: Record, parts: Path, *, together: bool) -> None:
        self._record, self._parts = record, parts
        self._taken = _taken(record, together=together)
        self._states = {client: record.state_path(client, number) for client, number in self._taken.items() if number}
        self._last: dict[int, int] = defaultdict(int)  # number of each client's last question
        self._numbers: dict[int, OrderedDict[QuestionId, int]] = defaultdict(OrderedDict)  # of its newest answers
        self._begun: dict[QuestionId, _Begun] = {}

    def recall(self, question: QuestionId) -> Kept | None:
        """See :class:`Answers`. An answer of the record does what it did when it was computed."""
        client = question.client
        if question in self._numbers[client]:
            return partial(self._read, client, self._numbers[client][question])
        number = self._next(client)
        if number > self._taken.get(client, 0):
            return None
        answer = self._record.answer(client, number)
        if answer.question != question:
            raise RecordError(
                f"the record has peer {client} asked for phase {answer.question.phase} of round "
                f"{answer.question.round} where it is asked for phase {question.phase} of round {question.round} now, "
                "or given something else: it was made by another program or machine"
            )
        self._last[client] = number
        for part in answer.parts:
            self._parts_of(client).write(part.hash, self._record.read(part))
        return self._note(question, number)

    def begin(self, question: QuestionId) -> Path | None:
        """See :class:`Answers`."""
        if question not in self._begun:  # else there was a fault the last time
            number = self._last[question.client] = self._next(question.client)
            self._begun[question] = _Begun(number)
        return self._record.state_path(question.client, self._begun[question].number)

    def is_next_kept(self, client: int) -> bool:
        """See :class:`Answers`."""
        return self._next(client) <= self._taken.get(client, 0)

    def keep(self, question: QuestionId, answer: Answer | InFile, together: Sequence[QuestionId]) -> Kept:
        """See :class:`Answers`. When all that were computed with it are kept, nobody needs the states before them."""
        begun, first = self._begun[question], together[0]
        batch = Batch(first.client, self._begun[first].number, len(together))
        self._record.add(question.client, begun.number, batch, self._written(question, answer))
        begun.is_answered = True
        kept = self._note(question, begun.number)
        if all(self._begun[other].is_answered for other in together):
            for other in together:
                self._record.forget_states(other.client, self._begun.pop(other).number)
        return kept

    def left(self, client: int) -> Path | None:
        """See :class:`Answers`."""
        return self._states.pop(client, None)

    def _next(self, client: int) -> int:
        """The number that the client's next question has.

        Older versions computed a refusal again when they were asked again, and numbered it again.
        """
        number = self._last[client] + 1
        while number <= self._record.count(client):
            question = self._record.answer(client, number).question
            if question not in self._numbers[client] and question not in self._begun:
                break
            number += 1
        return number

    def _note(self, question: QuestionId, number: int) -> Kept:
        numbers = self._numbers[question.client]
        numbers[question] = number
        if len(numbers) > QUESTIONS_KEPT:
            numbers.popitem(last=False)
        return partial(self._read, question.client, number)

    def _read(self, client: int, number: int) -> Answer:
        """One of a client's answers, as who waits for it gets it."""
        answer = self._record.answer(client, number)
        if isinstance(answer.made, NothingToPost):
            return answer.made
        assert answer.payload is not None, "a contribution has one"
        return replace(answer.made, payload=self._record.read(answer.payload))

    def _written(self, question: QuestionId, answer: Answer | InFile) -> RecordedAnswer:
        match answer:
            case InFile(made, content_hash, path):
                payload = self._record.take(content_hash, path)
            case Contribution():
                made, payload = replace(answer, payload=b""), self._record.put(answer.payload)
            case _:
                return RecordedAnswer(question, answer, None)
        parts = self._parts_of(question.client)
        return RecordedAnswer(question, made, payload, tuple(self._record.put(parts.read(item)) for item in made.parts))

    def _parts_of(self, client: int) -> PartFolder:
        return PartFolder(self._parts / str(client), is_durable=False)


@dataclass(slots=True)
class _Begun:
    """A question that is being answered, or whose answer was computed with one that is."""

    number: int
    """Which of the client's answers it will be."""
    is_answered: bool = False


def _taken(record: Record, *, together: bool) -> dict[int, int]:
    """How many of each client's answers are taken from the record: those up to the newest state of it that is whole.

    Answers that were computed together are taken together: all of them, or none.
    """
    taken = {}
    for client in record.clients():
        states = (number for number in record.states(client) if is_saved(record.state_path(client, number)))
        taken[client] = next(states, 0)
    if together and any(number < record.count(client) for client, number in taken.items()):
        return {}
    return taken
