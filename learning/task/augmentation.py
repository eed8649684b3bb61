"""Augmentation: training images that are a little different each time.

B batch. Cropping after padding by four pixels, and mirroring, are what the CIFAR experiments of FedReg and FedICT use,
and nearly everybody's since He et al., Deep Residual Learning for Image Recognition (CVPR 2016).
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

Augmentation = Callable[[torch.Tensor, torch.Generator], torch.Tensor]
"""augment(images, generator) -> images, of the same shape; the given ones stay as they are."""

PADDING = 4
"""An image is shifted by at most so many pixels in each direction."""


@dataclass(frozen=True, slots=True, eq=False)
class CropFlip:
    """Shift each image at random, filling up with black, and mirror half of them."""

    black: torch.Tensor
    """(channels, 1, 1): the value of a black pixel after normalisation."""

    def __call__(self, images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Return changed copies of images (B, channels, height, width); all choices come from the generator."""
        count, channels, height, width = images.shape
        offsets = torch.randint(2 * PADDING + 1, (count, 2), generator=generator)
        mirrored = torch.rand(count, generator=generator) < 0.5
        size = (count, channels, height + 2 * PADDING, width + 2 * PADDING)
        padded = self.black.expand(size).clone()
        padded[:, :, PADDING:-PADDING, PADDING:-PADDING] = images
        rows = offsets[:, :1] + torch.arange(height)  # (B, height)
        columns = offsets[:, 1:] + torch.arange(width)  # (B, width)
        columns = torch.where(mirrored[:, None], columns.flip(1), columns)
        places = torch.arange(count)[:, None, None, None]
        return padded[places, torch.arange(channels)[:, None, None], rows[:, None, :, None], columns[:, None, None, :]]
