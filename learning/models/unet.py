"""A small UNet, which makes images of images: FedEDS's encryptor, and the decoder that attacks it.

Ronneberger et al., "U-Net: Convolutional Networks for Biomedical Image Segmentation", MICCAI 2015, with two levels
below the first, as Li et al., 2025 (arXiv:2506.20644) have it. B batch, c channels.
"""

import torch
from torch import nn

from fedchain.learning.device import kept_generator
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.models.blocks import max_pool
from fedchain.learning.seeding import seed_torch

SIDE_UNIT = 4
"""Height and width must be multiples of it: they are halved twice."""


class UNet(nn.Module):
    """Two levels down (maximum over 2x2, two convolutions), two up (transposed convolution, what the way down had
    beside it, two convolutions), and a linear output.

    Three channels take 1,865,539 parameters at width 64, and 467,875 at 32.
    """

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.first = _twice(channels, width)
        self.down1, self.down2 = _twice(width, 2 * width), _twice(2 * width, 4 * width)
        self.up1 = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.join1 = _twice(4 * width, 2 * width)
        self.up2 = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.join2 = _twice(2 * width, width)
        self.last = nn.Conv2d(width, channels, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return images (B, c, height, width) of such images; nothing bounds their pixels."""
        whole = self.first(images)  # (B, w, h, w)
        half = self.down1(max_pool(whole))
        quarter = self.down2(max_pool(half))
        half = self.join1(torch.cat([half, self.up1(quarter)], dim=1))
        whole = self.join2(torch.cat([whole, self.up2(half)], dim=1))
        made: torch.Tensor = self.last(whole)
        return made


def build_unet(shape: tuple[int, ...], width: int, seed: int) -> UNet:
    """Return a UNet for images of a shape (c, height, width), drawn from the seed alone.

    Raises `ConfigurationError` for what is no image, or one whose sides cannot be halved twice.
    """
    if len(shape) != 3 or shape[1] % SIDE_UNIT or shape[2] % SIDE_UNIT:
        raise ConfigurationError(
            f"an image of sides that are multiples of {SIDE_UNIT} is needed, examples have the shape {shape}"
        )
    with kept_generator():
        seed_torch(seed)
        return UNet(shape[0], width).to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def _twice(before: int, width: int) -> nn.Sequential:
    """Two 3x3 convolutions, each with batch normalization and ReLU."""
    return nn.Sequential(
        nn.Conv2d(before, width, 3, padding=1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
    )
