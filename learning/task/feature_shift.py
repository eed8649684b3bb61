"""Feature shift: clients see the same things differently, each in a weather of its own.

FedPH was measured on images of vehicles in five weathers, one for each client (Kuang and Mi, "FedPH: Privacy-Enhanced
Heterogeneous Federated Learning", 2023, Fig. 4), of which its code's repository holds most. Here any images get five.
n images; the last two axes are height and width.
"""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedchain.learning.config import LearningConfig
from fedchain.learning.seeding import numpy_generator

Weather = Literal["clear", "bright", "blurred", "noisy", "foggy"]

WEATHERS: tuple[Weather, ...] = ("clear", "bright", "blurred", "noisy", "foggy")
"""Client k has the one at place k modulo five."""

GLARE = 0.3
"""bright: added to every pixel, as a part of the range from black to white."""

BLUR = 1 / 28
"""blurred: deviation of the Gaussian kernel, as a part of the width: one pixel of 28."""

GRAIN = 0.2
"""noisy: deviation of the Gaussian noise on each pixel, as a part of the range."""

FOG, GREY = 0.6, 0.8
"""foggy: how much of each pixel is fog, and how light fog is, black being 0 and white 1."""


def shift_features(
    config: LearningConfig, pixels: NDArray[Any], pixel_max: int, client: int, part: str
) -> NDArray[Any]:
    """Return images (n, ..., height, width) as this client sees them; without a shift, the given ones.

    Noise follows from the federation's seed, the client and `part`, which names the images: training or test.
    """
    if config.feature_shift == "none":
        return pixels
    rng = numpy_generator(config.seed, "feature shift", part, client)
    return apply_weather(WEATHERS[client % len(WEATHERS)], pixels, pixel_max, rng)


def shift_in_turn(config: LearningConfig, pixels: NDArray[Any], pixel_max: int) -> NDArray[Any]:
    """Return images (n, ..., height, width) that are nobody's as the clients see them, in turn, weather by weather."""
    if config.feature_shift == "none":
        return pixels
    seen = np.empty(pixels.shape, dtype=np.float32)
    weathers = min(config.clients, len(WEATHERS))
    for client in range(weathers):
        seen[client::weathers] = shift_features(config, pixels[client::weathers], pixel_max, client, "whole test set")
    return seen


def apply_weather(
    weather: Weather, pixels: NDArray[Any], pixel_max: int, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Return images (n, ..., height, width) in this weather, in the units they have: 0 black, `pixel_max` white.

    Pixels that would be darker than black or lighter than white are clipped. Clear images are unchanged.
    """
    seen = pixels.astype(np.float32)
    match weather:
        case "clear":
            return seen
        case "bright":
            seen += GLARE * pixel_max
        case "blurred":
            seen = _blur(seen)
        case "noisy":
            seen += GRAIN * pixel_max * rng.standard_normal(seen.shape, dtype=np.float32)
        case "foggy":
            seen = (1 - FOG) * seen + np.float32(FOG * GREY * pixel_max)
    return np.clip(seen, 0, pixel_max)


def _blur(images: NDArray[np.float32]) -> NDArray[np.float32]:
    from scipy.ndimage import gaussian_filter  # slow to import

    deviation = BLUR * images.shape[-1]
    blurred: NDArray[np.float32] = gaussian_filter(images, deviation, mode="nearest", axes=(-2, -1))
    return blurred
