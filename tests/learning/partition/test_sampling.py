"""Examples are drawn before they are dealt."""

import numpy as np
import pytest

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
