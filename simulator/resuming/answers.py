"""Questions to training clients and their answers, as a record keeps them."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

import msgspec

from fedchain.crypto.hashing import Hash
from fedchain.learning.exceptions import DecryptionRefused, NothingToPost, ReleaseRefused, TrainingDiverged
from fedchain.learning.worker.learner import Contribution

REFUSALS = {kind.__name__: kind for kind in (NothingToPost, DecryptionRefused, ReleaseRefused, TrainingDiverged)}
"""Errors that leave a client with nothing to post, by the name that a record has for them."""


@dataclass(frozen=True, slots=True)
class Question:
    """A request to a client for a contribution."""

    phase: str
    """Name of the phase."""
    round: int
    """Round of the phase."""
    knowledge: Hash
    """SHA-256 of the knowledge that the client got."""
    evaluate_test: bool
    """Whether its model was to be measured on the whole test set."""


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
class Answer:
    """Answer to a question."""

    question: Question
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


def write_answer(answer: Answer) -> list[Any]:
    """Plain values for MessagePack."""
    contents = [[content.hash, content.data] for content in answer.contents()]
    if isinstance(answer.made, NothingToPost):
        return [astuple(answer.question), [type(answer.made).__name__, *answer.made.args], contents]
    return [astuple(answer.question), msgspec.to_builtins(answer.made, builtin_types=(bytes,)), contents]


def read_answer(plain: Sequence[Any]) -> Answer:
    """Read an answer from the values of :func:`write_answer`."""
    asked, made, kept = plain
    question, contents = Question(*asked), tuple(Content(*content) for content in kept)
    if isinstance(made, list):
        name, *arguments = made
        return Answer(question, REFUSALS[name](*arguments), None)
    return Answer(question, msgspec.convert(made, Contribution), contents[0], contents[1:])
