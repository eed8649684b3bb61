"""Labels of a balanced data set, dealt to clients."""

import numpy as np

from fedchain.learning.config import LearningConfig
from fedchain.learning.partition.sampling import Indices
from fedchain.learning.partition.split import Partition, split

C = 10
LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(C), 1000))
TEST_LABELS = np.random.default_rng(1).permutation(np.repeat(np.arange(C), 200))
SOURCES = np.random.default_rng(2).integers(60, size=len(LABELS))
TEST_SOURCES = np.random.default_rng(3).integers(20, 80, size=len(TEST_LABELS))


def deal(labels: Indices = LABELS, test_labels: Indices = TEST_LABELS, **options: object) -> Partition:
    return split(LearningConfig(**options), labels, test_labels, C, (SOURCES, TEST_SOURCES))  # type: ignore[arg-type]


def assert_sound(partition: Partition, clients: int, labels: Indices = LABELS) -> None:
    for parts in (partition.train, partition.test):
        assert len(parts) == clients
        assert all(len(part) for part in parts)
        assert len(np.unique(np.concatenate(parts))) == sum(map(len, parts))
    assert np.concatenate(partition.train).max() < len(labels)
