"""A byte for each number: Alistarh et al., "QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding",
NIPS 2017 (arXiv:1610.02132), with the largest magnitude of a tensor for its norm. P numbers of T tensors.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedchain.files.spool import InMemory, Spools
from fedchain.learning.compression.compressor import BLOCK, CHANGE_MAX, NAME, Change, Compressor
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

    def pack(
        self,
        changes: Iterable[NDArray[np.float32]],
        sizes: Sequence[int],
        generator: np.random.Generator,
        spools: Spools = InMemory,
    ) -> dict[str, NDArray[Any]]:
        """Stochastic rounding: floor(x / scale + u), u uniform in [0, 1)."""
        spool, scales = spools(), np.zeros(len(sizes), dtype=np.float32)
        for place, change in enumerate(changes):
            largest = _largest(change)
            scale = np.float32((largest if largest < CHANGE_MAX else CHANGE_MAX) / LEVELS)
            if scale >= np.finfo(np.float32).tiny:
                scales[place] = scale
            for begin in range(0, change.size, BLOCK):
                part = change[begin : begin + BLOCK]
                spool.write(_round(part, float(scales[place]), generator).data)
        return {_LEVELS: np.frombuffer(spool.content(b""), dtype=np.uint8), _SCALES: scales}

    def unpack(self, packed: Tensors, sizes: Sequence[int]) -> Iterator[Iterator[Change]]:
        """Levels times scales, which is exact."""
        begin = 0
        for size, scale in zip(sizes, packed[_SCALES].tolist(), strict=True):
            yield _moves(packed[_LEVELS][begin : begin + size], scale)
            begin += size


def _moves(levels: NDArray[np.uint8], scale: float) -> Iterator[Change]:
    for begin in range(0, levels.size, BLOCK):
        part = slice(begin, begin + BLOCK)
        yield part, (levels[part].astype(np.float64) - LEVELS) * scale


def _largest(change: NDArray[np.float32]) -> np.float32:
    """The largest magnitude; 0 of none."""
    return np.float32(max(change.max(initial=0.0), -change.min(initial=0.0)))


def _round(change: NDArray[np.float32], scale: float, generator: np.random.Generator) -> NDArray[np.uint8]:
    drawn = generator.random(change.size)
    if scale == 0:
        return np.full(change.size, LEVELS, dtype=np.uint8)
    levels = np.floor(change / np.float64(scale) + drawn)
    rounded: NDArray[np.uint8] = (np.clip(levels, -LEVELS, LEVELS) + LEVELS).astype(np.uint8)
    return rounded
