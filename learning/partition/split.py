"""The split of the examples among the clients. Training examples are disjoint, and every client has its own test set.

C classes, K clients. n-way k-shot sampling follows FedProto (Tan et al., AAAI 2022), on which DFPL's settings build.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.partition import dirichlet
from fedchain.learning.partition.by_class import split_by_class
from fedchain.learning.partition.natural import split_by_source
from fedchain.learning.partition.sampling import Indices
from fedchain.learning.seeding import numpy_generator


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """The examples of each client."""

    train: tuple[Indices, ...]
    """For each of the K clients, positions in the training data, ascending."""

    test: tuple[Indices, ...]
    """For each of the K clients, positions in the test data, ascending. Only by-class partitions may share some."""


def split(
    config: LearningConfig,
    train_labels: Indices,
    test_labels: Indices,
    classes: int,
    sources: tuple[Indices, Indices] | None = None,
) -> Partition:
    """Spread the examples over the clients; the same for the same config.

    `sources` are the numbers of the users or patients whose the training and the test examples are, where known.
    Raises `ConfigurationError`, with the numbers, if a client would be left without examples.
    """
    if config.train_examples > len(train_labels):
        raise ConfigurationError(
            f"train_examples is {config.train_examples}, but {classes} classes have {len(train_labels)} together"
        )
    if 0 < config.train_examples < len(train_labels):
        drawn = _draw_examples(config, len(train_labels))
        kept = None if sources is None else (sources[0][drawn], sources[1])
        part = split(replace(config, train_examples=0), train_labels[drawn], test_labels, classes, kept)
        return replace(part, train=tuple(drawn[own] for own in part.train))
    rng = numpy_generator(config.seed, "partition")
    if config.partition == "iid":
        parts = _split_iid(config.clients, len(train_labels), len(test_labels), rng)
    elif config.partition == "by-source":
        assert sources is not None, "a validated configuration has them"
        parts = split_by_source(config.clients, *sources, rng)
    else:
        parts = _SPLITS[config.partition](config, train_labels, test_labels, classes, rng)
    return Partition(train=_ascending(parts[0]), test=_ascending(parts[1]))


def _draw_examples(config: LearningConfig, available: int) -> Indices:
    """Draw the training examples that there are at all; ascending."""
    rng = numpy_generator(config.seed, "examples")
    return np.sort(rng.choice(available, size=config.train_examples, replace=False))


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
    if config.partition == "n-way":
        return rng.integers(*class_range(config, classes), size=config.clients, endpoint=True)
    drawn = np.rint(rng.normal(config.classes_avg, config.classes_std, size=config.clients))
    return np.clip(drawn, 1, classes).astype(np.int64)


def class_range(config: LearningConfig, classes: int) -> tuple[int, int]:
    """Return the fewest and the most classes that a client of an 'n-way' partition holds."""
    low, high = config.classes_avg - config.classes_std, config.classes_avg + config.classes_std
    return min(max(2, low), config.classes_avg, classes), min(classes, high)


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


def _ascending(parts: Sequence[Indices]) -> tuple[Indices, ...]:
    return tuple(np.sort(part) for part in parts)


_SPLITS = {
    "by-class": split_by_class,
    "by-class-equal": split_by_class,
    "dirichlet": dirichlet.split_per_class,
    "dirichlet-hsu": dirichlet.split_per_client,
    "n-way": _split_n_way,
    "n-way-exact": _split_n_way,
}
