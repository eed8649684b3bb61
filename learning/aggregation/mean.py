"""The arithmetic of aggregation, to the bit: two machines that disagree in one bit would fork the chain.

Elementwise numpy in float64, operand after operand in the order given, one rounding to float32 at the end.
Nothing here may use `sum` over an axis (its order depends on layout and SIMD width), Python's own `sum` (from 3.12 on
it rounds sums of floats in another way), BLAS, exp or pow.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

WEIGHT_MAX = 1 << 24
"""Largest weight. Times a float32 it still fits float64's 53 bits, so each product is exact."""


_BLOCK = 1 << 14
"""Elements that are summed together: two rows of float64 of this length stay in the processor's cache."""


def weighted_mean(arrays: Sequence[NDArray[Any]], weights: Sequence[float]) -> NDArray[np.float32]:
    """Return sum_k w_k a_k / sum_k w_k of equally shaped float arrays, for weights of 0..WEIGHT_MAX, not all 0."""
    mean = np.empty(arrays[0].shape, dtype=np.float32)
    rounded, divisor = mean.reshape(-1), math.fsum(weights)
    for begin, total in _sums(arrays, [float(weight) for weight in weights]):
        np.divide(total, divisor, out=total)
        rounded[begin : begin + len(total)] = total
    return mean


def moved_mean(
    known: NDArray[Any], arrays: Sequence[NDArray[Any]], bases: Sequence[NDArray[Any]], weights: Sequence[float]
) -> NDArray[np.float32]:
    """Return v + sum_k w_k (a_k - b_k) / sum_k w_k of equally shaped float arrays, v what is known now.

    Where all b_k are v it is the weighted mean, but for rounding.
    """
    mean = np.empty(known.shape, dtype=np.float32)
    rounded, divisor, before = mean.reshape(-1), math.fsum(weights), known.reshape(-1)
    rows = [(array.reshape(-1), base.reshape(-1)) for array, base in zip(arrays, bases, strict=True)]
    for begin in range(0, before.size, _BLOCK):
        part = slice(begin, begin + _BLOCK)
        total = np.zeros(before[part].size)
        for (row, base), weight in zip(rows, weights, strict=True):
            total += np.subtract(row[part], base[part], dtype=np.float64) * weight
        rounded[part] = round_once(total / divisor + before[part])
    return mean


def by_block(
    arrays: Sequence[NDArray[Any]], compute: Callable[[Sequence[NDArray[Any]]], NDArray[np.float64]]
) -> NDArray[np.float32]:
    """Return what is computed element by element from equally shaped arrays, rounded once.

    A block of all arrays is computed at a time, (n,) each: beside them, memory holds the result alone.
    """
    found = np.empty(arrays[0].shape, dtype=np.float32)
    rows, rounded = [array.reshape(-1) for array in arrays], found.reshape(-1)
    for begin in range(0, rounded.size, _BLOCK):
        part = slice(begin, begin + _BLOCK)
        rounded[part] = round_once(compute([row[part] for row in rows]))
    return found


def weighted_sum(arrays: Sequence[NDArray[Any]], weights: Sequence[float]) -> NDArray[np.float64]:
    """Return sum_k w_k a_k of equally shaped float arrays, not rounded yet."""
    result = np.empty(arrays[0].shape, dtype=np.float64)
    flat = result.reshape(-1)
    for begin, total in _sums(arrays, weights):
        flat[begin : begin + len(total)] = total
    return result


def _sums(arrays: Sequence[NDArray[Any]], weights: Sequence[float]) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """Yield where each block begins and its sum, which is overwritten by the next one.

    An element's sum is 0 + w_1 a_1 + w_2 a_2 + ..., in this order, whatever the block.
    """
    rows = [array.reshape(-1) for array in arrays]
    sums, products = np.empty((2, _BLOCK), dtype=np.float64)
    for begin in range(0, rows[0].size, _BLOCK):
        size = min(_BLOCK, rows[0].size - begin)
        total, product = sums[:size], products[:size]
        total.fill(0.0)
        for row, weight in zip(rows, weights, strict=True):
            part: NDArray[Any] = row[begin : begin + size]
            if weight != 1.0:
                part = np.multiply(part, weight, out=product, dtype=np.float64)
            np.add(total, part, out=total)
        yield begin, total


def round_once(array: NDArray[np.float64]) -> NDArray[np.float32]:
    """Round to float32. A number beyond its range becomes its largest one: no post may make knowledge infinite."""
    limit = float(np.finfo(np.float32).max)
    rounded: NDArray[np.float32] = np.clip(array, -limit, limit).astype(np.float32)
    return rounded
