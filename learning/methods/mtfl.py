"""MTFL: Mills et al., "Multi-Task Federated Learning for Personalised Deep Neural Networks in Edge Computing", IEEE
Transactions on Parallel and Distributed Systems 33(3), 2022 (arXiv:2007.09236).

A newcomer starts from the common model's public part and new batch normalization of its own. A leaver takes its private
part with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from fedchain.learning.method import Phase
from fedchain.learning.methods.fedavg import FedAvg
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.models.parameters import wire_name
from fedchain.learning.payload.spec import TensorSpec
from fedchain.learning.round import Round, Tensors

if TYPE_CHECKING:
    from fedchain.learning.client import Client


@dataclass(frozen=True, kw_only=True)
class Mtfl(FedAvg):
    """FedAvg whose clients keep their batch normalization to themselves. Without such layers it is FedAvg."""

    private: Literal["usyb", "yb", "us"] = "usyb"
    """The private part of batch normalization: usyb (running statistics mu and sigma, and gamma and beta), yb (gamma
    and beta) or us (the statistics)."""

    beyond_dp_sgd: ClassVar[str] = ""
    beyond_late: ClassVar[str] = ""
    beyond_rules: ClassVar[str] = ""
    beyond_fedex: ClassVar[str] = ""
    personalizes: ClassVar[bool] = True

    def update(self, client: Client, round: Round) -> Tensors:
        """Train all parameters; post the public ones and n_k (Algorithm 1)."""
        self.train(client, round)
        private = self.private_names(client.info)
        return {name: value for name, value in self.post_model(client).items() if name not in private}

    def private_names(self, info: ModelInfo) -> set[str]:
        """Return the names of the tensors that stay with the client, as they would be posted."""
        learned = {wire_name(name, True) for name in info.normalization & info.trainable}
        statistics = {wire_name(name, False) for name in info.normalization - info.trainable}
        return (learned if "yb" in self.private else set()) | (statistics if "us" in self.private else set())

    def payload_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """The public tensors and n_k."""
        private = self.private_names(info)
        return tuple(spec for spec in super().payload_spec(phase, info) if spec.name not in private)

    def knowledge_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """The public tensors."""
        private = self.private_names(info)
        return tuple(spec for spec in super().knowledge_spec(phase, info) if spec.name not in private)
