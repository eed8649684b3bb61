"""FedEDS's stochastic layers: frozen, random, one for each client, and everybody can build all of them.

Li et al., "Efficient Federated Learning with Encrypted Data Sharing for Data-Heterogeneous Edge Devices", 2025
(arXiv:2506.20644), section IV-A. B batch, F channels of the features.
"""

from typing import Literal

import torch
from torch import nn

from fedchain.learning.device import kept_generator
from fedchain.learning.seeding import derive, seed_torch

Kind = Literal["conv", "linear"]
"""conv: a 3x3 convolution before the pooling; linear: a matrix behind it. Neither has a bias."""

_ROOT = 2506_20644
"""Seed from which all layers are drawn, together with their client's place: the paper's number. They are no secret."""


class StochasticLayer(nn.Module):
    """Takes the place of the mean over the pixels: features (B, F, height, width) -> (B, F), not trained."""

    def __init__(self, kind: Kind, width: int) -> None:
        super().__init__()
        self.kind = kind
        self.weight = nn.Parameter(
            torch.empty(width, width, 3, 3) if kind == "conv" else torch.empty(width, width), requires_grad=False
        )
        nn.init.kaiming_normal_(self.weight, nonlinearity="relu")  # He et al., ICCV 2015

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return the perturbed features, averaged over the pixels."""
        if self.kind == "conv":
            return nn.functional.conv2d(features, self.weight, padding=1).mean(dim=(2, 3))
        return nn.functional.linear(features.mean(dim=(2, 3)), self.weight)


def stochastic_layer(client: int, width: int, kind: Kind = "conv") -> StochasticLayer:
    """Return the layer of the client at a place, the same in every process; torch's own generator stays as it was."""
    with kept_generator():
        seed_torch(derive(_ROOT, "stochastic layer", client))
        return StochasticLayer(kind, width)
