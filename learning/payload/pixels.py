"""Images as parts carry them: one byte for a pixel, within a range of each image's own, or float16. n images.

Pixels are one row after another, so that a process that only judges sizes need not know the images' shape.
"""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedchain.learning.payload.spec import TensorSpec

PixelType = Literal["uint8", "float16"]
"""uint8: 256 levels between the darkest and the brightest pixel of each image; float16: 11 bits of each."""

PIXEL_MAGNITUDE_MAX = 1e3
"""Largest magnitude of a pixel; those of normalised images are a few."""

_LEVELS = 255
_FLOAT16_TINY = float(np.finfo(np.float16).smallest_normal)


def image_spec(kind: PixelType, images_max: int, pixels_max: int) -> tuple[TensorSpec, ...]:
    """State the tensors that `pack_images` returns, of at most so many images and pixels together."""
    if kind == "float16":
        return (TensorSpec("pixels", (-1,), "float16", pixels_max, magnitude_max=PIXEL_MAGNITUDE_MAX),)
    return (
        TensorSpec("pixels", (-1,), "uint8", pixels_max),
        TensorSpec("offset", (-1,), free_max=images_max, magnitude_max=PIXEL_MAGNITUDE_MAX),
        TensorSpec("scale", (-1,), free_max=images_max, minimum=0, magnitude_max=2.01 * PIXEL_MAGNITUDE_MAX / _LEVELS),
    )


def pack_images(images: NDArray[np.float32], kind: PixelType) -> dict[str, NDArray[Any]]:
    """Return images (n, ...) as tensors: `pixels`, and for bytes `offset` (n,) and `scale` (n,), pixel = offset + scale
    level. Pixels beyond `PIXEL_MAGNITUDE_MAX` are moved to it."""
    rows = np.clip(images.reshape(len(images), -1), -PIXEL_MAGNITUDE_MAX, PIXEL_MAGNITUDE_MAX)
    if kind == "float16":
        return {"pixels": np.where(np.abs(rows) < _FLOAT16_TINY, 0, rows).astype(np.float16).reshape(-1)}
    low, high = rows.min(axis=1), rows.max(axis=1)
    offset, scale = low.astype(np.float32), ((high - low) / _LEVELS).astype(np.float32)
    steps = np.where(scale > 0, scale, 1)[:, None]
    levels = np.clip(np.rint((rows - offset[:, None]) / steps), 0, _LEVELS)
    return {"pixels": levels.astype(np.uint8).reshape(-1), "offset": offset, "scale": scale}


def unpack_images(tensors: Mapping[str, NDArray[Any]], shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return the images (n, *shape) of such tensors. Raises `ValueError` unless they are of whole images of that shape,
    each with an offset and a scale of its own."""
    size = int(np.prod(shape))
    if len(tensors["pixels"]) % size:
        raise ValueError(f"{len(tensors['pixels'])} pixels are no whole images of {size}")
    rows = tensors["pixels"].astype(np.float32).reshape(-1, size)
    if "scale" in tensors:
        counts = {len(rows), len(tensors["offset"]), len(tensors["scale"])}
        if len(counts) > 1:
            raise ValueError(f"{len(rows)} images, {len(tensors['offset'])} offsets, {len(tensors['scale'])} scales")
        rows = tensors["offset"][:, None] + tensors["scale"][:, None] * rows
    return rows.astype(np.float32, copy=False).reshape(-1, *shape)
