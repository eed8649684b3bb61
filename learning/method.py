"""The interface of a learning method: what a client computes, what it posts, and how posts become knowledge.

A method is one frozen dataclass in one file. It states its phases, the tensors posted and left behind
(`payload_spec`, `knowledge_spec`), its local `loss`, its `aggregate`, and what a client does with fresh
knowledge (`receive`). B batch, C classes, D embedding, K clients.
"""

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from fedchain.learning.client import Client, Forward, Memory
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.payload.spec import TensorSpec
from fedchain.learning.round import Post, Round, Tensors
from fedchain.learning.training import Schedule


class Contributor(enum.Enum):
    """Who posts in a phase."""

    PARTICIPANT = "participant"
    """Every client that takes part in the round."""

    AGGREGATOR = "aggregator"
    """The one peer that the genesis document names."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One step of a round: its contributors each post once, and one aggregate closes it."""

    name: str
    """Name on the chain, unique within the method."""

    compute: "Callable[[Any, Client, Round], Tensors]"
    """The contributor's work, called as compute(method, client, round); returns what it posts."""

    by: Contributor = Contributor.PARTICIPANT
    """Who contributes."""


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """A learning method. Its fields are its hyper-parameters, and their docstrings the help."""

    learning_rate: float = 0.1
    """Step size eta of local SGD."""

    batch_size: int = 32
    """Examples per minibatch, B."""

    local_steps: int = 20
    """Minibatch steps of a client per round, E."""

    local_epochs: int = 0
    """If positive, a client makes this many passes over its data per round, instead of local_steps."""

    momentum: float = 0.0
    """Momentum of local SGD; its buffer starts empty in every round."""

    weight_decay: float = 0.0
    """L2 penalty of local SGD."""

    shared_init: bool = True
    """Whether all clients start from the same random model; otherwise each draws its own."""

    setup: ClassVar[tuple[Phase, ...]] = ()
    """Phases that run once, before round 1."""

    phases: ClassVar[tuple[Phase, ...]]
    """Phases of every round, in order."""

    exchanges: ClassVar[bool] = True
    """Whether clients learn anything from each other."""

    uses_embedding: ClassVar[bool] = True
    """Whether anything but the logits is read; if not, a user's model may return the logits alone."""

    shares_model: ClassVar[bool] = False
    """Whether the knowledge is a model that `receive` loads, so that it can be evaluated before training."""

    personalizes: ClassVar[bool] = False
    """Whether what `receive` makes of a shared model differs from client to client."""

    def __post_init__(self) -> None:
        self.validate()

    def validate(self) -> None:
        """Raise `ConfigurationError` for a hyper-parameter outside its range."""
        validate_range("learning_rate", self.learning_rate, 0.0, 1e3, low_open=True)
        validate_range("batch_size", self.batch_size, 1, 1 << 20)
        validate_range("local_steps", self.local_steps, 1, 1 << 20)
        validate_range("local_epochs", self.local_epochs, 0, 1 << 20)
        validate_range("momentum", self.momentum, 0.0, 1.0, high_open=True)
        validate_range("weight_decay", self.weight_decay, 0.0, 1e3)

    @abstractmethod
    def payload_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """State the tensors a contributor posts in the phase."""

    @abstractmethod
    def knowledge_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """State the tensors the phase leaves behind."""

    @abstractmethod
    def aggregate(self, phase: Phase, round: Round) -> Tensors:
        """Turn at least one post into knowledge. Same posts, same bytes, on every machine, and no post is refused.

        Elements beyond the bounds of `knowledge_spec` are moved to the nearest within, which makes them part of both.

        Pure numpy on the CPU: elementwise float64 in the order of `round.posts`, one rounding to float32 at
        the end, `math.fsum` where many numbers are reduced, no BLAS, no exp or pow.
        """

    @abstractmethod
    def loss(self, forward: Forward, images: torch.Tensor, labels: torch.Tensor, memory: Memory) -> torch.Tensor:
        """Return the scalar local loss of one batch: pure, and without control flow that depends on the data."""

    def check(self, phase: Phase, post: Post, round: Round) -> None:  # noqa: B027 - for most, the spec says it all
        """Raise `InvalidPayload` for what the spec cannot state, such as one tensor depending on another.

        `round` has its number and knowledge, and no posts. What passes here, `aggregate` must take, together with any
        other posts that passed: a post that only `aggregate` refuses would make the chain stand still.
        """

    def receive(self, client: Client, round: Round) -> None:  # noqa: B027 - SOLO receives nothing
        """Take in the knowledge at the start of a round (`round.knowledge` may be None)."""

    def auxiliary(
        self, embedding: torch.Tensor, labels: torch.Tensor, memory: Memory
    ) -> tuple[float, torch.Tensor] | None:
        """Return weight and value of the term beside cross-entropy, of embeddings (B, D), so that it can be reported.

        None if there is none, or if more than the embeddings decides it.
        """
        return None

    def prototypes(self, knowledge: Tensors) -> Tensors | None:
        """Return class prototypes for reports: labels (n,), prototypes (n, D), holders (n,); None without any."""
        return None

    @property
    def schedule(self) -> Schedule:
        """How a client's local SGD runs."""
        return Schedule(
            learning_rate=self.learning_rate,
            batch_size=self.batch_size,
            steps=self.local_steps,
            epochs=self.local_epochs,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
        )


def validate_range(
    name: str, value: float, low: float, high: float, *, low_open: bool = False, high_open: bool = False
) -> None:
    """Raise `ConfigurationError` unless the value lies between the bounds; an open bound is excluded."""
    above = value > low if low_open else value >= low
    below = value < high if high_open else value <= high
    if not (above and below):
        left, right = "(" if low_open else "[", ")" if high_open else "]"
        raise ConfigurationError(f"{name} must lie in {left}{low}, {high}{right}, not {value}")
