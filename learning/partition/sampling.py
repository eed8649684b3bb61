"""Helpers that the partitions share: shuffling examples and handing them out."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
"""Positions of examples in the data set, (n,)."""


def draw_class(labels: Indices, label: int, rng: np.random.Generator) -> Indices:
    """Return the examples of one class in random order."""
    return rng.permutation(np.flatnonzero(labels == label))


def cut_in_shares(examples: Indices, shares: NDArray[np.float64]) -> list[Indices]:
    """Cut the examples into parts of these shares, whose sum need not be 1; every example is in one part."""
    cuts = (np.cumsum(shares / shares.sum()) * len(examples)).astype(np.int64)[:-1]
    return [examples[begin:end] for begin, end in pairwise((0, *cuts, len(examples)))]


def concatenate_parts(dealt: Sequence[Sequence[Indices]]) -> list[Indices]:
    """Put together the examples that each client got in several hands."""
    return [np.concatenate(parts) for parts in dealt]
