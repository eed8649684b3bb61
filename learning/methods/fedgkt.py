"""FedGKT: He, Annavaram and Avestimehr, "Group Knowledge Transfer: Federated Learning of Large CNNs at the Edge",
NeurIPS 2020 (arXiv:2007.14513).

How examples travel is in `learning/families/distillation_parts.py`, the divergence in `distillation_terms.py`.
B batch, C classes; p^k is a client's output for an example, p^S the aggregator's.

A newcomer starts from a new model of its own, without an answer of the aggregator's, and sends its labels with its
examples in every round. A leaver gets no answers any more; the aggregator's network has learned from its examples, and
keeps that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedchain.learning.families.distillation import DistillationMethod, Given
from fedchain.learning.method import validate_range

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class FedGkt(DistillationMethod):
    """Cross-entropy on both sides, and the divergence from the other side's output."""

    distillation_weight: float = 1.5
    """Weight beta of the divergence from the other side's output."""

    temperature: float = 3.0
    """Temperature of both sides' probabilities in it; 1 is none."""

    def validate(self) -> None:
        """Raise `ConfigurationError` for a hyper-parameter outside its range."""
        super().validate()
        validate_range("distillation_weight", self.distillation_weight, 0.0, 1e6)
        validate_range("temperature", self.temperature, 0.0, 1e3, low_open=True)

    def client_objective(self, logits: torch.Tensor, labels: torch.Tensor, given: Given) -> torch.Tensor:
        """J^k = CE + beta KL(p^S || p^k)."""
        import torch.nn.functional as F

        from fedchain.learning.families.distillation_terms import divergence, soften

        distance = divergence(soften(given.logits, self.temperature), logits, self.temperature)
        return F.cross_entropy(logits, labels) + self.distillation_weight * distance

    def server_objective(self, logits: torch.Tensor, labels: torch.Tensor, given: Given) -> torch.Tensor:
        """J^S = CE + beta KL(p^k || p^S)."""
        import torch.nn.functional as F

        from fedchain.learning.families.distillation_terms import divergence

        distance = divergence(self.local_knowledge(given.logits), logits, self.temperature)
        return F.cross_entropy(logits, labels) + self.distillation_weight * distance

    def local_knowledge(self, logits: torch.Tensor) -> torch.Tensor:
        """Return p^k, (B, C), of a client's logits (B, C)."""
        from fedchain.learning.families.distillation_terms import soften

        return soften(logits, self.temperature)
