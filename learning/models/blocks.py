"""Maxima of windows, and the residual blocks of He et al. (CVPR 2016), of which larger networks are built. B batch.

A normalization's gradient needs its input, not its output, so the layer after it overwrites the output.
"""

import torch
import torch.nn.functional as F
from torch import nn

EXPANSION = 4
"""A bottleneck's output is so many times as wide as its 3x3 convolution."""


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with normalization, and the way around them: (B, before, h, w) -> (B, width, h/s, w/s)."""

    def __init__(self, before: int, width: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = way_around(before, width, stride)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the block's output."""
        through = self.bn2(self.conv2(F.relu_(self.bn1(self.conv1(hidden)))))
        through += self.downsample(hidden)
        return F.relu_(through)


class Bottleneck(nn.Module):
    """Convolutions 1x1, 3x3, 1x1 with normalization, and the way around: (B, before, h, w) -> (B, 4 width, h/s, w/s).

    The stride is the 3x3 convolution's, as in everybody's code since.
    """

    def __init__(self, before: int, width: int, stride: int = 1) -> None:
        super().__init__()
        after = EXPANSION * width
        self.conv1 = nn.Conv2d(before, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, after, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(after)
        self.downsample = way_around(before, after, stride)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the block's output."""
        through = F.relu_(self.bn2(self.conv2(F.relu_(self.bn1(self.conv1(hidden))))))
        through = self.bn3(self.conv3(through))
        through += self.downsample(hidden)
        return F.relu_(through)


def way_around(before: int, after: int, stride: int) -> nn.Module:
    """Return the layers that bring a block's input to the shape of its output: none if the shapes are the same."""
    if before == after and stride == 1:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(before, after, 1, stride=stride, bias=False), nn.BatchNorm2d(after))


def initialise_convolutions(module: nn.Module) -> None:
    """Draw the weights of all convolutions as He et al. (ICCV 2015) do, by the number of outputs."""
    for part in module.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")


def max_pool(values: torch.Tensor) -> torch.Tensor:
    """Return the maximum of each 2x2 window, (..., h, w) -> (..., h // 2, w // 2), as `F.max_pool2d` does.

    That function looks for the place of each maximum, one number at a time, and takes half of a small network's way
    forward. Without a gradient nobody asks for the place, and comparing whole rows and columns takes a tenth.
    """
    if torch.is_grad_enabled() and not torch.is_inference_mode_enabled():
        return F.max_pool2d(values, 2)
    height, width = values.shape[-2] // 2 * 2, values.shape[-1] // 2 * 2
    rows = torch.maximum(values[..., 0:height:2, :width], values[..., 1:height:2, :width])
    return torch.maximum(rows[..., 0::2], rows[..., 1::2])
