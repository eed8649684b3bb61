"""Heads on a frozen backbone, as FedPH has them. B batch, C classes, D embedding, F features.

The backbone belongs to no member: every member builds the same one from the shape of the images alone, none trains it,
and no post or checkpoint holds it. Its features of a client's images are calculated once, and from then on take their
place, so that training costs what the head costs.
"""

from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn

from fedchain.learning.device import kept_generator
from fedchain.learning.models.base import Model
from fedchain.learning.models.large import ResNet18
from fedchain.learning.models.prototypes import EVALUATION_BATCH
from fedchain.learning.seeding import seed_torch

FEATURES = 512
"""Width F of a backbone's features: ResNet-18's last stage."""

BACKBONE_SEED = 18
"""Every backbone is drawn from it. Pre-trained weights are not shipped."""

REFERENCES = 64
"""Random images, smooth and the same for everybody, by whose features those of a random ResNet-18 are standardised."""

SIDE_MIN = 28
"""Images below this side have too few pixels for ResNet-18: random features of all pixels take its place."""

_HIDDEN = 128
"""Width between the first two layers of a head of three."""

Backbone = Callable[[torch.Tensor], torch.Tensor]
"""images (B, channels, height, width) -> (B, F)."""


class FrozenHead(Model):
    """512 features -> 64 -> ReLU -> L2 norm 1, the embedding -> C: 33,222 parameters for six classes (FedPH, Table 2).

    With three layers, 128 hidden ones stand in front, which the paper leaves open.
    """

    embedding_size = 64

    def __init__(self, classes: int = 10, channels: int = 1, size: int = 8, layers: int = 2) -> None:
        super().__init__()
        self.classes = classes
        self._shape = channels, size
        widths = [FEATURES, *(_HIDDEN,) * (layers - 2), self.embedding_size]
        self.projection = nn.ModuleList(nn.Linear(before, after) for before, after in pairwise(widths))
        self.decision = nn.Linear(self.embedding_size, classes)

    def features(self, images: torch.Tensor) -> torch.Tensor:
        """Return the backbone's features of images (n, channels, height, width): (n, F), of mean 0 and variance 1."""
        backbone = build_backbone(*self._shape)
        with torch.inference_mode():
            parts = [_layer_norm(backbone(batch)) for batch in torch.split(images, EVALUATION_BATCH)]
        return torch.cat(parts)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return embedding (B, D) and logits (B, C) of features (B, F), or of the images themselves."""
        hidden = self.features(images) if images.ndim == 4 else images  # (B, F)
        for layer in self.projection:
            hidden = F.relu(layer(hidden))
        embedding = F.normalize(hidden, dim=1)  # (B, D); zero stays zero
        return embedding, self.decision(embedding)


@lru_cache(maxsize=4)
def build_backbone(channels: int, size: int) -> Backbone:
    """Return the backbone for images of so many channels and this side, the same in every process.

    A random ResNet-18 gives two images nearly the same features: their cosine is 0.9, and heads on them lose all their
    ReLUs to the common part. That part, as random images show it, is taken away.
    """
    with kept_generator():
        seed_torch(BACKBONE_SEED)
        if size < SIDE_MIN:
            layer = nn.Linear(channels * size * size, FEATURES).requires_grad_(False)
            return lambda images: F.relu(layer(images.flatten(1)))
        model = ResNet18(channels=channels, classes=1).requires_grad_(False).eval()
        coarse = torch.randn(REFERENCES, channels, 7, 7)
    references = F.interpolate(coarse, size=(size, size), mode="bicubic")
    with torch.no_grad():
        std, mean = torch.std_mean(_layer_norm(model(references)[0]), dim=0)  # (F,) each
    return lambda images: (_layer_norm(model(images)[0]) - mean) / std


def _layer_norm(features: torch.Tensor) -> torch.Tensor:
    """Return features (B, F) with mean 0 and variance 1 in each row."""
    return F.layer_norm(features, (FEATURES,))
