"""The largest changes of each chunk: Sarfi et al., "Communication Efficient LLM Pre-training with SparseLoCo", 2025
(arXiv:2508.15706).

A tensor is cut into chunks of `CHUNK` numbers, the last of which is shorter. N numbers of all chunks are posted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedchain.learning.compression.bits import (
    high_count,
    low_width,
    pack_ascending,
    pack_bits,
    packed_size,
    unpack_ascending,
    unpack_bits,
)
from fedchain.learning.compression.compressor import CHANGE_MAX, NAME, Change, Compressor
from fedchain.learning.exceptions import InvalidPayload
from fedchain.learning.payload.spec import TensorSpec
from fedchain.learning.round import Tensors

CHUNK = 4096
"""Numbers of a chunk."""

_SIGN, _LARGE = 1, 2
"""Bits of a quantized number."""

_LOW, _HIGH, _VALUES, _LEVELS, _SCALES = (NAME + name for name in ("low", "high", "values", "levels", "scales"))

_POSITIONS = NAME + "positions"
"""Name of both halves of the positions in errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopK(Compressor):
    """The k changes of largest magnitude in each chunk; of a chunk of n < 4096 numbers, k n / 4096, rounded up."""

    k: int
    """Numbers of a whole chunk that are posted, 1 to 4096."""

    is_quantized: bool
    """Whether a change is its sign and one of two magnitudes, which each chunk states; otherwise it is a float32."""

    error_decay: float = 1.0
    """Factor of what was left out, each time that more is; SparseLoCo takes 0.95."""

    @property
    def kept(self) -> float:
        """As stated."""
        return self.error_decay

    def spec(self, sizes: Sequence[int]) -> tuple[TensorSpec, ...]:
        """Positions among all numbers, ascending; changes (N,), or 2 bits each and scales (chunks, 2)."""
        cut = _cut(tuple(sizes), self.k)
        positions = (
            TensorSpec(_LOW, (packed_size(cut.count, low_width(cut.count, cut.below)),), "uint8"),
            TensorSpec(_HIGH, (packed_size(high_count(cut.count, cut.below), 1),), "uint8"),
        )
        if not self.is_quantized:
            return *positions, TensorSpec(_VALUES, (cut.count,), magnitude_max=CHANGE_MAX)
        return (
            *positions,
            TensorSpec(_LEVELS, (packed_size(cut.count, 2),), "uint8"),
            TensorSpec(_SCALES, (len(cut.kept), 2), minimum=0, magnitude_max=CHANGE_MAX),
        )

    def pack(self, changes: Sequence[NDArray[np.float32]], generator: np.random.Generator) -> dict[str, NDArray[Any]]:
        """Choose each chunk's largest; of equal ones, any."""
        cut = _cut(tuple(change.size for change in changes), self.k)
        chunks = [change[begin : begin + CHUNK] for change in changes for begin in range(0, change.size, CHUNK)]
        chosen = [
            np.sort(np.argpartition(-np.abs(chunk), kept - 1)[:kept])
            for chunk, kept in zip(chunks, cut.kept.tolist(), strict=True)
        ]
        values = [np.clip(chunk[places], -CHANGE_MAX, CHANGE_MAX) for chunk, places in zip(chunks, chosen, strict=True)]
        where = np.concatenate(chosen) + np.repeat(cut.begins, cut.kept)
        packed = dict(zip((_LOW, _HIGH), pack_ascending(where, cut.below), strict=True))
        if not self.is_quantized:
            return packed | {_VALUES: np.concatenate(values)}
        scales = [_magnitudes(value) for value in values]  # the small one and the large one of each chunk
        levels = [_quantize(value, *pair) for value, pair in zip(values, scales, strict=True)]
        return packed | {
            _LEVELS: pack_bits(np.concatenate(levels), 2),
            _SCALES: np.array(scales, dtype=np.float32).reshape(-1, 2),
        }

    def unpack(self, packed: Tensors, sizes: Sequence[int]) -> Iterator[Change]:
        """Positions ascend strictly, and each chunk has as many as it should."""
        cut = _cut(tuple(sizes), self.k)
        where = unpack_ascending(_POSITIONS, packed[_LOW], packed[_HIGH], cut.count, cut.below)
        chunk_of = np.searchsorted(cut.begins, where, side="right") - 1  # (N,)
        found = np.bincount(chunk_of, minlength=len(cut.kept))
        if (differs := found != cut.kept).any():
            chunk = int(np.argmax(differs))
            raise InvalidPayload(f"{_POSITIONS} in chunk {chunk}: {cut.kept[chunk]} expected, found {found[chunk]}")
        values = self._values(packed, cut, chunk_of)
        begin = 0
        for size, first, last in zip(sizes, cut.firsts[:-1], cut.firsts[1:], strict=True):
            yield where[first:last] - begin, values[first:last]
            begin += size

    def _values(self, packed: Tensors, cut: "_Cut", chunk_of: NDArray[np.intp]) -> NDArray[np.float64]:
        if not self.is_quantized:
            return np.asarray(packed[_VALUES].astype(np.float64))
        levels = unpack_bits(_LEVELS, packed[_LEVELS], cut.count, 2)
        magnitudes = packed[_SCALES].astype(np.float64)[chunk_of, (levels & _LARGE) // _LARGE]
        return np.asarray(np.where(levels & _SIGN, -magnitudes, magnitudes))


@dataclass(frozen=True, slots=True, eq=False)
class _Cut:
    """How tensors are cut into chunks."""

    below: int
    """Numbers of all tensors."""

    kept: NDArray[np.int64]
    """How many numbers of each chunk are posted."""

    begins: NDArray[np.int64]
    """Where each chunk begins among the numbers of all tensors."""

    firsts: tuple[int, ...]
    """Where each tensor begins among the posted numbers, and their number at the end."""

    @property
    def count(self) -> int:
        """Posted numbers, N."""
        return self.firsts[-1]


@lru_cache(maxsize=16)
def _cut(tensors: tuple[int, ...], k: int) -> _Cut:
    chunks = [[min(CHUNK, size - begin) for begin in range(0, size, CHUNK)] for size in tensors]
    kept = [[-(-k * size // CHUNK) for size in of_tensor] for of_tensor in chunks]
    sizes = np.array([size for of_tensor in chunks for size in of_tensor], dtype=np.int64)
    firsts = np.cumsum([0, *(sum(of_tensor) for of_tensor in kept)]).tolist()
    counts = np.array([count for of_tensor in kept for count in of_tensor], dtype=np.int64)
    return _Cut(sum(tensors), counts, np.cumsum(sizes) - sizes, tuple(firsts))


def _magnitudes(values: NDArray[np.float32]) -> tuple[float, float]:
    """Two magnitudes with the least squared error: the means of the small ones and the large ones, split where their
    squared sums gain most."""
    ordered = np.sort(np.abs(values)).astype(np.float64)
    sums, count = np.cumsum(ordered), len(ordered)
    if count == 1:
        return ordered[0], ordered[0]
    small = np.arange(1, count)  # how many are small
    gains = sums[:-1] ** 2 / small + (sums[-1] - sums[:-1]) ** 2 / (count - small)
    split = int(np.argmax(gains)) + 1
    return sums[split - 1] / split, (sums[-1] - sums[split - 1]) / (count - split)


def _quantize(values: NDArray[np.float32], small: float, large: float) -> NDArray[np.int64]:
    is_large = np.abs(values) > (small + large) / 2
    return np.where(values < 0, _SIGN, 0) + np.where(is_large, _LARGE, 0)
