"""Dirichlet mixtures of classes."""

import numpy as np

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
