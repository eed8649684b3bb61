"""Networks without normalization that can be cut before their pooling, as FedEDS takes them.

Li et al., "Efficient Federated Learning with Encrypted Data Sharing for Data-Heterogeneous Edge Devices", 2025
(arXiv:2506.20644). B batch, C classes, D embedding, F channels of the last features.
"""

from abc import abstractmethod
from itertools import pairwise
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import nn

from fedchain.learning.models.base import LayeredModel
from fedchain.learning.models.blocks import max_pool
from fedchain.learning.models.stochastic import StochasticLayer


class PooledModel(LayeredModel):
    """A feature extractor g, the mean over the pixels, and a classifier c. Its embedding is that mean: D = F."""

    pools: ClassVar[bool] = True

    @abstractmethod
    def maps(self, images: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the outputs of g's stages; the last are the features g(x), (B, F, height, width)."""

    @abstractmethod
    def head(self, embedding: torch.Tensor) -> torch.Tensor:
        """Return the logits (B, C) of features that are pooled, (B, F)."""

    def outputs(self, images: torch.Tensor) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        """Return the stages' outputs, the last averaged over the pixels (the embedding), and the logits c(g(x))."""
        *earlier, features = self.maps(images)
        embedding = features.mean(dim=(2, 3))
        return (*earlier, embedding), self.head(embedding)

    def forward_through(self, layer: StochasticLayer, images: torch.Tensor) -> torch.Tensor:
        """Return the logits c(l(g(x))), (B, C), of images that pass a stochastic layer l."""
        return self.head(layer(self.maps(images)[-1]))


class PlainResNet18(PooledModel):
    """ResNet-18 for 32x32 images without normalization: 11,169,162 parameters at width 64.

    A 3x3 stem, no first pooling, biases instead of normalization. The last convolution of each block starts at zero, so
    that the untrained network, which nothing normalises, does not blow up. `width` is that of the first stage; each
    other has twice the one before.
    """

    def __init__(self, classes: int = 10, channels: int = 3, width: int = 64) -> None:
        super().__init__()
        self.classes, self.embedding_size = classes, 8 * width
        self.conv1 = nn.Conv2d(channels, width, 3, padding=1)
        self.stages = nn.ModuleList(
            nn.Sequential(_PlainBlock(before * width, after * width, stride), _PlainBlock(after * width, after * width))
            for before, after, stride in ((1, 1, 1), (1, 2, 2), (2, 4, 2), (4, 8, 2))
        )
        self.fc = nn.Linear(8 * width, classes)
        _draw_he(self)
        for module in self.modules():
            if isinstance(module, _PlainBlock):
                nn.init.zeros_(module.conv2.weight)

    def maps(self, images: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the outputs of the four stages."""
        hidden, found = F.relu(self.conv1(images)), []
        for stage in self.stages:
            hidden = stage(hidden)
            found.append(hidden)
        return tuple(found)

    def head(self, embedding: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        logits: torch.Tensor = self.fc(embedding)
        return logits


class PlainCnn(PooledModel):
    """Three 3x3 convolutions of 16, 32 and 64 channels with two poolings, and one linear layer: 23,946 parameters for
    one channel. Ours, for what two cores train: 1.9 million multiplications for an image of 28x28."""

    embedding_size = 64

    def __init__(self, classes: int = 10, channels: int = 1) -> None:
        super().__init__()
        self.classes = classes
        widths = (channels, 16, 32, self.embedding_size)
        self.convs = nn.ModuleList(nn.Conv2d(before, width, 3, padding=1) for before, width in pairwise(widths))
        self.fc = nn.Linear(self.embedding_size, classes)
        _draw_he(self)

    def maps(self, images: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the outputs of the three convolutions."""
        hidden, found = images, list[torch.Tensor]()
        for place, conv in enumerate(self.convs):
            hidden = F.relu(conv(max_pool(hidden) if place else hidden))
            found.append(hidden)
        return tuple(found)

    def head(self, embedding: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        logits: torch.Tensor = self.fc(embedding)
        return logits


class _PlainBlock(nn.Module):
    """A basic block without normalization."""

    def __init__(self, before: int, width: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, width, 3, stride=stride, padding=1)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.around = nn.Conv2d(before, width, 1, stride=stride) if before != width else nn.Identity()

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return F.relu(self.conv2(F.relu(self.conv1(hidden))) + self.around(hidden))


def _draw_he(model: nn.Module) -> None:
    """Draw the convolutions as He et al. (ICCV 2015) do, with biases of zero."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            assert module.bias is not None
            nn.init.zeros_(module.bias)
