"""Each source stays with one client."""

import numpy as np

from tests.support.learning.dealt import SOURCES, TEST_SOURCES, deal


def test_a_source_stays_with_one_client_and_loads_are_even() -> None:
    partition = deal(partition="by-source", clients=12)
    owners = [set(SOURCES[part].tolist()) for part in partition.train]
    assert sum(map(len, owners)) == 60
    for own, test in zip(owners, partition.test, strict=True):
        assert {source for source in TEST_SOURCES[test].tolist() if source < 60} <= own
    sizes = [len(part) for part in partition.train]
    assert max(sizes) - min(sizes) < np.bincount(SOURCES).max()
