"""Class vectors in clear: three ways to count, a rule in place of the mean, and posts that contradict themselves."""

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from fedchain.learning.aggregation.robust import RobustRule
from fedchain.learning.application import Application
from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import InvalidPayload
from fedchain.learning.payload.codec import encode
from fedchain.learning.round import OffChain, Round, Tensors
from fedchain.learning.sums.plain import Counted, PlainSums
from tests.support.learning.federation import posts


def posted(labels: list[int], counts: list[int], prototypes: list[list[float]]) -> Tensors:
    return {
        "labels": np.array(labels, np.int64),
        "counts": np.array(counts, np.int64),
        "prototypes": np.array(prototypes, np.float32).reshape(-1, 2),
    }


THREE = (
    posted([0, 2], [1, 5], [[3, 0], [1, 1]]),
    posted([0], [3], [[7, 4]]),
    posted([], [], []),
)


def aggregate(scheme: PlainSums, payloads: tuple[Tensors, ...] = THREE) -> Tensors:
    return scheme.aggregate(scheme.phases[0], Round(1, None, posts(payloads)))


@pytest.mark.parametrize(
    ("counted", "of_class_0", "of_class_2"),
    [("holders", [5, 2], [1, 1]), ("all", [10 / 3, 4 / 3], [1 / 3, 1 / 3]), ("samples", [6, 3], [1, 1])],
)
def test_each_class_is_averaged_over_the_clients_that_count(
    counted: Counted, of_class_0: list[float], of_class_2: list[float]
) -> None:
    known = aggregate(PlainSums(counted, None))
    assert known["labels"].tolist() == [0, 2]
    assert known["holders"].tolist() == [2, 1]
    np.testing.assert_allclose(known["prototypes"], [of_class_0, of_class_2], rtol=1e-6)


def test_a_rule_takes_the_place_of_the_mean_and_is_shown_the_class_s_last_prototype() -> None:
    seen: list[Any] = []

    class Last(RobustRule):
        """The last client's."""

        def combine(self, posted: Any, before: Any = None) -> Any:
            seen.append(before)
            return posted[-1]

    scheme = PlainSums("holders", Last(name="median"))
    known = {"labels": np.array([2]), "prototypes": np.array([[9, 9]], np.float32)}
    found = scheme.aggregate(scheme.phases[0], Round(2, known, posts(THREE)))
    assert found["prototypes"].tolist() == [[7, 4], [1, 1]]
    assert seen[0] is None
    assert seen[1]["prototype"].tolist() == [9, 9]


@pytest.mark.parametrize(
    ("post", "message"),
    [
        (posted([2, 0], [1, 1], [[0, 0], [0, 0]]), "labels"),
        (posted([0, 2], [1], [[0, 0], [0, 0]]), "counts: one for each of 2 labels expected, found 1"),
        (posted([0], [1], [[0, 0], [0, 0]]), "prototypes: one for each of 1 labels expected, found 2"),
    ],
)
def test_a_post_needs_ascending_labels_with_a_count_and_a_prototype_each(post: Tensors, message: str) -> None:
    scheme = PlainSums("holders", None)
    with pytest.raises(InvalidPayload, match=message):
        scheme.check(scheme.phases[0], posts([post])[0], Round(1, None))
    for good in THREE:
        scheme.check(scheme.phases[0], posts([good])[0], Round(1, None))


@pytest.mark.parametrize(("label", "is_one"), [(0, True), (9, True), (10, False), (-1, False)])
def test_a_label_is_that_of_one_of_the_task_s_classes(label: int, is_one: bool) -> None:
    rules = Application(LearningConfig(method="dfpl", clients=3))
    prototypes = np.zeros((1, rules.info.embedding_size), np.float32)
    payload = encode({"labels": np.array([label]), "counts": np.array([1]), "prototypes": prototypes})
    with nullcontext() if is_one else pytest.raises(InvalidPayload, match="labels"):
        rules.check(OffChain("update", 1), b"sender", b"", payload)
