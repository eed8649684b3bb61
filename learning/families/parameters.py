"""Methods whose clients train a common model and post its parameters. B batch, C classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from numpy.typing import NDArray

from fedchain.learning.families.robust import RobustMethod
from fedchain.learning.method import Phase
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.models.parameters import load_parameters, parameter_spec, read_parameters
from fedchain.learning.payload.spec import TensorSpec
from fedchain.learning.round import Round, Tensors

if TYPE_CHECKING:
    import torch

    from fedchain.learning.client import Client, Forward
    from fedchain.learning.training.loop import Correct


@dataclass(frozen=True, kw_only=True)
class ParametersMethod(RobustMethod):
    """Clients start each round from the common model, train it on cross-entropy, and post it whole."""

    uses_embedding: ClassVar[bool] = False
    shares_model: ClassVar[bool] = True

    def update(self, client: Client, round: Round) -> Tensors:
        """Train locally, and post the model."""
        self.train(client, round, correct=self.correction(client))
        return self.post_model(client)

    def correction(self, client: Client) -> Correct | None:
        """Return what makes of each gradient the one that SGD takes (`loop.Correct`); None to leave gradients alone.

        A term of the loss that parameters alone decide belongs here, as its gradient. The client has just received.
        """
        return None

    def update_together(self, clients: Sequence[Client], round: Round) -> Sequence[Tensors | None]:
        """Train logistic regressions at once."""
        from fedchain.learning.training.linear import train_linear

        are_finite = train_linear(clients, self.schedule, proximal_weight=self.linear_pull)
        return [self.post_model(client) if are_finite[place] else None for place, client in enumerate(clients)]

    @property
    def linear_pull(self) -> float:
        """The weight of FedProx's term, where clients are trained at once."""
        return 0.0

    def receive(self, client: Client, round: Round) -> None:
        """Start the round from the common model."""
        if round.knowledge is not None:
            load_parameters(client.model, round.knowledge)

    def loss(self, forward: Forward, images: torch.Tensor, labels: torch.Tensor, given: Any) -> torch.Tensor:
        """Cross-entropy."""
        import torch.nn.functional as F

        _, logits = forward(images)  # (B, C)
        return F.cross_entropy(logits, labels)

    def post_model(self, client: Client) -> dict[str, NDArray[Any]]:
        """Return the client's parameters."""
        return read_parameters(client.model)

    def payload_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """The model's tensors."""
        return parameter_spec(info)

    def knowledge_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """The model's tensors."""
        return parameter_spec(info)
