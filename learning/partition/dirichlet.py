"""Partitions with classes in random proportions: the smaller alpha, the more clients differ.

C classes, K clients, N examples. `dirichlet` deals each class in proportions over the clients, as MOON's code does (Li
et al., CVPR 2021); `dirichlet-hsu` gives each client a mixture of classes and all clients equally many examples (Hsu et
al., Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification, arXiv:1909.06335).
"""

import numpy as np
from numpy.typing import NDArray

from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.partition.sampling import Indices, concatenate_parts, cut_in_shares, draw_class

EXAMPLES_MIN = 10
"""A draw that leaves a client with fewer training examples is drawn again (fewer where data are scarce)."""

DRAWS_MAX = 200
"""Draws after which the proportions are taken for impossible."""


def split_per_class(
    config: LearningConfig, train_labels: Indices, test_labels: Indices, classes: int, rng: np.random.Generator
) -> tuple[list[Indices], list[Indices]]:
    """Deal each class in proportions drawn from Dir(alpha); a client at its fair share N/K gets no later class.

    Training and test examples have the same proportions.
    """
    enough = max(1, min(EXAMPLES_MIN, len(train_labels) // (2 * config.clients)))
    for _ in range(DRAWS_MAX):
        train: list[list[Indices]] = [[] for _ in range(config.clients)]
        test: list[list[Indices]] = [[] for _ in range(config.clients)]
        for label in range(classes):
            shares = rng.dirichlet([config.dirichlet_alpha] * config.clients)  # (K,)
            sizes = np.array([sum(map(len, parts)) for parts in train])
            shares *= sizes < len(train_labels) / config.clients
            if not shares.sum() > 0:
                break
            for dealt, labels in ((train, train_labels), (test, test_labels)):
                for client, part in enumerate(cut_in_shares(draw_class(labels, label, rng), shares)):
                    dealt[client].append(part)
        else:
            joined = concatenate_parts(train), concatenate_parts(test)
            if min(map(len, joined[0])) >= enough and min(map(len, joined[1])) >= 1:
                return joined
    raise ConfigurationError(
        f"no dirichlet partition with alpha {config.dirichlet_alpha} gave each of {config.clients} clients {enough} "
        f"of {len(train_labels)} training and 1 of {len(test_labels)} test examples; raise alpha or lower clients"
    )


def split_per_client(
    config: LearningConfig, train_labels: Indices, test_labels: Indices, classes: int, rng: np.random.Generator
) -> tuple[list[Indices], list[Indices]]:
    """Draw each client's mixture of classes from Dir(alpha * p), p the classes' frequencies; sizes differ by 1 at most.

    Training and test examples have the same mixtures.
    """
    for labels, part in ((train_labels, "training"), (test_labels, "test")):
        if len(labels) < config.clients:
            raise ConfigurationError(f"{len(labels)} {part} examples do not suffice for {config.clients} clients")
    frequencies = np.bincount(train_labels, minlength=classes) / len(train_labels)  # (C,)
    mixtures = np.zeros((config.clients, classes))
    mixtures[:, frequencies > 0] = rng.dirichlet(
        config.dirichlet_alpha * frequencies[frequencies > 0], size=config.clients
    )
    return _deal_mixtures(mixtures, train_labels, rng), _deal_mixtures(mixtures, test_labels, rng)


def _deal_mixtures(mixtures: NDArray[np.float64], labels: Indices, rng: np.random.Generator) -> list[Indices]:
    """Deal all examples, one client (of K) after the other; where a class has run out, the others take its place."""
    clients, classes = mixtures.shape
    pools = [draw_class(labels, label, rng) for label in range(classes)]
    stock = np.array([len(pool) for pool in pools])
    dealt = []
    for client, mixture in enumerate(mixtures):
        size = len(labels) // clients + (client < len(labels) % clients)
        begin = stock.copy()
        while (missing := size - int((begin - stock).sum())) > 0:
            shares = np.where(stock > 0, mixture, 0.0)
            if not shares.sum() > 0:
                shares = stock.astype(np.float64)
            stock -= np.minimum(rng.multinomial(missing, shares / shares.sum()), stock)
        dealt.append(np.concatenate([pool[rest:full] for pool, rest, full in zip(pools, stock, begin, strict=True)]))
    return dealt
