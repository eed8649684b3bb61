"""Who holds which examples. Clients' examples are disjoint, and every client has its own test set.

C classes, K clients. n-way k-shot sampling follows FedProto (Tan et al., AAAI 2022), on which DFPL's settings
build; the Dirichlet split follows MOON (Li et al., CVPR 2021), with equal proportions for training and test.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.seeding import numpy_generator

Indices = NDArray[np.int64]
"""Positions of examples in the data set, (n,)."""

DIRICHLET_EXAMPLES_MIN = 10
"""A Dirichlet draw that leaves a client with fewer training examples is drawn again (fewer where data are scarce)."""

DIRICHLET_DRAWS_MAX = 200
"""Draws after which the proportions are taken for impossible."""


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """The examples of each client."""

    train: tuple[Indices, ...]
    """For each of the K clients, positions in the training data, ascending."""

    test: tuple[Indices, ...]
    """For each of the K clients, positions in the test data, ascending."""


def split(config: LearningConfig, train_labels: Indices, test_labels: Indices, classes: int) -> Partition:
    """Spread the examples over the clients; the same for the same config.

    Raises `ConfigurationError`, with the numbers, if a client would be left without examples.
    """
    rng = numpy_generator(config.seed, "partition")
    if config.partition == "iid":
        parts = _split_iid(config.clients, len(train_labels), len(test_labels), rng)
    elif config.partition == "dirichlet":
        parts = _split_dirichlet(config, train_labels, test_labels, classes, rng)
    else:
        parts = _split_n_way(config, train_labels, test_labels, classes, rng)
    return Partition(train=_ascending(parts[0]), test=_ascending(parts[1]))


def _split_n_way(
    config: LearningConfig, train_labels: Indices, test_labels: Indices, classes: int, rng: np.random.Generator
) -> tuple[list[Indices], list[Indices]]:
    counts = draw_class_counts(config, classes, rng)  # (K,)
    held = [rng.choice(classes, size=count, replace=False) for count in counts]
    train = _deal_shots(held, config.shots, train_labels, classes, rng, "training")
    test = _deal_shots(held, config.test_shots, test_labels, classes, rng, "test")
    return train, test


def draw_class_counts(config: LearningConfig, classes: int, rng: np.random.Generator) -> Indices:
    """Draw how many classes each client holds, (K,).

    'n-way' is FedProto's sampler, uniform from max(2, avg - std) to avg + std, so that its mean and deviation are not
    the nominal ones; 'n-way-exact' rounds a normal draw. Both stay within 1..C.
    """
    mean, deviation, clients = config.classes_avg, config.classes_std, config.clients
    if config.partition == "n-way":
        low = min(max(2, mean - deviation), mean)
        return rng.integers(low, min(classes, mean + deviation), size=clients, endpoint=True)
    drawn = np.rint(rng.normal(mean, deviation, size=clients))
    return np.clip(drawn, 1, classes).astype(np.int64)


def _deal_shots(
    held: Sequence[Indices], shots: int, labels: Indices, classes: int, rng: np.random.Generator, part: str
) -> list[Indices]:
    """Shuffle each class and deal its holders consecutive runs of `shots`, or equal shares if there are too few."""
    dealt: list[list[Indices]] = [[] for _ in held]
    for label in range(classes):
        examples = rng.permutation(np.flatnonzero(labels == label))
        holders = [client for client, own in enumerate(held) if label in own]
        if not holders:
            continue
        share = min(shots, len(examples) // len(holders))
        if share == 0:
            raise ConfigurationError(
                f"class {label} has {len(examples)} {part} examples for the {len(holders)} clients that hold it; "
                "use fewer clients or a smaller classes_avg"
            )
        for position, client in enumerate(holders):
            dealt[client].append(examples[position * share : (position + 1) * share])
    return [np.concatenate(parts) for parts in dealt]


def _split_iid(
    clients: int, train_size: int, test_size: int, rng: np.random.Generator
) -> tuple[list[Indices], list[Indices]]:
    for size, part in ((train_size, "training"), (test_size, "test")):
        if size < clients:
            raise ConfigurationError(f"{size} {part} examples do not suffice for {clients} clients")
    train = np.array_split(rng.permutation(train_size), clients)
    return list(train), list(np.array_split(rng.permutation(test_size), clients))


def _split_dirichlet(
    config: LearningConfig, train_labels: Indices, test_labels: Indices, classes: int, rng: np.random.Generator
) -> tuple[list[Indices], list[Indices]]:
    """Deal each class in proportions drawn from Dir(alpha); a client at its fair share gets no later class."""
    enough = max(1, min(DIRICHLET_EXAMPLES_MIN, len(train_labels) // (2 * config.clients)))
    for _ in range(DIRICHLET_DRAWS_MAX):
        train: list[list[Indices]] = [[] for _ in range(config.clients)]
        test: list[list[Indices]] = [[] for _ in range(config.clients)]
        for label in range(classes):
            shares = rng.dirichlet([config.dirichlet_alpha] * config.clients)  # (K,)
            sizes = np.array([sum(map(len, parts)) for parts in train])
            shares *= sizes < len(train_labels) / config.clients
            if not shares.sum() > 0:
                break
            _deal_shares(train, np.flatnonzero(train_labels == label), shares, rng)
            _deal_shares(test, np.flatnonzero(test_labels == label), shares, rng)
        else:
            joined = [[np.concatenate(parts) for parts in side] for side in (train, test)]
            if min(map(len, joined[0])) >= enough and min(map(len, joined[1])) >= 1:
                return joined[0], joined[1]
    raise ConfigurationError(
        f"no dirichlet partition with alpha {config.dirichlet_alpha} gave each of {config.clients} clients {enough} "
        f"of {len(train_labels)} training and 1 of {len(test_labels)} test examples; raise alpha or lower clients"
    )


def _deal_shares(
    dealt: list[list[Indices]], examples: Indices, shares: NDArray[np.float64], rng: np.random.Generator
) -> None:
    """Append to each client its share of the shuffled examples; all of them are dealt."""
    cuts = (np.cumsum(shares / shares.sum()) * len(examples)).astype(np.int64)[:-1]
    for client, part in enumerate(np.split(rng.permutation(examples), cuts)):
        dealt[client].append(part)


def _ascending(parts: Sequence[Indices]) -> tuple[Indices, ...]:
    return tuple(np.sort(part) for part in parts)
