"""SOLO: every client alone; "Local" among the baselines of Tan et al., "FedProto", AAAI 2022.

It runs on the same chain with empty posts, so that it differs from a method by the exchange alone. B batch, C classes.

A newcomer starts from a new model of its own. A leaver leaves nothing behind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from fedchain.learning.families.local_sgd import LocalSgdMethod
from fedchain.learning.method import Phase
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.payload.spec import TensorSpec
from fedchain.learning.round import Round, Tensors

if TYPE_CHECKING:
    import torch

    from fedchain.learning.client import Client, Forward


@dataclass(frozen=True, kw_only=True)
class Solo(LocalSgdMethod):
    """No exchange: local training only."""

    beyond_dp_sgd: ClassVar[str] = ""
    mixes_models: ClassVar[bool] = True
    exchanges: ClassVar[bool] = False
    uses_embedding: ClassVar[bool] = False

    def update(self, client: Client, round: Round) -> Tensors:
        """Train locally; post nothing."""
        self.train(client, round)
        return {}

    def loss(self, forward: Forward, images: torch.Tensor, labels: torch.Tensor, given: Any) -> torch.Tensor:
        """Cross-entropy."""
        import torch.nn.functional as F

        _, logits = forward(images)  # (B, C)
        return F.cross_entropy(logits, labels)

    def aggregate(self, phase: Phase, round: Round) -> Tensors:
        """Nothing is known in common."""
        return {}

    def payload_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """No tensors."""
        return ()

    def knowledge_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """No tensors."""
        return ()
