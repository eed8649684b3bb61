"""The arithmetic of aggregation, to the bit: two machines that disagree in one bit would fork the chain.

Elementwise numpy in float64, operand after operand in the order given, one rounding to float32 at the end.
Nothing here may use `sum` over an axis (its order depends on layout and SIMD width), BLAS, exp or pow.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

WEIGHT_MAX = 1 << 24
"""Largest weight. Times a float32 it still fits float64's 53 bits, so each product is exact."""


def weighted_mean(arrays: Sequence[NDArray[np.float32]], weights: Sequence[int]) -> NDArray[np.float32]:
    """Return sum_k w_k a_k / sum_k w_k of equally shaped arrays, for weights in 1..WEIGHT_MAX."""
    total = np.zeros(arrays[0].shape, dtype=np.float64)
    for array, weight in zip(arrays, weights, strict=True):
        total += array.astype(np.float64) * float(weight)
    mean: NDArray[np.float32] = (total / float(sum(weights))).astype(np.float32)
    return mean


def weighted_sum(arrays: Sequence[NDArray[np.float32]], weights: Sequence[float]) -> NDArray[np.float64]:
    """Return sum_k w_k a_k of equally shaped arrays, not rounded yet."""
    total = np.zeros(arrays[0].shape, dtype=np.float64)
    for array, weight in zip(arrays, weights, strict=True):
        total += array.astype(np.float64) * weight
    return total


def round_once(array: NDArray[np.float64]) -> NDArray[np.float32]:
    """Round to float32. What lies beyond its range becomes its largest number: no post may make knowledge infinite."""
    limit = float(np.finfo(np.float32).max)
    rounded: NDArray[np.float32] = np.clip(array, -limit, limit).astype(np.float32)
    return rounded
