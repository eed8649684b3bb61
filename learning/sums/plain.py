"""Class vectors in clear: everybody sees each member's, so any rule may make one of them. n classes, D numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedchain.learning.aggregation.mean import WEIGHT_MAX, weighted_mean
from fedchain.learning.aggregation.robust import RobustRule
from fedchain.learning.exceptions import InvalidPayload
from fedchain.learning.method import Phase
from fedchain.learning.payload.spec import TensorSpec
from fedchain.learning.sums.scheme import SumScheme, known_spec, validate_ascending, vectors_spec

if TYPE_CHECKING:
    from fedchain.learning.client import Client
    from fedchain.learning.models.model_info import ModelInfo
    from fedchain.learning.round import ReadPost, Round, Tensors

Counted = Literal["holders", "all", "samples"]
"""The clients that count in a class's mean: its holders, all, or its holders by their examples."""


@dataclass(frozen=True, slots=True)
class _Posted:
    """A client's prototype of one class."""

    sender: bytes
    """The client."""

    count: int
    """Its examples of the class."""

    weight: float
    """1, or what the method gives a post that comes late."""

    prototype: NDArray[np.float32]
    """(D,)."""


@dataclass(frozen=True)
class PlainSums(SumScheme):
    """One phase; the mean, or another rule's result, of each class that anybody posted."""

    counted: Counted
    """Which clients count; rules other than the mean take holders."""

    rule: RobustRule | None
    """The rule in place of the mean; None: the mean."""

    hides: ClassVar[bool] = False
    counts_late: ClassVar[bool] = True

    def payload_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """The client's classes, the examples behind each, and their prototypes."""
        counts = TensorSpec("counts", (-1,), "int64", free_max=info.classes, minimum=1, maximum=WEIGHT_MAX)
        return (*vectors_spec(info), counts)

    def knowledge_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """The known classes, the clients behind each, and the global prototypes."""
        return known_spec(info)

    def hide(self, posted: Tensors, client: Client, round: Round) -> Tensors:
        """Post them as they are."""
        return posted

    def check(self, phase: Phase, post: ReadPost, round: Round) -> None:
        """Labels ascend strictly, with one count and one prototype each."""
        labels = post.payload["labels"]
        validate_ascending(labels)
        for name in ("counts", "prototypes"):
            if len(post.payload[name]) != len(labels):
                found = len(post.payload[name])
                raise InvalidPayload(f"{name}: one for each of {len(labels)} labels expected, found {found}")

    def aggregate(self, phase: Phase, round: Round) -> Tensors:
        """Average each class over its holders, or as `counted` and the rule say; a late prototype counts by its weight.

        A client that is counted for two rounds holds a class once.
        """
        posts = [(post, 1.0) for post in round.posts] + [(late.post, late.weight) for late in round.late]
        posted: dict[int, list[_Posted]] = {}  # by label, in sender order, and then those that are late
        for post, weight in posts:
            payload = post.payload
            for label, count, prototype in zip(
                payload["labels"].tolist(), payload["counts"].tolist(), payload["prototypes"], strict=True
            ):
                posted.setdefault(label, []).append(_Posted(post.sender, count, weight, prototype))
        labels, everybody = sorted(posted), math.fsum(weight for _, weight in posts)
        before = {} if round.knowledge is None else _by_label(round.knowledge)
        prototypes = [self._combine(posted[label], everybody, before.get(label)) for label in labels]
        return {
            "labels": np.array(labels, dtype=np.int64),  # (n,)
            "holders": np.array([len({item.sender for item in posted[label]}) for label in labels], dtype=np.int64),
            "prototypes": np.stack(prototypes),  # (n, D)
        }

    def _combine(
        self, posted: list[_Posted], everybody: float, before: NDArray[np.float32] | None
    ) -> NDArray[np.float32]:
        """Return the prototype (D,) of one class, whose last global prototype is `before`, if it had one.

        `everybody` is the weight of all posts, with and without the class.
        """
        prototypes, weights = [item.prototype for item in posted], [item.weight for item in posted]
        if self.rule is not None:
            known = None if before is None else {"prototype": before}
            return self.rule.combine([{"prototype": prototype} for prototype in prototypes], known)["prototype"]
        if self.counted == "samples":
            return weighted_mean(prototypes, [item.weight * item.count for item in posted])
        if self.counted == "all":
            absent = everybody - math.fsum(weights)
            return weighted_mean([*prototypes, np.zeros_like(prototypes[0])], [*weights, absent])
        return weighted_mean(prototypes, weights)


def _by_label(knowledge: Tensors) -> dict[int, NDArray[np.float32]]:
    """The global prototype (D,) of each known class."""
    return dict(zip(knowledge["labels"].tolist(), knowledge["prototypes"], strict=True))
