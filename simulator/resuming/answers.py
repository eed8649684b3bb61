"""Questions to training clients and their answers, as a record keeps them."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

import msgspec

from fedchain.crypto.hashing import Hash
from fedchain.learning.exceptions import DecryptionRefused, NothingToPost, ReleaseRefused, TrainingDiverged
from fedchain.learning.executors.executor import QuestionId
from fedchain.learning.worker.contribution import Contribution

REFUSALS = {kind.__name__: kind for kind in (NothingToPost, DecryptionRefused, ReleaseRefused, TrainingDiverged)}
"""Errors that leave a client with nothing to post, by the name that a record has for them."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Calls that a training process got at once: computed together, each affects the results of the others."""

    client: int
    """Client of the first call."""
    number: int
    """Number of that call among the client's answers, from 1."""
    size: int
    """Number of calls."""


@dataclass(frozen=True, slots=True)
class Content:
    """A payload or a part."""

    hash: Hash
    """Its SHA-256."""
    data: bytes | None
    """The bytes themselves; None if they are in a file."""


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """Answer to a question, as a record keeps it."""

    question: QuestionId
    """The question itself."""
    made: Contribution | NothingToPost
    """A contribution, which lacks its payload here, or the reason for which there is none."""
    payload: Content | None
    """The payload; None if there is no contribution."""
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
        return [question, _write_refusal(answer.made), contents]
    return [question, msgspec.to_builtins(answer.made, builtin_types=(bytes,)), contents]


def read_answer(client: int, plain: Sequence[Any]) -> RecordedAnswer:
    """Read a client's answer from the values of :func:`write_answer`."""
    asked, made, kept = plain
    question, contents = QuestionId(client, *asked), tuple(Content(*content) for content in kept)
    if isinstance(made, list):
        name, *arguments = made
        return RecordedAnswer(question, REFUSALS[name](*arguments), None)
    return RecordedAnswer(question, msgspec.convert(made, Contribution), contents[0], contents[1:])


def _write_refusal(refusal: NothingToPost) -> list[Any]:
    """Name and arguments of a refusal. A user's own method may raise one of another class, or with any arguments: its
    text is written down, under the nearest class that can be read from a text."""
    name = type(refusal).__name__
    if REFUSALS.get(name) is type(refusal) and all(isinstance(value, str | int | float) for value in refusal.args):
        return [name, *refusal.args]
    nearest = next(kind for kind in (DecryptionRefused, ReleaseRefused, NothingToPost) if isinstance(refusal, kind))
    return [nearest.__name__, str(refusal)]
