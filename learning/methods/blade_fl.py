"""BLADE-FL: Li et al., "Blockchain Assisted Decentralized Federated Learning (BLADE-FL): Performance Analysis and
Resource Allocation", IEEE Transactions on Parallel and Distributed Systems 33(10), 2022.

B batch, C classes, K clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from fedchain.learning.families.robust import RobustMethod
from fedchain.learning.method import Phase
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.models.parameters import combine_parameters, load_parameters, parameter_spec, read_parameters
from fedchain.learning.payload.spec import TensorSpec
from fedchain.learning.round import Round, Tensors

if TYPE_CHECKING:
    import torch

    from fedchain.learning.client import Client, Forward


@dataclass(frozen=True, kw_only=True)
class BladeFl(RobustMethod):
    """Every client trains, broadcasts its model, mines, and averages all models with equal weights."""

    beyond_dp_sgd: ClassVar[str] = ""
    has_update_together: ClassVar[bool] = True

    def update(self, client: Client, round: Round) -> Tensors:
        """Train from the last aggregate and post the parameters (steps 1 and 2)."""
        self.train(client, round)
        return read_parameters(client.model)

    def update_together(self, clients: Sequence[Client], round: Round) -> Sequence[Tensors | None]:
        """Train logistic regressions at once."""
        from fedchain.learning.training.linear import train_linear

        are_finite = train_linear(clients, self.schedule)
        return [read_parameters(client.model) if are_finite[place] else None for place, client in enumerate(clients)]

    uses_embedding: ClassVar[bool] = False
    shares_model: ClassVar[bool] = True

    def receive(self, client: Client, round: Round) -> None:
        """Start the round from the aggregate of the last block (step 5)."""
        if round.knowledge is not None:
            load_parameters(client.model, round.knowledge)

    def loss(self, forward: Forward, images: torch.Tensor, labels: torch.Tensor, given: Any) -> torch.Tensor:
        """Cross-entropy."""
        import torch.nn.functional as F

        _, logits = forward(images)  # (B, C)
        return F.cross_entropy(logits, labels)

    def aggregate(self, phase: Phase, round: Round) -> Tensors:
        """w <- 1/K sum_k w_k, every client counting the same, or the robust rule."""
        return combine_parameters(self.robust_rule, round, [1] * len(round.posts))

    def payload_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """The model's tensors."""
        return parameter_spec(info)

    def knowledge_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """The model's tensors."""
        return parameter_spec(info)
