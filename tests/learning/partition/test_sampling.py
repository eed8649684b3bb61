"""Examples are drawn before they are dealt."""

import numpy as np
import pytest

from fedchain.learning.partition.sampling import cut_in_shares
from tests.support.learning.dealt import LABELS, SOURCES, TEST_LABELS, assert_sound, deal


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


def test_shares_need_not_add_up_to_one() -> None:
    for shares in ([1.0, 1.0, 2.0], [0.05, 0.05, 0.1], [0.25, 0.25, 0.5]):
        parts = cut_in_shares(np.arange(8), np.array(shares))
        assert [part.tolist() for part in parts] == [[0, 1], [2, 3], [4, 5, 6, 7]]
