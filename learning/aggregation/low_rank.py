"""The mean of low-rank products: to the bit, as all aggregation (`mean.py`). K posts, r rank."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def residual_of_means(
    downs: Sequence[NDArray[Any]],
    ups: Sequence[NDArray[Any]],
    weights: Sequence[float],
    means: tuple[NDArray[Any], NDArray[Any]],
) -> NDArray[np.float64]:
    """Return sum_k w_k B_k A_k / sum_k w_k - B A, (out, in), not rounded yet.

    Products are added up one column of B and row of A after another, without BLAS, whose order depends on the machine.

    Args:
        downs: A_k, (r, in) each.
        ups: B_k, (out, r) each.
        weights: w_k, not all 0.
        means: A and B that stand in place of all.
    """
    total = np.zeros((len(ups[0]), downs[0].shape[1]))
    product = np.empty_like(total)
    for down, up, weight in zip(downs, ups, weights, strict=True):
        _add_product(total, product, up.astype(np.float64) * weight, down)
    total /= math.fsum(weights)
    _add_product(total, product, -means[1].astype(np.float64), means[0])
    return total


def _add_product(
    total: NDArray[np.float64], product: NDArray[np.float64], up: NDArray[np.float64], down: NDArray[Any]
) -> None:
    """Add B A to the total; `product` is overwritten."""
    for column, row in zip(up.T, down.astype(np.float64), strict=True):
        np.multiply(column[:, None], row, out=product)
        total += product
