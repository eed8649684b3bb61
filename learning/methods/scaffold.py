"""SCAFFOLD: Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", ICML 2020
(arXiv:1910.06378).

Line numbers are those of Algorithm 1. K clients of the round, N clients in all, P scalars of the model.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from fedchain.learning.aggregation.mean import round_once, weighted_sum
from fedchain.learning.client import Client
from fedchain.learning.method import Phase
from fedchain.learning.methods.fedavg import FedAvg
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.models.vectors import read_vector
from fedchain.learning.payload.spec import TensorSpec
from fedchain.learning.round import Round, Tensors
from fedchain.learning.training import train


@dataclass(frozen=True, kw_only=True)
class Scaffold(FedAvg):
    """FedAvg with gradients corrected by how the client's drift differs from everybody's."""

    def update(self, client: Client, round: Round) -> Tensors:
        """Train with corrected gradients, renew c_i (option II), post the parameters, n_k and the change of c_i."""
        common = read_vector(client.model)  # x, (P,)
        server = client.memory["server_control"]  # c, (P,)
        own = client.memory.get("control", torch.zeros_like(common))  # c_i, (P,), of the client's last round

        def correct(gradient: torch.Tensor, parameters: torch.Tensor) -> torch.Tensor:
            return gradient - own + server  # line 10

        train(client, self.loss, self.schedule, round.number, correct=correct)
        drift = (common - read_vector(client.model)) / (client.steps * self.learning_rate)
        renewed = own - server + drift  # line 12, (ii)
        client.memory["control"] = renewed
        return self.post_model(client) | {"control_change": (renewed - own).numpy()}  # line 13

    phases: ClassVar[tuple[Phase, ...]] = (Phase("update", update),)

    def receive(self, client: Client, round: Round) -> None:
        """Start from the common model, and take in c, which is zero at first."""
        super().receive(client, round)
        if round.knowledge is None:
            client.memory["server_control"] = torch.zeros(client.info.parameter_count)
        else:
            client.memory["server_control"] = torch.from_numpy(np.array(round.knowledge["control"]))

    def aggregate(self, phase: Phase, round: Round) -> Tensors:
        """x <- weighted mean of y_i; c <- c + 1/N sum_i (c_i+ - c_i), a client that did not post changing nothing
        (lines 16 and 17, server step 1)."""
        changes = [post.payload["control_change"] for post in round.posts]  # (K, P)
        change = weighted_sum(changes, [1.0] * len(changes)) / max(round.clients, len(changes))
        before = 0.0 if round.knowledge is None else round.knowledge["control"].astype(np.float64)
        return {**super().aggregate(phase, round), "control": round_once(before + change)}

    def payload_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """The model's tensors, n_k and the change of c_i."""
        return (*super().payload_spec(phase, info), TensorSpec("control_change", (info.parameter_count,)))

    def knowledge_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """The model's tensors and c."""
        return (*super().knowledge_spec(phase, info), TensorSpec("control", (info.parameter_count,)))
