"""What training clients were asked and what came of it, as a record keeps it."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

import msgspec

from fedchain.crypto.hashing import Hash
from fedchain.learning.exceptions import DecryptionRefused, NothingToPost, ReleaseRefused, TrainingDiverged
from fedchain.learning.executors.executor import QuestionId
from fedchain.learning.worker.learner import Contribution

REFUSALS = {kind.__name__: kind for kind in (NothingToPost, DecryptionRefused, ReleaseRefused, TrainingDiverged)}
"""Why a client has nothing to post, by the name that a record gives it."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Calls that a training process was given at once: where several are computed together, one shows in the others."""

    client: int
    """Of the first call."""
    number: int
    """Which of that client's answers it is, from 1."""
    size: int
    """Calls."""


@dataclass(frozen=True, slots=True)
class Content:
    """A payload or a part."""

    hash: Hash
    """Its SHA-256."""
    data: bytes | None
    """The bytes themselves; None: they are in a file."""


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """What came of a question."""

    question: QuestionId
    """The question itself."""
    made: Contribution | NothingToPost
    """A contribution, which lacks its payload here, or why there is none."""
    payload: Content | None
    """The payload; None beside an error."""
    parts: tuple[Content, ...] = ()
    """The parts that it lists."""

    def contents(self) -> tuple[Content, ...]:
        """Payload and parts."""
        return self.parts if self.payload is None else (self.payload, *self.parts)


def write_answer(answer: RecordedAnswer) -> list[Any]:
    """Plain values for MessagePack; the client is written beside them."""
    _, *question = astuple(answer.question)
    contents = [[content.hash, content.data] for content in answer.contents()]
    if isinstance(answer.made, NothingToPost):
        return [question, [type(answer.made).__name__, *answer.made.args], contents]
    return [question, msgspec.to_builtins(answer.made, builtin_types=(bytes,)), contents]


def read_answer(client: int, plain: Sequence[Any]) -> RecordedAnswer:
    """What :func:`write_answer` wrote of a client's answer."""
    asked, made, kept = plain
    question, contents = QuestionId(client, *asked), tuple(Content(*content) for content in kept)
    if isinstance(made, list):
        name, *arguments = made
        return RecordedAnswer(question, REFUSALS[name](*arguments), None)
    return RecordedAnswer(question, msgspec.convert(made, Contribution), contents[0], contents[1:])
