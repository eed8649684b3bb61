"""A byte for each number: Alistarh et al., "QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding",
NIPS 2017 (arXiv:1610.02132), with the largest magnitude of a tensor for its norm. P numbers of T tensors.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedchain.learning.compression.compressor import CHANGE_MAX, NAME, Change, Compressor
from fedchain.learning.payload.spec import TensorSpec
from fedchain.learning.round import Tensors

LEVELS = 127
"""Levels on either side of 0."""

_LEVELS, _SCALES = NAME + "levels", NAME + "scales"


@dataclass(frozen=True, slots=True)
class Int8(Compressor):
    """Each number is one of 255 multiples of its tensor's scale, rounded at random so that the mean is the number."""

    def spec(self, sizes: Sequence[int]) -> tuple[TensorSpec, ...]:
        """Levels (P,), with 127 for 0, and scales (T,)."""
        return (
            TensorSpec(_LEVELS, (sum(sizes),), "uint8", maximum=2 * LEVELS),
            TensorSpec(_SCALES, (len(sizes),), minimum=0, magnitude_max=CHANGE_MAX / LEVELS),
        )

    def pack(self, changes: Sequence[NDArray[np.float32]], generator: np.random.Generator) -> dict[str, NDArray[Any]]:
        """Stochastic rounding: floor(x / scale + u), u uniform in [0, 1)."""
        scales = np.array(
            [min(np.abs(change).max(initial=0.0), CHANGE_MAX) / LEVELS for change in changes], dtype=np.float32
        )
        scales[scales < np.finfo(np.float32).tiny] = 0.0
        levels = [_round(change, scale, generator) for change, scale in zip(changes, scales.tolist(), strict=True)]
        return {_LEVELS: np.concatenate(levels), _SCALES: scales}

    def unpack(self, packed: Tensors, sizes: Sequence[int]) -> Iterator[Change]:
        """Levels times scales, which is exact."""
        begin = 0
        for size, scale in zip(sizes, packed[_SCALES].tolist(), strict=True):
            levels = packed[_LEVELS][begin : begin + size].astype(np.float64) - LEVELS
            begin += size
            yield slice(None), levels * scale


def _round(change: NDArray[np.float32], scale: float, generator: np.random.Generator) -> NDArray[np.uint8]:
    drawn = generator.random(change.size)
    if scale == 0:
        return np.full(change.size, LEVELS, dtype=np.uint8)
    levels = np.floor(change / np.float64(scale) + drawn)
    rounded: NDArray[np.uint8] = (np.clip(levels, -LEVELS, LEVELS) + LEVELS).astype(np.uint8)
    return rounded
