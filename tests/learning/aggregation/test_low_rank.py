"""The mean of products, and the product of means, which lacks something of it."""

import numpy as np
import pytest

from fedchain.learning.aggregation.low_rank import residual_of_means
from fedchain.learning.aggregation.mean import weighted_mean

K, OUT, RANK, IN = 4, 5, 3, 7
RNG = np.random.default_rng(1)
DOWNS = [RNG.normal(size=(RANK, IN)).astype(np.float32) for _ in range(K)]
UPS = [RNG.normal(size=(OUT, RANK)).astype(np.float32) for _ in range(K)]
WEIGHTS = [3.0, 1.0, 7.0, 2.0]


def test_means_and_residual_make_the_mean_of_the_products() -> None:
    means = weighted_mean(DOWNS, WEIGHTS), weighted_mean(UPS, WEIGHTS)
    dense = sum(
        weight * up.astype(float) @ down.astype(float) for up, down, weight in zip(UPS, DOWNS, WEIGHTS, strict=True)
    ) / sum(WEIGHTS)
    product = means[1].astype(float) @ means[0].astype(float)
    assert np.abs(dense - product).max() > 0.5, "nothing is lacking"
    assert product + residual_of_means(DOWNS, UPS, WEIGHTS, means) == pytest.approx(dense, abs=1e-12)


def test_members_that_agree_lack_nothing() -> None:
    found = residual_of_means(DOWNS[:1] * 3, UPS[:1] * 3, [1.0, 1.0, 1.0], (DOWNS[0], UPS[0]))
    assert np.abs(found).max() < 1e-14


def test_the_order_of_the_sums_is_fixed() -> None:
    """Bit for bit a plain loop over numbers, of which a product by BLAS would be no copy."""
    means = weighted_mean(DOWNS, WEIGHTS), weighted_mean(UPS, WEIGHTS)
    expected = np.zeros((OUT, IN))
    for i in range(OUT):
        for j in range(IN):
            total = 0.0
            for down, up, weight in zip(DOWNS, UPS, WEIGHTS, strict=True):
                for r in range(RANK):
                    total += (float(up[i, r]) * weight) * float(down[r, j])
            total /= sum(WEIGHTS)
            for r in range(RANK):
                total += -float(means[1][i, r]) * float(means[0][r, j])
            expected[i, j] = total
    assert residual_of_means(DOWNS, UPS, WEIGHTS, means).tobytes() == expected.tobytes()
