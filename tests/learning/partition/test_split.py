from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedchain.learning.config import PARTITIONS, LearningConfig
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.partition.sampling import Indices
from fedchain.learning.partition.split import Partition, draw_class_counts, split

C = 10
LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(C), 1000))
TEST_LABELS = np.random.default_rng(1).permutation(np.repeat(np.arange(C), 200))


SOURCES = np.random.default_rng(2).integers(60, size=len(LABELS))
TEST_SOURCES = np.random.default_rng(3).integers(20, 80, size=len(TEST_LABELS))
KINDS = ("by-class", "by-class-equal", "by-source", "dirichlet", "dirichlet-hsu", "iid", "n-way", "n-way-exact")


def deal(labels: Indices = LABELS, test_labels: Indices = TEST_LABELS, **options: object) -> Partition:
    return split(LearningConfig(**options), labels, test_labels, C, (SOURCES, TEST_SOURCES))  # type: ignore[arg-type]


def assert_sound(partition: Partition, clients: int, labels: Indices = LABELS) -> None:
    for parts in (partition.train, partition.test):
        assert len(parts) == clients
        assert all(len(part) for part in parts)
        assert len(np.unique(np.concatenate(parts))) == sum(map(len, parts))
    assert np.concatenate(partition.train).max() < len(labels)


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


@pytest.mark.parametrize("kind", ["by-class", "by-source", "dirichlet", "iid"])
def test_only_the_drawn_examples_are_dealt(kind: str) -> None:
    partition = deal(partition=kind, train_examples=3000)
    assert_sound(partition, 20)
    drawn = np.concatenate(partition.train)
    assert len(drawn) == 3000
    assert drawn.max() > 0.95 * len(LABELS)
    assert len(np.concatenate(partition.test)) == len(TEST_LABELS)


def test_drawing_leaves_classes_and_sources_with_their_owners() -> None:
    for own in deal(partition="by-class", train_examples=3000).train:
        assert len(np.unique(LABELS[own])) == 1
    owners = [set(SOURCES[own].tolist()) for own in deal(partition="by-source", train_examples=3000).train]
    assert sum(map(len, owners)) == len(set.union(*owners))


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


def test_dirichlet_gives_training_and_test_data_equal_proportions() -> None:
    partition = deal(partition="dirichlet", clients=5, dirichlet_alpha=0.5)
    for train, test in zip(partition.train, partition.test, strict=True):
        train_counts = np.bincount(LABELS[train], minlength=C)
        test_counts = np.bincount(TEST_LABELS[test], minlength=C)
        assert np.abs(train_counts / 5 - test_counts).max() <= 1


def test_dirichlet_grows_more_even_with_alpha() -> None:
    def spread(alpha: float) -> float:
        partition = deal(partition="dirichlet", clients=5, dirichlet_alpha=alpha)
        return float(np.std([np.bincount(LABELS[part], minlength=C) for part in partition.train]))

    assert spread(0.1) > spread(1.0) > spread(100.0)


def test_hsu_s_clients_are_of_one_size_and_each_has_a_mixture_for_training_and_test() -> None:
    partition = deal(partition="dirichlet-hsu", clients=16, dirichlet_alpha=1.0)
    assert {len(part) for part in partition.train} == {len(LABELS) // 16}
    assert {len(part) for part in partition.test} == {len(TEST_LABELS) // 16}
    few = [
        (np.bincount(labels[part], minlength=C) / len(part)).round(2)
        for parts, labels in ((partition.train[:4], LABELS), (partition.test[:4], TEST_LABELS))
        for part in parts
    ]
    assert np.abs(np.array(few[:4]) - np.array(few[4:])).max() < 0.15


def test_hsu_s_mixtures_become_the_whole_s_with_alpha() -> None:
    partition = deal(partition="dirichlet-hsu", clients=5, dirichlet_alpha=1e6)
    for part in partition.train:
        assert np.abs(np.bincount(LABELS[part], minlength=C) - len(part) / C).max() < 60
    one_class = deal(partition="dirichlet-hsu", clients=5, dirichlet_alpha=1e-3)
    largest = np.bincount(LABELS[one_class.train[0]], minlength=C).max()
    assert largest == 1000  # all that there is of one class


@pytest.mark.parametrize("kind", ["by-class", "by-class-equal"])
@pytest.mark.parametrize("each", [1, 2, 10])
def test_client_u_holds_the_classes_from_u_on(kind: str, each: int) -> None:
    partition = deal(partition=kind, clients=25, classes_per_client=each)
    for client, (train, test) in enumerate(zip(partition.train, partition.test, strict=True)):
        expected = sorted((client + place) % C for place in range(each))
        assert np.unique(LABELS[train]).tolist() == expected
        assert np.unique(TEST_LABELS[test]).tolist() == expected


def test_by_class_sizes_follow_a_power_law_above_two_of_each_class() -> None:
    sizes = np.array([len(part) for part in deal(partition="by-class", clients=1000, classes_per_client=2).train])
    assert sizes.min() == 4
    assert sizes.max() > 10 * np.median(sizes)
    assert sizes.sum() == len(LABELS)
    equal = {len(part) for part in deal(partition="by-class-equal", clients=1000).train}
    assert equal == {10}


def test_fifty_thousand_clients_hold_one_example_each_and_share_the_test_s() -> None:
    labels, test_labels = np.repeat(np.arange(C), 5000), np.repeat(np.arange(C), 1000)
    partition = deal(labels, test_labels, partition="by-class-equal", clients=50_000)
    assert_sound(Partition(partition.train, partition.train), 50_000, labels)
    assert {len(part) for part in (*partition.train, *partition.test)} == {1}
    assert np.bincount(np.concatenate(partition.test)).tolist() == [5] * 10_000


def test_a_source_stays_with_one_client_and_loads_are_even() -> None:
    partition = deal(partition="by-source", clients=12)
    owners = [set(SOURCES[part].tolist()) for part in partition.train]
    assert sum(map(len, owners)) == 60
    for own, test in zip(owners, partition.test, strict=True):
        assert {source for source in TEST_SOURCES[test].tolist() if source < 60} <= own
    sizes = [len(part) for part in partition.train]
    assert max(sizes) - min(sizes) < np.bincount(SOURCES).max()


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
