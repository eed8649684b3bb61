"""Aggregation rules that a minority of liars cannot move far, to the bit: every machine must come to the same bytes.

* trimmed mean and median, coordinate by coordinate: Yin et al., "Byzantine-Robust Distributed Learning: Towards Optimal
  Statistical Rates", ICML 2018 (arXiv:1803.01498);
* Krum and Multi-Krum: Blanchard et al., "Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent",
  NeurIPS 2017 (arXiv:1703.02757);
* clipping: Karimireddy et al., "Learning from History for Byzantine Robust Optimization", ICML 2021 (arXiv:2012.10333);
* geometric median: Pillutla et al., "Robust Aggregation for Federated Learning", IEEE Transactions on Signal Processing
  70, 2022 (arXiv:1912.13445);
* nearest-neighbour mixing: Allouah et al., "Fixing by Mixing: A Recipe for Optimal Byzantine ML under Heterogeneity",
  AISTATS 2023 (arXiv:2302.01772).

K posts, n elements of each in a block. Elementwise numpy in float64 and one rounding to float32 at the end, as in
`mean.py`. Sums over a block's elements fold halves onto each other, sums over posts go in the order of the posts'
content: who sent what, and in which order, changes no bit. No integers are computed with, so that none can overflow,
and float64 holds the squares of all float32 numbers.
"""

import hashlib
import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedchain.learning.aggregation.mean import round_once
from fedchain.learning.payload.lazy import LazyTensors

RuleName = Literal["mean", "median", "trimmed_mean", "clipping", "krum", "multi_krum", "geometric_median"]

BLOCK = 1 << 13
"""Elements worked on together: beside the posts, memory holds the result and some blocks of all posts."""

WEISZFELD_STEPS = 8
"""Steps towards the geometric median, from the median on."""

WEISZFELD_FLOOR = 1e-6
"""Shortest distance, in the posts' own units, that a step divides by: a post may be the geometric median itself."""

Tensors = Mapping[str, NDArray[Any]]
Rows = NDArray[np.float64]
"""(K, n)."""
Row = NDArray[np.float64]
"""(n,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RobustRule:
    """A rule and its settings. It gives all posts the same weight: what a member says of itself buys no influence."""

    name: RuleName
    """Which rule."""

    byzantine: int = 0
    """Number b of posts that may be lies. Where fewer than 2b + 1 came, the rule reckons with as many as can be
    outvoted, (K - 1) // 2: it never refuses, because a round that nobody can aggregate would end the chain."""

    neighbour_mixing: bool = False
    """Whether each post is first replaced by the mean of the K - b posts nearest to it, itself among them."""

    clipping_norm: float = 0.0
    """clipping: largest L2 norm of a post's distance to the centre; 0: the (lower) median of the posts' distances."""

    def combine(self, posted: Sequence[Tensors], before: Tensors | None = None) -> LazyTensors:
        """Combine at least one post; float32 tensors with the names and shapes of the first.

        Rules that compare posts look at all of them now, block by block; each tensor is combined when it is asked for.

        Args:
            posted: float32 tensors of the same names and shapes. All tensors of a post are one vector to the rules
                that look at distances.
            before: earlier values of the same tensors, the centre of clipping; the median for a missing one.
        """
        posts = _Posts(sorted(posted, key=_digest), before or {})
        liars = min(self.byzantine, (len(posted) - 1) // 2)
        if self.neighbour_mixing:
            posts.neighbours = _nearest(_squared_distances(posts), len(posted) - liars)
        return posts.collect(_RULES[self.name](posts, liars, self.clipping_norm))


def squared_distances(posted: Sequence[Tensors]) -> list[list[float]]:
    """||x_i - x_j||^2 between all posts, (K, K); all tensors of a post are one vector."""
    return _squared_distances(_Posts(posted, {}))


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """The same elements of all posts."""

    name: str
    begin: int
    rows: Rows
    before: Row | None


class _Posts:
    """Posts as vectors that are read in blocks; `neighbours`, once set, says of which posts each becomes the mean."""

    def __init__(self, tensors: Sequence[Tensors], before: Tensors) -> None:
        self.count = len(tensors)
        self.neighbours: Sequence[Sequence[int]] = ()
        self._shapes = {name: tensor.shape for name, tensor in tensors[0].items()}
        self._flat = {name: [own[name].reshape(-1) for own in tensors] for name in self._shapes}
        self._before = {name: before[name].reshape(-1) for name in self._shapes if name in before}

    def blocks(self) -> Iterator[_Block]:
        return itertools.chain.from_iterable(map(self._blocks, self._flat))

    def collect(self, combine: "_Combine") -> LazyTensors:
        """Combine block after block of a tensor."""
        return LazyTensors({name: partial(self._combined, name, combine) for name in self._flat})

    def _blocks(self, name: str) -> Iterator[_Block]:
        tensors, before = self._flat[name], self._before.get(name)
        for begin in range(0, len(tensors[0]), BLOCK):
            part = slice(begin, begin + BLOCK)
            rows = np.stack([tensor[part] for tensor in tensors]).astype(np.float64)
            mixed = np.stack([_mean(rows[places]) for places in self.neighbours]) if self.neighbours else rows
            yield _Block(name, begin, mixed, None if before is None else before[part].astype(np.float64))

    def _combined(self, name: str, combine: "_Combine") -> NDArray[np.float32]:
        found = np.empty(math.prod(self._shapes[name]), dtype=np.float32)
        for block in self._blocks(name):
            found[block.begin : block.begin + block.rows.shape[1]] = round_once(combine(block))
        return found.reshape(self._shapes[name])


_Combine = Callable[[_Block], Row]
"""The rest of a rule, once it has looked at all posts: it combines one block of coordinates."""


def _plain_mean(posts: _Posts, liars: int, clipping_norm: float) -> _Combine:
    return lambda block: _mean(block.rows)


def _coordinate_median(posts: _Posts, liars: int, clipping_norm: float) -> _Combine:
    return lambda block: _median(block.rows)


def _trimmed_mean(posts: _Posts, liars: int, clipping_norm: float) -> _Combine:
    """The mean without the b lowest and the b highest values of each coordinate (Yin et al., Definition 2)."""
    return lambda block: _mean(np.sort(block.rows, axis=0)[liars : posts.count - liars])


def _clipping(posts: _Posts, liars: int, clipping_norm: float) -> _Combine:
    """v + 1/K sum_i (x_i - v) min(1, tau / ||x_i - v||): one step of centred clipping (Karimireddy et al.)."""
    norms = [math.sqrt(square) for square in _squared_distances_to(posts, _centre)]  # (K,)
    bound = clipping_norm or statistics.median_low(norms)  # tau
    factors = [1.0 if norm <= bound else bound / norm for norm in norms]

    def combine(block: _Block) -> Row:
        centre = _centre(block)
        return centre + _weighted(block.rows - centre, factors) / posts.count

    return combine


def _krum(posts: _Posts, liars: int, clipping_norm: float) -> _Combine:
    """The post with the lowest score; of equal ones the first by content."""
    (best, *_) = _by_score(posts, liars)
    return lambda block: block.rows[best]


def _multi_krum(posts: _Posts, liars: int, clipping_norm: float) -> _Combine:
    """The mean of the K - b posts with the lowest scores."""
    chosen = sorted(_by_score(posts, liars)[: posts.count - liars])
    return lambda block: _mean(block.rows[chosen])


def _geometric_median(posts: _Posts, liars: int, clipping_norm: float) -> _Combine:
    """The point with the least sum of distances, by Weiszfeld's steps z <- sum_i w_i x_i, w_i ~ 1 / ||x_i - z||."""

    def middle(block: _Block) -> Row:
        return _weighted(block.rows, weights)

    weights = _inverse_distances(posts, lambda block: _median(block.rows))
    for _ in range(WEISZFELD_STEPS - 1):
        weights = _inverse_distances(posts, middle)
    return middle


_RULES: Mapping[RuleName, Callable[[_Posts, int, float], _Combine]] = MappingProxyType(
    {
        "mean": _plain_mean,
        "median": _coordinate_median,
        "trimmed_mean": _trimmed_mean,
        "clipping": _clipping,
        "krum": _krum,
        "multi_krum": _multi_krum,
        "geometric_median": _geometric_median,
    }
)


def _by_score(posts: _Posts, liars: int) -> list[int]:
    """Places of the posts, the lowest score first: the sum of the squared distances to the K - b - 1 nearest others.

    Blanchard et al. leave out one neighbour more; with byzfl and Allouah et al. all that may be honest count.
    """
    squares = _squared_distances(posts)
    nearest = [sorted(square for j, square in enumerate(row) if j != i) for i, row in enumerate(squares)]
    scores = [math.fsum(row[: posts.count - liars - 1]) for row in nearest]
    return sorted(range(posts.count), key=lambda place: (scores[place], place))


def _nearest(squares: Sequence[Sequence[float]], count: int) -> list[list[int]]:
    """For each post the places of the `count` posts nearest to it, ascending; itself, and of equally near the first."""
    places = range(len(squares))
    ranked = [sorted(places, key=lambda j: (j != i, squares[i][j], j)) for i in places]
    return [sorted(row[:count]) for row in ranked]


def _inverse_distances(posts: _Posts, point: _Combine) -> list[float]:
    """1 / ||x_i - z||, divided by their sum, (K,)."""
    squares = _squared_distances_to(posts, point)
    inverse = [1.0 / max(WEISZFELD_FLOOR, math.sqrt(square)) for square in squares]
    total = math.fsum(inverse)
    return [value / total for value in inverse]


def _squared_distances(posts: _Posts) -> list[list[float]]:
    """Those of the posts as they are read: of their mixtures, once they have neighbours."""
    total = np.zeros((posts.count, posts.count))
    for block in posts.blocks():
        for i in range(posts.count - 1):
            squares = np.square(block.rows[i + 1 :] - block.rows[i])
            total[i, i + 1 :] += _fold(squares)
    squared: list[list[float]] = (total + total.T).tolist()
    return squared


def _squared_distances_to(posts: _Posts, point: _Combine) -> list[float]:
    """||x_i - z||^2 of all posts to a point that is given block by block, (K,)."""
    total = np.zeros(posts.count)
    for block in posts.blocks():
        total += _fold(np.square(block.rows - point(block)))
    squared: list[float] = total.tolist()
    return squared


def _fold(rows: Rows) -> NDArray[np.float64]:
    """Sum each row, (K,), by adding its second half to its first until one element is left; `rows` is used up."""
    size = rows.shape[1]
    while size > 1:
        half = size // 2
        rows[:, :half] += rows[:, size - half : size]
        size -= half
    return rows[:, 0]


def _centre(block: _Block) -> Row:
    return _median(block.rows) if block.before is None else block.before


def _median(rows: Rows) -> Row:
    """The middle value of each coordinate; of an even number of posts the mean of both."""
    ordered, count = np.sort(rows, axis=0), len(rows)
    middle: Row = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2.0
    return middle


def _mean(rows: Rows) -> Row:
    return _weighted(rows, [1.0] * len(rows)) / float(len(rows))


def _weighted(rows: Rows, weights: Sequence[float]) -> Row:
    """sum_i w_i x_i, row after row: a sum over an axis would choose its order itself."""
    total = np.zeros(rows.shape[1])
    for row, weight in zip(rows, weights, strict=True):
        total += row * weight
    return total


def _digest(tensors: Tensors) -> bytes:
    """A place in an order that depends on the content alone."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(np.ascontiguousarray(tensors[name]).data)
    return digest.digest()
