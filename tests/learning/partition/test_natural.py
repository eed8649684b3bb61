"""Each source stays with one client."""

import numpy as np

from fedchain.learning.partition.natural import split_by_source
from tests.support.learning.dealt import SOURCES, TEST_SOURCES, deal


def test_a_source_stays_with_one_client_and_loads_are_even() -> None:
    partition = deal(partition="by-source", clients=12)
    owners = [set(SOURCES[part].tolist()) for part in partition.train]
    assert sum(map(len, owners)) == 60
    for own, test in zip(owners, partition.test, strict=True):
        assert {source for source in TEST_SOURCES[test].tolist() if source < 60} <= own
    sizes = [len(part) for part in partition.train]
    assert max(sizes) - min(sizes) < np.bincount(SOURCES).max()


def test_sources_that_are_only_tested_go_where_there_are_fewest_test_examples() -> None:
    train, test = np.repeat([0, 1], 4), np.array([0, 0, 0, 0, 0, 1, 2, 3, 4, 5])
    for seed in range(5):
        _, dealt = split_by_source(2, train, test, np.random.default_rng(seed))
        assert [len(part) for part in dealt] == [5, 5]


def test_the_largest_source_may_be_any_clients() -> None:
    sources = np.array([0] * 9 + [1])
    firsts = [split_by_source(2, sources, sources, np.random.default_rng(seed))[0][0] for seed in range(10)]
    assert {len(part) for part in firsts} == {1, 9}


def test_the_largest_sources_are_given_away_first() -> None:
    """The smallest first would leave the largest one to whoever has most."""
    sources = np.repeat([0, 1, 2, 3], [1, 3, 4, 8])
    dealt, _ = split_by_source(2, sources, np.array([0, 1, 2, 3]), np.random.default_rng(0))
    assert [len(part) for part in dealt] == [8, 8]
