"""FedIntR: Tun et al., "Federated Learning with Intermediate Representation Regularization", BigComp 2023.

B batch, C classes, L layers of width D_l, n examples of the client, S scalars of the model's state.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F

from fedchain.learning.client import Client, Forward, Memory
from fedchain.learning.method import Phase
from fedchain.learning.methods.moon import Moon
from fedchain.learning.models.representations import training_layers
from fedchain.learning.models.vectors import read_state
from fedchain.learning.round import Round, Tensors
from fedchain.learning.training import train


@dataclass(frozen=True, kw_only=True)
class FedIntR(Moon):
    """MOON's contrast at every layer, a layer counting the more, the nearer it is to the common model's."""

    def update(self, client: Client, round: Round) -> Tensors:
        """Train with the contrast of all layers, post the parameters and n_k, and keep the local model."""
        common = training_layers(client)  # L times (n, D_l)
        previous = training_layers(client, client.memory.get("previous"))  # L times (n, D_l)
        client.memory["has_previous"] = torch.tensor(float("previous" in client.memory))
        client.memory["widths"] = torch.tensor([layer.shape[1] for layer in common])  # (L,)

        def beside(batch: torch.Tensor) -> Memory:
            rows = torch.cat([layer[batch] for layer in common], 1), torch.cat([layer[batch] for layer in previous], 1)
            return {"common_layers": rows[0], "previous_layers": rows[1]}

        def all_layers(images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            layers, logits = client.model.layers(images)
            return torch.cat(layers, 1), logits  # (B, D_1 + ... + D_L), (B, C)

        train(client, self.loss, self.schedule, round.number, beside=beside, forward=all_layers)
        client.memory["previous"] = read_state(client.model)  # (S,)
        return self.post_model(client)

    phases: ClassVar[tuple[Phase, ...]] = (Phase("update", update),)

    def loss(self, forward: Forward, images: torch.Tensor, labels: torch.Tensor, memory: Memory) -> torch.Tensor:
        """CE + mu sum_l alpha_l l_l; `forward` gives all layers side by side. No contrast in a client's first round."""
        layers, logits = forward(images)
        positive = self._similarity(layers, memory["common_layers"], memory)  # (L,)
        negative = self._similarity(layers, memory["previous_layers"], memory)  # (L,)
        contrast = F.softplus(negative - positive)  # l_l = -log(exp p / (exp p + exp n))
        alpha = torch.softmax(positive, dim=0)  # with gradient
        return (
            F.cross_entropy(logits, labels) + self.contrast_weight * memory["has_previous"] * (alpha * contrast).sum()
        )

    def _similarity(self, layers: torch.Tensor, others: torch.Tensor, memory: Memory) -> torch.Tensor:
        """Return each layer's cosine similarity over tau, averaged over the batch, (L,)."""
        widths = memory["widths"].tolist()
        pairs = zip(torch.split(layers, widths, 1), torch.split(others, widths, 1), strict=True)
        return torch.stack([F.cosine_similarity(one, other).mean() for one, other in pairs]) / self.temperature
