"""An image from a class prototype, the mean embedding of n_c examples: Adam on its pixels. D embedding.

Mahendran and Vedaldi, "Understanding Deep Image Representations by Inverting Them", CVPR 2015, invert the embedding of
one image; the embedding of a class is that of no image, and the search finds the nearest thing to one.
"""

import torch

from fedchain.learning.leakage.descent import PixelRange, Search, descend
from fedchain.learning.models.base import Model


def invert_prototype(
    prototype: torch.Tensor, encoder: Model, start: torch.Tensor, pixels: PixelRange, search: Search
) -> torch.Tensor:
    """Return a normalised image (1, c, h, w) whose embedding is near to a prototype (D,), looked for from the start.

    The encoder is the attacker's: the sender's own model where all know it, or one of its own where they do not. Many
    images have nearly the same embedding. A start that is like an image of the class, such as its mean, leads to one.
    """
    encoder.eval()
    scale = prototype.square().sum().clamp(min=1e-30)

    def distance(images: torch.Tensor) -> torch.Tensor:
        embedding: torch.Tensor = encoder(images)[0]  # (1, D)
        return (embedding[0] - prototype).square().sum() / scale

    return descend(distance, start, pixels, search)
