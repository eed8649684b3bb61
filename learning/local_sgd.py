"""Methods whose clients train a model of their own, or a common one, with SGD. B batch, D embedding, n examples."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from fedchain.learning.method import Method, Phase, validate_range
from fedchain.learning.schedule import Schedule, count_steps

if TYPE_CHECKING:
    import torch

    from fedchain.learning.client import Client, Forward
    from fedchain.learning.round import Round, Tensors

Auxiliary = Callable[["torch.Tensor", "torch.Tensor"], tuple[float, "torch.Tensor"]]
"""auxiliary(embeddings (N, D), labels (N,)) -> weight and value of the term beside cross-entropy."""


@dataclass(frozen=True, kw_only=True)
class LocalSgdMethod(Method):
    """One phase a round, `update`: every client trains and posts. A method overrides what differs."""

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

    shares_model: ClassVar[bool] = False
    """Whether the knowledge is a model that `receive` loads, so that it can be evaluated before training."""

    personalizes: ClassVar[bool] = False
    """Whether what `receive` makes of a shared model differs from client to client."""

    @property
    def phases(self) -> tuple[Phase, ...]:
        """One."""
        return (Phase("update", trains=True),)

    def validate(self) -> None:
        """Raise `ConfigurationError` for a hyper-parameter outside its range."""
        validate_range("learning_rate", self.learning_rate, 0.0, 1e3, low_open=True)
        validate_range("batch_size", self.batch_size, 1, 1 << 20)
        validate_range("local_steps", self.local_steps, 1, 1 << 20)
        validate_range("local_epochs", self.local_epochs, 0, 1 << 20)
        validate_range("momentum", self.momentum, 0.0, 1.0, high_open=True)
        validate_range("weight_decay", self.weight_decay, 0.0, 1e3)

    @abstractmethod
    def update(self, client: Client, round: Round) -> Tensors:
        """Train the client's model and return what it posts; `train` and `run_steps` do the steps."""

    def update_together(self, clients: Sequence[Client], round: Round) -> Sequence[Tensors | None]:
        """Do `update` for clients with linear models at once, and return their posts; None for one that diverged.

        A method that can says so by overriding this beside `update`. A subclass that overrides `update`, `train` or
        `loss` and not this one is not asked: see `trains_together`.
        """
        raise NotImplementedError

    @property
    def trains_together(self) -> bool:
        """Whether `update_together` does what `update` does."""
        here = _class_of(self, "update_together")
        others = [_class_of(self, name) for name in ("update", "train", "loss", "schedule")]
        return here is not LocalSgdMethod and all(issubclass(here, other) for other in others)

    @abstractmethod
    def loss(self, forward: Forward, images: torch.Tensor, labels: torch.Tensor, given: Any) -> torch.Tensor:
        """Return the scalar local loss of one batch: pure, and without control flow that depends on the data.

        `given` is what it reads besides the batch: None, or a tuple of the method's own type that `update` makes.
        """

    def receive(self, client: Client, round: Round) -> None:
        """Take in the knowledge at the start of a round (`round.knowledge` may be None), before the first phase."""

    def auxiliary(self, client: Client, round: Round) -> Auxiliary | None:
        """Return the term beside cross-entropy as a function of embeddings, so that it can be reported.

        None if there is none, or if more than the embeddings decides it.
        """
        return None

    def train(self, client: Client, round: Round, **changes: Any) -> None:
        """Take the round's steps of SGD on `loss`; `changes` are those of `training.train`."""
        from fedchain.learning.training import train

        train(client, self.loss, self.schedule, round.number, **changes)

    def planned_steps(self, phase: Phase, examples: int) -> int:
        """As the schedule has them, where the phase trains."""
        return count_steps(self.schedule, examples) if phase.trains else 0

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


def _class_of(method: Method, name: str) -> type:
    """Return the class that a method has something from."""
    return next(kind for kind in type(method).__mro__ if name in vars(kind))
