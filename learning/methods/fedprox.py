"""FedProx: Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020 (arXiv:1812.06127).

P scalars of the model.

A newcomer starts from the common model, which is w^t to it. A leaver leaves nothing behind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fedchain.learning.method import validate_range
from fedchain.learning.methods.fedavg import FedAvg

if TYPE_CHECKING:
    import torch

    from fedchain.learning.client import Client
    from fedchain.learning.training.loop import Correction


@dataclass(frozen=True, kw_only=True)
class FedProx(FedAvg):
    """FedAvg whose clients minimise h_k(w; w^t) = F_k(w) + mu/2 ||w - w^t||^2 (Eq. 2), w^t the common model."""

    proximal_weight: float = 0.01
    """Weight mu of the squared distance to the common model."""

    beyond_dp_sgd: ClassVar[str] = ""
    beyond_late: ClassVar[str] = ""
    beyond_rules: ClassVar[str] = ""
    beyond_fedex: ClassVar[str] = ""

    def validate(self) -> None:
        """Raise `ConfigurationError` for a hyper-parameter outside its range."""
        super().validate()
        validate_range("proximal_weight", self.proximal_weight, 0.0, 1e6)

    def correction(self, client: Client) -> Correction:
        """The gradient of the proximal term of h_k, of which clients take their steps (Algorithm 2)."""
        return pull_back(client, self.proximal_weight)


def pull_back(client: Client, weight: float) -> Correction:
    """Return a correction by the gradient of mu/2 ||w - w^t||^2 for the weight mu and the client's model w^t."""
    from fedchain.learning.models.vectors import read_vector
    from fedchain.learning.training.loop import Correction

    def proximal(gradient: torch.Tensor, parameter: torch.Tensor, common: torch.Tensor) -> torch.Tensor:
        return gradient + weight * (parameter - common)  # the gradient of h_k

    return Correction(proximal, (read_vector(client.model),))
