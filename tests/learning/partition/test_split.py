from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedchain.learning.config import PARTITIONS, LearningConfig
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.partition.split import draw_class_counts
from tests.support.learning.dealt import LABELS, TEST_LABELS, C, assert_sound, deal

KINDS = ("by-class", "by-class-equal", "by-source", "dirichlet", "dirichlet-hsu", "iid", "n-way", "n-way-exact")


def test_every_partition_is_tried() -> None:
    assert KINDS == PARTITIONS


@pytest.mark.parametrize("kind", KINDS)
@given(clients=st.integers(1, 40), seed=st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_clients_are_disjoint_and_none_is_empty(kind: str, clients: int, seed: int) -> None:
    assert_sound(deal(partition=kind, clients=clients, seed=seed), clients)


@pytest.mark.parametrize("kind", ["by-class", "by-class-equal", "by-source", "dirichlet", "dirichlet-hsu", "iid"])
def test_every_example_is_dealt(kind: str) -> None:
    partition = deal(partition=kind)
    assert np.array_equal(np.sort(np.concatenate(partition.train)), np.arange(len(LABELS)))
    assert np.array_equal(np.sort(np.concatenate(partition.test)), np.arange(len(TEST_LABELS)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_partition_repeats_and_changes_with_the_seed(kind: str) -> None:
    def flat(seed: int) -> bytes:
        return b"".join(part.tobytes() + b"|" for part in deal(partition=kind, seed=seed).train)

    assert flat(1) == flat(1)
    assert flat(1) != flat(2)


def test_n_way_k_shot_deals_k_of_each_own_class() -> None:
    partition = deal(clients=20, shots=30, test_shots=8)
    for train, test in zip(partition.train, partition.test, strict=True):
        counts = Counter(LABELS[train].tolist())
        assert set(counts.values()) == {30}
        assert Counter(TEST_LABELS[test].tolist()) == dict.fromkeys(counts, 8)


@pytest.mark.parametrize("kind", sorted({*KINDS} - {"by-source"}))
def test_the_examples_of_a_class_are_shuffled_before_they_are_dealt(kind: str) -> None:
    """Files have neighbours that are alike, by one writer or of one film: a client would hold runs of them."""
    for part, labels in (("train", LABELS), ("test", TEST_LABELS)):
        own = getattr(deal(partition=kind, clients=20, shots=30, test_shots=8), part)[0]
        label = np.bincount(labels[own]).argmax()
        among = np.searchsorted(np.flatnonzero(labels == label), own[labels[own] == label])
        assert len(among) > 5
        assert (np.diff(among) > 1).any(), part


def test_scarce_examples_are_shared_equally_among_the_holders() -> None:
    labels = np.repeat(np.arange(C), 50)
    partition = deal(labels=labels, clients=20, shots=100)
    assert_sound(partition, 20, labels)
    holders = Counter(label for part in partition.train for label in np.unique(labels[part]).tolist())
    for part in partition.train:
        for label, count in Counter(labels[part].tolist()).items():
            assert count == min(100, 50 // holders[label])


@pytest.mark.parametrize(
    ("mean", "std", "drawn"),
    [(3, 1, {2, 3, 4}), (3, 2, {2, 3, 4, 5}), (4, 3, {2, 3, 4, 5, 6, 7}), (1, 0, {1}), (10, 0, {10})],
)
def test_n_way_draws_class_counts_uniformly(mean: int, std: int, drawn: set[int]) -> None:
    config = LearningConfig(clients=6000, classes_avg=mean, classes_std=std)
    counts = Counter(draw_class_counts(config, C, np.random.default_rng(0)).tolist())
    assert counts.keys() == drawn
    assert all(abs(count - 6000 / len(drawn)) < 200 for count in counts.values())


def test_n_way_gives_all_classes_where_there_are_fewer_than_asked_for() -> None:
    for kind in ("n-way", "n-way-exact"):
        config = LearningConfig(partition=kind, clients=50, classes_avg=3, classes_std=0)
        assert set(draw_class_counts(config, 2, np.random.default_rng(0)).tolist()) == {2}


def test_n_way_exact_hits_the_stated_mean_and_deviation() -> None:
    config = LearningConfig(partition="n-way-exact", clients=9000, classes_avg=5, classes_std=1)
    counts = draw_class_counts(config, C, np.random.default_rng(0))
    assert counts.mean() == pytest.approx(5, abs=0.05)
    assert counts.std() == pytest.approx((1 + 1 / 12) ** 0.5, abs=0.05)  # rounding adds 1/12 to the variance
    wide = LearningConfig(partition="n-way-exact", clients=9000, classes_avg=1, classes_std=9)
    counts = draw_class_counts(wide, C, np.random.default_rng(0))
    assert (counts.min(), counts.max()) == (1, C)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"clients": 5000, "classes_avg": 10, "classes_std": 0},
            "class 0 has 1000 training examples for the 5000 clients",
        ),
        ({"clients": 300, "classes_avg": 10, "classes_std": 0}, "class 0 has 200 test examples for the 300 clients"),
        ({"clients": 3000, "partition": "iid"}, "2000 test examples do not suffice for 3000 clients"),
        (
            {"clients": 100, "partition": "dirichlet", "dirichlet_alpha": 0.001},
            "no dirichlet partition with alpha 0.001",
        ),
        ({"clients": 3000, "partition": "dirichlet-hsu"}, "2000 test examples do not suffice for 3000 clients"),
        (
            {"clients": 10_001, "partition": "by-class"},
            "class 0 has 1000 training examples for the 1001 clients that hold it",
        ),
        ({"clients": 61, "partition": "by-source"}, "from 60 sources, too few for 61 clients"),
    ],
)
def test_numbers_that_do_not_fit_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        deal(**options)
    assert message in str(caught.value)
