"""FedIntR: Tun et al., "Federated Learning with Intermediate Representation Regularization", BigComp 2023.

B batch, C classes, L layers of width D_l, n examples of the client, S scalars of the model's state.

A newcomer starts from the common model and has no contrast in its first round. A leaver takes its last model with it:
nobody else has that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fedchain.learning.methods.moon import Moon, MoonState, Others
from fedchain.learning.round import Round, Tensors

if TYPE_CHECKING:
    import torch

    from fedchain.learning.client import Client, Forward
    from fedchain.learning.models.base import Model


@dataclass(frozen=True, kw_only=True)
class FedIntR(Moon):
    """MOON's contrast at every layer, a layer counting the more, the nearer it is to the common model's."""

    needs_layers: ClassVar[bool] = True
    beyond_dp_sgd: ClassVar[str] = "its loss looks at all layers, for which no gradients of single examples are taken"
    beyond_rules: ClassVar[str] = ""

    def update(self, client: Client, round: Round) -> Tensors:
        """Train with the contrast of all layers, post the parameters and n_k, and keep the local model."""
        import torch

        from fedchain.learning.models.representations import training_layers
        from fedchain.learning.models.vectors import read_state

        common = training_layers(client)  # L times (n, D_l)
        state = client.state(MoonState)
        previous = training_layers(client, state.previous)  # L times (n, D_l)
        weight = 0.0 if state.previous is None else self.contrast_weight
        widths = tuple(layer.shape[1] for layer in common)  # (L,)

        def given(batch: torch.Tensor) -> Others:
            rows = torch.cat([layer[batch] for layer in common], 1), torch.cat([layer[batch] for layer in previous], 1)
            return Others(*rows, weight, widths)

        self.train(client, round, given=given, through=_all_layers)
        state.previous = read_state(client.model)  # (S,)
        return self.post_model(client)

    def loss(self, forward: Forward, images: torch.Tensor, labels: torch.Tensor, given: Others) -> torch.Tensor:
        """CE + mu sum_l alpha_l l_l; `forward` gives all layers side by side. No contrast in a client's first round."""
        import torch
        import torch.nn.functional as F

        layers, logits = forward(images)
        positive = self._similarity(layers, given.common, given.widths)  # (L,)
        negative = self._similarity(layers, given.previous, given.widths)  # (L,)
        contrast = F.softplus(negative - positive)  # l_l = -log(exp p / (exp p + exp n))
        alpha = torch.softmax(positive, dim=0)  # with gradient
        return F.cross_entropy(logits, labels) + given.weight * (alpha * contrast).sum()

    def _similarity(self, layers: torch.Tensor, others: torch.Tensor, widths: Sequence[int]) -> torch.Tensor:
        """Return each layer's cosine similarity over tau, averaged over the batch, (L,)."""
        import torch
        import torch.nn.functional as F

        pairs = zip(torch.split(layers, list(widths), 1), torch.split(others, list(widths), 1), strict=True)
        return torch.stack([F.cosine_similarity(one, other).mean() for one, other in pairs]) / self.temperature


def _all_layers(model: Model, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return all layers side by side, (B, D_1 + ... + D_L), and the logits (B, C)."""
    import torch

    layers, logits = model.layers(images)
    return torch.cat(layers, 1), logits
