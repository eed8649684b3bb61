"""The larger networks of the papers. Each takes the number of classes and channels; the count is the papers' own case.

B batch, C classes, D embedding, c channels.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn

from fedchain.learning.models.base import LayeredModel
from fedchain.learning.models.blocks import BasicBlock, initialise_convolutions, max_pool

_Outputs = tuple[tuple[torch.Tensor, ...], torch.Tensor]
"""Return type of `outputs`: the layers' outputs, the embedding last, and the logits."""


class ResNet18(LayeredModel):
    """ResNet-18 (He et al., CVPR 2016) with its 7x7 stem of stride 2: 11,689,512 parameters for 1,000 classes, which
    have torchvision's names.

    32x32 images leave one pixel of 512 channels, the embedding. A narrower embedding is one more layer: with 200, ten
    prototypes of 20 clients are the 4.00e4 numbers that DFPL's Table II counts.
    """

    pools = True

    def __init__(self, classes: int = 10, channels: int = 3, embedding: int = 512) -> None:
        super().__init__()
        self.classes, self.embedding_size = classes, embedding
        self.conv1 = nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = nn.Sequential(BasicBlock(64, 64), BasicBlock(64, 64))
        self.layer2 = nn.Sequential(BasicBlock(64, 128, stride=2), BasicBlock(128, 128))
        self.layer3 = nn.Sequential(BasicBlock(128, 256, stride=2), BasicBlock(256, 256))
        self.layer4 = nn.Sequential(BasicBlock(256, 512, stride=2), BasicBlock(512, 512))
        self.narrow = nn.Linear(512, embedding) if embedding != 512 else None
        self.fc = nn.Linear(embedding, classes)
        initialise_convolutions(self)

    def outputs(self, images: torch.Tensor) -> _Outputs:
        """Return the four stages' outputs, the last averaged over the pixels, the embedding, and the logits."""
        stages = (self.layer1, self.layer2, self.layer3, self.layer4)
        found = _run_stages(stages, F.max_pool2d(F.relu(self.bn1(self.conv1(images))), 3, stride=2, padding=1))
        if self.narrow is not None:
            found.append(F.relu(self.narrow(found[-1])))
        return tuple(found), self.fc(found[-1])


class FedRegCnn(LayeredModel):
    """The five-layer network of FedReg (Xu et al., ICLR 2022) for 28x28 images: 228,010 parameters."""

    embedding_size = 256

    def __init__(self, classes: int = 10, channels: int = 1) -> None:
        super().__init__()
        self.classes = classes
        self.conv1 = nn.Conv2d(channels, 32, 5)
        self.conv2 = nn.Conv2d(32, 32, 5)
        self.conv3 = nn.Conv2d(32, 64, 5)
        self.fc1 = nn.Linear(576, 256)
        self.fc2 = nn.Linear(256, classes)

    def outputs(self, images: torch.Tensor) -> _Outputs:
        """Return the outputs of the three convolutions and the embedding, and the logits."""
        first = F.relu(self.conv1(images))  # (B, 32, 24, 24)
        second = F.relu(max_pool(self.conv2(first)))  # (B, 32, 10, 10)
        third = F.relu(max_pool(self.conv3(second)))  # (B, 64, 3, 3)
        embedding = F.relu(self.fc1(third.flatten(1)))  # (B, 256)
        return (first, second, third, embedding), self.fc2(embedding)


class FixupResNet9(LayeredModel):
    """ResNet-9 without normalization (Zhang et al., "Fixup Initialization", ICLR 2019), as FedReg has it for 32x32
    images: 6,568,673 parameters. Its head starts at zero, so the first step moves nothing else."""

    embedding_size, pools = 512, True

    def __init__(self, classes: int = 10, channels: int = 3) -> None:
        super().__init__()
        self.classes = classes
        self.stem = _FixupConv(channels, 64)
        self.stages = nn.ModuleList(
            nn.Sequential(_FixupConv(before, width), nn.ReLU(), nn.MaxPool2d(2), *(_FixupBlock(width),) * has_block)
            for before, width, has_block in ((64, 128, 1), (128, 256, 0), (256, 512, 1))
        )
        self.bias = nn.Parameter(torch.zeros(1))
        self.fc = nn.Linear(512, classes)
        nn.init.zeros_(self.fc.weight)
        nn.init.zeros_(self.fc.bias)

    def outputs(self, images: torch.Tensor) -> _Outputs:
        """Return the first two stages' outputs, the embedding, and the logits."""
        hidden, found = F.relu(self.stem(images)), []
        for stage in self.stages:
            hidden = stage(hidden)
            found.append(hidden)
        embedding = F.max_pool2d(hidden, 4).flatten(1)  # (B, 512)
        return (*found[:-1], embedding), self.fc(embedding + self.bias)


class CovidCnn(LayeredModel):
    """Nine convolutions and one linear layer, FedReg's network for COVID-CT at 128x128: 15,676,418 parameters."""

    pools = True

    def __init__(self, classes: int = 2, channels: int = 3, size: int = 128) -> None:
        super().__init__()
        widths = (channels, 128, 256, 256, 512, 512, 512, 512, 512, 512)
        self.classes, self.embedding_size = classes, (size // 3) ** 2 * widths[-1]
        self.convs = nn.ModuleList(nn.Conv2d(before, width, 3, padding=1) for before, width in pairwise(widths))
        self.norms = nn.ModuleDict({"5": nn.GroupNorm(1, 512), "7": nn.GroupNorm(1, 512)})
        self.fc = nn.Linear(self.embedding_size, classes)

    def outputs(self, images: torch.Tensor) -> _Outputs:
        """Return the convolutions' outputs, the flattened embedding, and the logits."""
        hidden, found = images, []
        for place, conv in enumerate(self.convs):
            hidden = conv(hidden)
            hidden = F.relu(self.norms[str(place)](hidden) if str(place) in self.norms else hidden)
            if place == 5:
                hidden = F.max_pool2d(hidden, 3)
            found.append(hidden)
        embedding = hidden.flatten(1)  # (B, D)
        return (*found[:-1], embedding), self.fc(embedding)


class Mlp(LayeredModel):
    """A fully connected network; `linear` leaves the activations out, `norm` puts batch normalization behind them.

    784-32-10, linear, is the network of BLADE-FL's code: 25,450 parameters. Those with normalization are ours.
    """

    def __init__(
        self,
        hidden: tuple[int, ...],
        classes: int = 10,
        channels: int = 1,
        size: int = 28,
        *,
        linear: bool = False,
        norm: bool = False,
    ) -> None:
        super().__init__()
        self.classes, self.embedding_size, self.linear = classes, hidden[-1], linear
        widths = (channels * size**2, *hidden)
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for width in hidden) if norm else None
        self.fc = nn.Linear(hidden[-1], classes)

    def outputs(self, images: torch.Tensor) -> _Outputs:
        """Return the hidden layers' outputs (the last is the embedding), and the logits."""
        value, found = images.flatten(1), []
        for place, layer in enumerate(self.hidden):
            value = layer(value) if self.linear else F.relu(layer(value))
            value = value if self.norms is None else self.norms[place](value)
            found.append(value)
        return tuple(found), self.fc(value)


def _run_stages(stages: Sequence[nn.Module], hidden: torch.Tensor) -> list[torch.Tensor]:
    """Return the outputs (B, width, height, width) of all stages; the last one averaged over the pixels, (B, width)."""
    found = []
    for stage in stages:
        hidden = stage(hidden)
        found.append(hidden)
    return [*found[:-1], hidden.mean(dim=(2, 3))]


class _FixupConv(nn.Module):
    """A 3x3 convolution between scalar biases, times a scalar."""

    def __init__(self, before: int, width: int) -> None:
        super().__init__()
        self.before, self.after = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
        self.conv = nn.Conv2d(before, width, 3, padding=1, bias=False)
        self.scale = nn.Parameter(torch.ones(1))
        nn.init.normal_(self.conv.weight, std=math.sqrt(2 / (9 * width)))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.conv(hidden + self.before) * self.scale + self.after
        return result


class _FixupBlock(nn.Module):
    """A basic block that starts as the identity: the second convolution is zero."""

    blocks = 2
    """Number of such blocks in the network, by which Fixup scales the first convolution."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.before1, self.after1 = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.second = _FixupConv(width, width)
        nn.init.normal_(self.conv1.weight, std=math.sqrt(2 / (9 * width)) * self.blocks**-0.5)
        nn.init.zeros_(self.second.conv.weight)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        through = F.relu(self.conv1(hidden + self.before1) + self.after1)
        return F.relu(self.second(through) + hidden)
