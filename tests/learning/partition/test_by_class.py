"""Client u holds the classes from u on."""

import numpy as np
import pytest

from fedchain.learning.partition.split import Partition
from tests.support.learning.dealt import LABELS, TEST_LABELS, C, assert_sound, deal


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


def test_where_a_class_has_fewer_than_two_for_each_holder_everybody_has_one() -> None:
    labels = np.repeat(np.arange(C), 4)
    partition = deal(labels, labels, partition="by-class", clients=3 * C)
    assert_sound(Partition(partition.train, partition.train), 3 * C, labels)
    assert {len(part) for part in partition.train} == {1, 2}
