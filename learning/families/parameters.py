"""Methods whose clients train a common model and post its parameters. B batch, C classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from numpy.typing import NDArray

from fedchain.learning.families.adapters import AdapterMethod
from fedchain.learning.method import Phase
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.models.parameters import load_parameters, parameter_spec, read_parameters
from fedchain.learning.payload.spec import TensorSpec
from fedchain.learning.round import Round, Tensors

if TYPE_CHECKING:
    import torch

    from fedchain.learning.client import Client, Forward
    from fedchain.learning.training.loop import Correction


@dataclass(frozen=True, kw_only=True)
class ParametersMethod(AdapterMethod):
    """Clients start each round from the common model, train it on cross-entropy, and post it whole."""

    uses_embedding: ClassVar[bool] = False
    shares_model: ClassVar[bool] = True

    def update(self, client: Client, round: Round) -> Tensors:
        """Train locally, and post the model."""
        self.train(client, round, correct=self.correction(client))
        return self.post_model(client)

    def correction(self, client: Client) -> Correction | None:
        """Return what makes of each gradient the one that SGD takes (`loop.Correction`); None to leave gradients alone.

        A term of the loss that parameters alone decide belongs here, as its gradient. The client has just received.
        """
        return None

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
        """The model's tensors, and residuals of frozen ones."""
        return (*parameter_spec(info), *self.residual_spec(info))
