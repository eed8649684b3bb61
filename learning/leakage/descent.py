"""The search for images that explain an observation: Adam on pixels, as gradient inversion has it.

Geiping et al., "Inverting Gradients: How Easy Is It to Break Privacy in Federated Learning?", NeurIPS 2020: signs of
the gradient, total variation, pixels kept within their range, a step size that falls three times. N images, c channels.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8
"""Adam's, as its authors recommend them."""

Distance = Callable[[torch.Tensor], torch.Tensor]
"""distance(images (N, c, h, w)) -> scalar: distance of their expected traces from the observed ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """How long and with which step an attacker looks."""

    iterations: int = 400
    """Steps of Adam."""

    learning_rate: float = 0.1
    """First step size, in units of the normalised pixels; a tenth of it after 3/8, 5/8 and 7/8 of the steps each."""

    total_variation: float = 1e-3
    """Weight of the total variation, beside a distance that is 1 where nothing is explained."""


@dataclass(frozen=True, slots=True, eq=False)
class PixelRange:
    """The range of normalised pixels; an attacker knows it from the task."""

    black: torch.Tensor
    """The normalised value of 0, broadcast over (c, h, w)."""

    white: torch.Tensor
    """The normalised value of the largest pixel value, likewise."""

    def to_pixels(self, images: torch.Tensor) -> torch.Tensor:
        """Return normalised images as pixels between 0 and 1."""
        return ((images - self.black) / (self.white - self.black)).clamp(0, 1)

    def normalise(self, images: torch.Tensor) -> torch.Tensor:
        """Return pixels between 0 and 1 as normalised images."""
        return self.black + images * (self.white - self.black)


def descend(distance: Distance, start: torch.Tensor, pixels: PixelRange, search: Search) -> torch.Tensor:
    """Return the normalised images (N, c, h, w) that the search comes to from the start.

    The steps are Adam's (Kingma and Ba, ICLR 2015, Algorithm 1). torch.optim's class would load torch's compiler.
    """
    images = start.clamp(pixels.black, pixels.white)
    mean, square = torch.zeros_like(images), torch.zeros_like(images)
    falls = [search.iterations * eighths // 8 for eighths in (3, 5, 7)]
    for step in range(1, search.iterations + 1):
        images.requires_grad_(True)
        value = distance(images) + search.total_variation * total_variation(images)
        (gradient,) = torch.autograd.grad(value, images)
        sign = gradient.sign()
        mean, square = torch.lerp(sign, mean, _BETA1), torch.lerp(sign.square(), square, _BETA2)
        rate = search.learning_rate * 0.1 ** sum(step > fall for fall in falls)
        unbiased = mean / (1 - _BETA1**step), square / (1 - _BETA2**step)
        moved = images.detach() - rate * unbiased[0] / (unbiased[1].sqrt() + _EPSILON)
        images = moved.clamp(pixels.black, pixels.white)
    return images


def total_variation(images: torch.Tensor) -> torch.Tensor:
    """Return the mean absolute difference of neighbouring pixels, down and across (Rudin et al., 1992)."""
    down = (images[:, :, 1:, :] - images[:, :, :-1, :]).abs().mean()
    across = (images[:, :, :, 1:] - images[:, :, :, :-1]).abs().mean()
    return down + across


def draw_start(count: int, pixels: PixelRange, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Return so many random images of the shape (c, h, w) to start from, normalised."""
    return pixels.normalise(torch.rand((count, *shape), generator=generator))
