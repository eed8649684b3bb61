"""Distributions and their weighted divergence, as numpy has them."""

from typing import Any

import numpy as np

RNG = np.random.default_rng(3)
LOGITS, THEIRS = RNG.normal(0, 2, (6, 4)), RNG.normal(0, 2, (6, 4))


def softmax(values: Any) -> Any:
    exponentials = np.exp(values)
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def weighted_kl(weights: Any, temperature: float) -> float:
    """T^2 E[sum_r w_r p_r log(p_r / q_r)], p the other side's, q one's own."""
    p, q = softmax(THEIRS / temperature), softmax(LOGITS / temperature)
    return float(temperature**2 * (weights * p * np.log(p / q)).sum() / 6)
