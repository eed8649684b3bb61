"""Partitions in which a client holds a given number of classes, also for federations of thousands of clients.

C classes, K clients. Client u holds the classes (u + j) mod C, j = 0, 1, ..., as in Xu et al., Acceleration of
Federated Learning with Alleviated Forgetting in Local Training (FedReg, ICLR 2022), and in FedProx's code before it (Li
et al., MLSys 2020). FedReg's own data are not published any more; the sizes follow FedProx's generator.
"""

import numpy as np

from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.partition.sampling import Indices, concatenate_parts, cut_in_shares, draw_class

BASE = 2
"""Examples of each of its classes that every client holds before sizes begin to differ."""

SIGMA = 2.0
"""Deviation of the logarithm of the shares in which the rest is dealt."""


def split_by_class(
    config: LearningConfig, train_labels: Indices, test_labels: Indices, classes: int, rng: np.random.Generator
) -> tuple[list[Indices], list[Indices]]:
    """Deal class by class. Test examples are shared where there are fewer of a class than holders."""
    deal = _deal_equal if config.partition == "by-class-equal" else _deal_power_law
    train: list[list[Indices]] = [[] for _ in range(config.clients)]
    test: list[list[Indices]] = [[] for _ in range(config.clients)]
    clients = np.arange(config.clients)
    for label in range(classes):
        holders = clients[(label - clients) % classes < config.classes_per_client].tolist()
        if not holders:
            continue
        for labels, part in ((train_labels, "training"), (test_labels, "test")):
            found = draw_class(labels, label, rng)
            needed = len(holders) if part == "training" else 1
            if len(found) < needed:
                raise ConfigurationError(
                    f"class {label} has {len(found)} {part} examples for the {len(holders)} clients that hold it; "
                    "use fewer clients or a smaller classes_per_client"
                )
            hands = deal(found, len(holders), rng) if part == "training" else _deal_test(found, len(holders))
            for client, hand in zip(holders, hands, strict=True):
                (train if part == "training" else test)[client].append(hand)
    return concatenate_parts(train), concatenate_parts(test)


def _deal_power_law(examples: Indices, holders: int, rng: np.random.Generator) -> list[Indices]:
    base = min(BASE, len(examples) // holders)
    first = examples[: base * holders].reshape(holders, base)
    rest = cut_in_shares(examples[base * holders :], rng.lognormal(0.0, SIGMA, size=holders))
    return [np.concatenate(parts) for parts in zip(first, rest, strict=True)]


def _deal_equal(examples: Indices, holders: int, rng: np.random.Generator) -> list[Indices]:
    return list(np.array_split(examples, holders))


def _deal_test(examples: Indices, holders: int) -> list[Indices]:
    if len(examples) >= holders:
        return list(np.array_split(examples, holders))
    return [examples[place % len(examples)][None] for place in range(holders)]
