"""The partition that keeps together the examples of one user, patient or other source."""

import numpy as np

from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.partition.sampling import Indices


def split_by_source(
    clients: int, train_sources: Indices, test_sources: Indices, rng: np.random.Generator
) -> tuple[list[Indices], list[Indices]]:
    """Give each client whole sources, so that clients have about equally many training examples.

    A source's test examples go with its training examples. Sources that are only tested on go where there are fewest
    test examples. Every example is dealt. Raises `ConfigurationError` if a client would be left without.
    """
    number = int(max(train_sources.max(), test_sources.max())) + 1
    train_counts = np.bincount(train_sources, minlength=number)
    test_counts = np.bincount(test_sources, minlength=number)
    known = int((train_counts > 0).sum())
    if known < clients:
        raise ConfigurationError(f"the training examples are from {known} sources, too few for {clients} clients")
    owner = np.zeros(number, dtype=np.int64)
    train_load, test_load = np.zeros(clients, dtype=np.int64), np.zeros(clients, dtype=np.int64)
    order = rng.permutation(number)
    for source in order[np.argsort(-train_counts[order], kind="stable")]:
        owner[source] = np.argmin(train_load if train_counts[source] else test_load)
        train_load[owner[source]] += train_counts[source]
        test_load[owner[source]] += test_counts[source]
    if not test_load.all():
        raise ConfigurationError(
            f"{int((test_load == 0).sum())} of {clients} clients would have no test example from their sources; "
            "use fewer clients"
        )
    owner = rng.permutation(clients)[owner]
    train, test = owner[train_sources], owner[test_sources]
    return (
        [np.flatnonzero(train == client) for client in range(clients)],
        [np.flatnonzero(test == client) for client in range(clients)],
    )
