"""Clients' networks that are cut behind their first layer, for methods that send its features to a larger network.

Those with convolutions are the clients of FedICT (Wu et al., "FedICT: Federated Multi-task Distillation for
Multi-access Edge Computing", IEEE TPDS 2024), whose names are FedGKT's; counts are for 3x32x32 images and ten
classes. Those without are ours, of about the sizes that FedICT's Table III states and does not describe.

B batch, C classes, D embedding, H shape of one example's features.
"""

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn

from fedchain.learning.models.base import LayeredModel
from fedchain.learning.models.blocks import EXPANSION, BasicBlock, Bottleneck, initialise_convolutions

STEM_WIDTH = 16
"""Channels of the features of images: 64 KiB for an image of 32x32 pixels."""

SHARED_WIDTH = 13
"""Width of the features of the fully connected networks, as FedICT has it for TMD."""

_Outputs = tuple[tuple[torch.Tensor, ...], torch.Tensor]
"""The layers' outputs, the embedding last, and the logits."""


class SplitModel(LayeredModel):
    """A model in two halves: `extract` makes the features that are sent, `interpret` the local model's logits."""

    feature_shape: tuple[int, ...]
    """H."""

    def extract(self, images: torch.Tensor) -> torch.Tensor:
        """Return the features (B, *H) of images (B, ...)."""
        raise NotImplementedError

    def interpret(self, features: torch.Tensor) -> _Outputs:
        """Return the outputs of the layers behind the features, the embedding (B, D) last, and the logits (B, C)."""
        raise NotImplementedError

    def split(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """See `Model.split`."""
        features = self.extract(images)
        found, logits = self.interpret(features)
        return features, found[-1], logits

    def outputs(self, images: torch.Tensor) -> _Outputs:
        """Return the features, the outputs behind them, and the logits."""
        features = self.extract(images)
        found, logits = self.interpret(features)
        return (features, *found), logits


class SplitResNet(SplitModel):
    """A 3x3 convolution, whose output is sent, and at most two residual blocks behind it.

    A1, resnet2-56: none (634 parameters). A2, resnet4-56: a basic block (5,306). A3, resnet8-56: two bottlenecks
    (10,586). A4 and A5, resnet10-56 and resnet12-56: two basic blocks (9,978 each). The published code gives these two
    another stage each and never calls it, so that they are the same network; Table III counts it so, too.
    """

    pools = True

    def __init__(
        self, blocks: int, classes: int = 10, channels: int = 3, size: int = 32, *, bottleneck: bool = False
    ) -> None:
        super().__init__()
        self.classes = classes
        self.feature_shape = STEM_WIDTH, size, size
        self.embedding_size = STEM_WIDTH * (EXPANSION if bottleneck else 1)
        self.conv1 = nn.Conv2d(channels, STEM_WIDTH, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(STEM_WIDTH)
        kind = Bottleneck if bottleneck else BasicBlock
        befores = (STEM_WIDTH, *(self.embedding_size,) * (blocks - 1))[:blocks]
        self.blocks = nn.ModuleList(kind(before, STEM_WIDTH) for before in befores)
        self.fc = nn.Linear(self.embedding_size, classes)
        initialise_convolutions(self)

    def extract(self, images: torch.Tensor) -> torch.Tensor:
        """Return the features (B, 16, height, width)."""
        features: torch.Tensor = F.relu(self.bn1(self.conv1(images)))
        return features

    def interpret(self, features: torch.Tensor) -> _Outputs:
        """Return the blocks' outputs, their mean over the pixels (the embedding), and the logits."""
        hidden, found = features, []
        for block in self.blocks:
            hidden = block(hidden)
            found.append(hidden)
        embedding = hidden.mean(dim=(2, 3))  # (B, D)
        return (*found[:-1], embedding), self.fc(embedding)


class SplitMlp(SplitModel):
    """A fully connected network whose first layer's 13 outputs are sent. Ours.

    For TMD (64 features, five classes), beside what FedICT's Table III states: split-mlp-1, 14 hidden units (1,116;
    1,109), split-mlp-2, 16 and 12 (1,338; 1,335), split-mlp-3, 20, 18 and 15 (1,868; 1,877).
    """

    def __init__(self, hidden: tuple[int, ...], classes: int = 10, features: int = 64) -> None:
        super().__init__()
        self.classes, self.embedding_size = classes, hidden[-1]
        self.feature_shape = (SHARED_WIDTH,)
        self.shared = nn.Linear(features, SHARED_WIDTH)
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise((SHARED_WIDTH, *hidden)))
        self.fc = nn.Linear(hidden[-1], classes)

    def extract(self, images: torch.Tensor) -> torch.Tensor:
        """Return the features (B, 13) of anything with so many numbers."""
        return F.relu(self.shared(images.flatten(1)))

    def interpret(self, features: torch.Tensor) -> _Outputs:
        """Return the hidden layers' outputs, the last of which is the embedding, and the logits."""
        value, found = features, []
        for layer in self.hidden:
            value = F.relu(layer(value))
            found.append(value)
        return tuple(found), self.fc(value)
