"""The largest changes of each chunk: Sarfi et al., "Communication Efficient LLM Pre-training with SparseLoCo", 2025
(arXiv:2508.15706).

A tensor is cut into chunks of `CHUNK` numbers, the last of which is shorter. N numbers of all chunks are posted.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedchain.files.spool import InMemory, Spools
from fedchain.learning.compression.bits import (
    AscendingWriter,
    BitWriter,
    high_count,
    low_width,
    packed_size,
    read_ascending,
    read_bits,
)
from fedchain.learning.compression.compressor import CHANGE_MAX, NAME, Change, Compressor
from fedchain.learning.exceptions import InvalidPayload
from fedchain.learning.payload.spec import TensorSpec
from fedchain.learning.round import Tensors

CHUNK = 4096
"""Numbers of a chunk."""

CHUNKS = 16
"""Chunks that are looked at together."""

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

    def pack(
        self,
        changes: Iterable[NDArray[np.float32]],
        sizes: Sequence[int],
        generator: np.random.Generator,
        spools: Spools = InMemory,
    ) -> dict[str, NDArray[Any]]:
        """Choose each chunk's largest; of equal ones, any."""
        cut = _cut(tuple(sizes), self.k)
        positions, values, levels = AscendingWriter(cut.count, cut.below, spools), spools(), BitWriter(spools)
        scales, number = np.empty((len(cut.kept), 2), dtype=np.float32), 0
        for change in changes:
            for begin in range(0, change.size, CHUNKS * CHUNK):
                chunks = _chunks(change[begin : begin + CHUNKS * CHUNK])
                here = slice(number, number + len(chunks))
                chosen = [
                    np.sort(np.argpartition(-np.abs(chunk), kept - 1)[:kept])
                    for chunk, kept in zip(chunks, cut.kept[here].tolist(), strict=True)
                ]
                positions.write(np.concatenate(chosen) + np.repeat(cut.begins[here], cut.kept[here]))
                said = [
                    np.clip(chunk[where], -CHANGE_MAX, CHANGE_MAX) for chunk, where in zip(chunks, chosen, strict=True)
                ]
                if self.is_quantized:
                    pairs = [_magnitudes(value) for value in said]  # the small one and the large one of each chunk
                    levels.write(
                        np.concatenate([_quantize(value, *pair) for value, pair in zip(said, pairs, strict=True)]), 2
                    )
                    scales[here] = pairs
                else:
                    values.write(np.concatenate(said).data)
                number += len(chunks)
        packed = dict(zip((_LOW, _HIGH), positions.end(), strict=True))
        if not self.is_quantized:
            return packed | {_VALUES: np.frombuffer(values.content(b""), dtype=np.float32)}
        return packed | {_LEVELS: levels.end(), _SCALES: scales}

    def unpack(self, packed: Tensors, sizes: Sequence[int]) -> Iterator[Iterator[Change]]:
        """Positions ascend strictly, and each chunk has as many as it should."""
        cut = _cut(tuple(sizes), self.k)
        found = np.zeros(len(cut.kept), dtype=np.int64)
        for where in self._positions(packed, cut):
            chunks = cut.chunks_of(where)
            found[chunks[0] : chunks[-1] + 1] += np.bincount(chunks - chunks[0])
        if (differs := found != cut.kept).any():
            chunk = int(np.argmax(differs))
            raise InvalidPayload(f"{_POSITIONS} in chunk {chunk}: {cut.kept[chunk]} expected, found {found[chunk]}")
        parts, begin = _Parts(self._values(packed, cut)), 0
        for size, first, last in zip(sizes, cut.firsts[:-1], cut.firsts[1:], strict=True):
            yield parts.take(last - first, begin)
            begin += size

    def _positions(self, packed: Tensors, cut: "_Cut") -> Iterator[NDArray[np.int64]]:
        return read_ascending(_POSITIONS, packed[_LOW], packed[_HIGH], cut.count, cut.below)

    def _values(self, packed: Tensors, cut: "_Cut") -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
        """Positions among all numbers, and the changes there."""
        begin = 0
        if not self.is_quantized:
            for where in self._positions(packed, cut):
                yield where, packed[_VALUES][begin : begin + len(where)].astype(np.float64)
                begin += len(where)
            return
        all_levels = read_bits(_LEVELS, packed[_LEVELS], cut.count, 2)
        for where, levels in zip(self._positions(packed, cut), all_levels, strict=True):
            scales = packed[_SCALES][cut.chunks_of(where)].astype(np.float64)
            magnitudes = scales[np.arange(len(where)), (levels & _LARGE) // _LARGE]
            yield where, np.asarray(np.where(levels & _SIGN, -magnitudes, magnitudes))


class _Parts:
    """Changes of all vectors together, given out by vector."""

    def __init__(self, parts: Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]) -> None:
        self._parts = parts
        self._where, self._moves = np.empty(0, dtype=np.int64), np.empty(0)

    def take(self, count: int, begin: int) -> Iterator[Change]:
        """Yield the next ones, of a vector that begins there."""
        while count:
            if not len(self._where):
                self._where, self._moves = next(self._parts)
            yield self._where[:count] - begin, self._moves[:count]
            taken = min(count, len(self._where))
            self._where, self._moves = self._where[taken:], self._moves[taken:]
            count -= taken


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

    def chunks_of(self, where: NDArray[np.int64]) -> NDArray[np.intp]:
        """The chunk of each position (n,), among all numbers."""
        return np.searchsorted(self.begins, where, side="right") - 1


@lru_cache(maxsize=16)
def _cut(tensors: tuple[int, ...], k: int) -> _Cut:
    chunks = [[min(CHUNK, size - begin) for begin in range(0, size, CHUNK)] for size in tensors]
    kept = [[-(-k * size // CHUNK) for size in of_tensor] for of_tensor in chunks]
    sizes = np.array([size for of_tensor in chunks for size in of_tensor], dtype=np.int64)
    firsts = np.cumsum([0, *(sum(of_tensor) for of_tensor in kept)]).tolist()
    counts = np.array([count for of_tensor in kept for count in of_tensor], dtype=np.int64)
    return _Cut(sum(tensors), counts, np.cumsum(sizes) - sizes, tuple(firsts))


def _chunks(change: NDArray[np.float32]) -> list[NDArray[np.float32]]:
    return [change[begin : begin + CHUNK] for begin in range(0, change.size, CHUNK)]


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
