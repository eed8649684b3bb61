"""Images from encrypted ones, by a network that learned how another encryptor's come apart. N images, c channels.

The encrypted images are FedEDS's (Li et al., 2025, arXiv:2506.20644). An attacker has pairs of image and encrypted
image, at least those of its own encryptor, and trains a UNet of the same form to go back.
"""

import torch
import torch.nn.functional as F

from fedchain.learning.leakage.descent import PixelRange
from fedchain.learning.models.prototypes import EVALUATION_BATCH
from fedchain.learning.models.unet import UNet, build_unet
from fedchain.learning.training.loop import train_network
from fedchain.learning.training.schedule import Schedule


def train_decoder(
    encrypted: torch.Tensor, images: torch.Tensor, width: int, schedule: Schedule, generator: torch.Generator
) -> UNet:
    """Return a UNet that has learned to make images (N, c, h, w) of their encrypted ones, by mean squared error.

    Encrypted images are standardised one by one: each encryptor has a range of its own.
    """
    decoder = build_unet(tuple(images.shape[1:]), width, int(torch.randint(2**31, (), generator=generator)))
    seen = standardise(encrypted)

    def loss(batch: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(decoder(seen[batch]), images[batch])

    train_network(list(decoder.parameters()), loss, schedule, len(images), generator)
    return decoder.eval()


def decode_images(decoder: UNet, encrypted: torch.Tensor, pixels: PixelRange) -> torch.Tensor:
    """Return a decoder's output for encrypted images (N, c, h, w), normalised and within the pixels' range."""
    with torch.inference_mode():
        made = torch.cat([decoder(batch) for batch in torch.split(standardise(encrypted), EVALUATION_BATCH)])
    return made.clamp(pixels.black, pixels.white)


def standardise(encrypted: torch.Tensor) -> torch.Tensor:
    """Return encrypted images (N, c, h, w), each with mean 0 and variance 1 over all of its pixels."""
    return F.layer_norm(encrypted, tuple(encrypted.shape[1:]))


def stretch(encrypted: torch.Tensor) -> torch.Tensor:
    """Return encrypted images (N, c, h, w) as pixels between 0 and 1, each stretched to that range."""
    low, high = encrypted.amin(dim=(1, 2, 3), keepdim=True), encrypted.amax(dim=(1, 2, 3), keepdim=True)
    return (encrypted - low) / (high - low).clamp(min=1e-12)
