"""Dirichlet mixtures of classes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedchain.learning.config import LearningConfig
from fedchain.learning.partition.dirichlet import split_per_class, split_per_client
from tests.support.learning.dealt import LABELS, TEST_LABELS, C, deal


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


class Shares:
    """A generator that deals these shares of each class, one after another, and shuffles nothing."""

    def __init__(self, *shares: Sequence[float]) -> None:
        self._shares = iter(shares)

    def dirichlet(self, alpha: Sequence[float]) -> NDArray[np.float64]:
        return np.array(next(self._shares), dtype=np.float64)

    def permutation(self, examples: NDArray[np.int64]) -> NDArray[np.int64]:
        return examples


def test_a_client_that_has_its_fair_share_gets_none_of_the_next_class() -> None:
    """Two clients, eight examples: four are N / K, also where they are exactly as many."""
    labels, config = np.repeat([0, 1], 4), LearningConfig(clients=2, partition="dirichlet")
    rng: Any = Shares([1.0, 0.0], [0.5, 0.5])
    train, test = split_per_class(config, labels, labels, 2, rng)
    assert [part.tolist() for part in train] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert [part.tolist() for part in test] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    rng = Shares([0.75, 0.25], [0.5, 0.5])
    train, _ = split_per_class(config, labels, labels, 2, rng)
    assert [part.tolist() for part in train] == [[0, 1, 2, 4, 5], [3, 6, 7]]


def test_the_fair_share_is_of_training_examples() -> None:
    labels, config = np.repeat([0, 1], 4), LearningConfig(clients=2, partition="dirichlet")
    rng: Any = Shares([1.0, 0.0], [0.5, 0.5])
    train, test = split_per_class(config, labels, np.array([0, 1]), 2, rng)
    assert [part.tolist() for part in train] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert [part.tolist() for part in test] == [[0], [1]]


def test_shares_that_leave_a_client_with_fewer_than_ten_examples_are_drawn_again() -> None:
    labels, config = np.repeat([0, 1], 100), LearningConfig(clients=2, partition="dirichlet")
    rng: Any = Shares([0.98, 0.02], [0.93, 0.07], [0.5, 0.5], [0.5, 0.5])
    train, _ = split_per_class(config, labels, labels, 2, rng)
    assert [len(part) for part in train] == [100, 100]
    rng = Shares([0.98, 0.02], [0.92, 0.08])
    train, _ = split_per_class(config, labels, labels, 2, rng)
    assert [len(part) for part in train] == [190, 10]


def test_shares_that_leave_a_client_without_a_test_example_are_drawn_again() -> None:
    labels, config = np.repeat([0, 1], 40), LearningConfig(clients=2, partition="dirichlet")
    rng: Any = Shares([0.3, 0.7], [0.3, 0.7], [0.5, 0.5], [0.5, 0.5])
    train, test = split_per_class(config, labels, np.array([0, 0, 1]), 2, rng)
    assert [len(part) for part in train] == [40, 40]
    assert [part.tolist() for part in test] == [[0], [1, 2]]


def test_hsu_s_prior_is_the_whole_s_frequencies() -> None:
    labels = np.repeat([0, 1, 2], [700, 200, 100])
    config = LearningConfig(clients=10, partition="dirichlet-hsu", dirichlet_alpha=1e5)
    train, _ = split_per_client(config, labels, labels, 3, np.random.default_rng(0))
    first = np.bincount(labels[train[0]], minlength=3)
    assert np.abs(first - [70, 20, 10]).max() <= 15, "where classes were equally likely: 33 each"


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


def test_hsu_s_clients_hold_everything_where_sizes_differ_by_one() -> None:
    partition = deal(partition="dirichlet-hsu", clients=7)
    assert np.array_equal(np.sort(np.concatenate(partition.train)), np.arange(len(LABELS)))
    assert {len(part) for part in partition.train} == {len(LABELS) // 7, len(LABELS) // 7 + 1}


def test_hsu_s_alpha_is_the_sum_over_the_classes() -> None:
    """The variance of a share p of Dir(alpha p) is p (1 - p) / (alpha + 1)."""
    partition = deal(partition="dirichlet-hsu", clients=50, dirichlet_alpha=10.0)
    shares = np.array([np.bincount(LABELS[part], minlength=C) / len(part) for part in partition.train[:25]])
    assert np.var(shares) == pytest.approx(0.09 / 11, rel=0.3)


def test_hsu_s_mixtures_become_the_whole_s_with_alpha() -> None:
    partition = deal(partition="dirichlet-hsu", clients=5, dirichlet_alpha=1e6)
    for part in partition.train:
        assert np.abs(np.bincount(LABELS[part], minlength=C) - len(part) / C).max() < 60
    one_class = deal(partition="dirichlet-hsu", clients=5, dirichlet_alpha=1e-3)
    largest = np.bincount(LABELS[one_class.train[0]], minlength=C).max()
    assert largest == 1000  # all that there is of one class
