"""Class prototypes with noise: the effect of one example on its class's mean is bounded, and drowned.

Each embedding is clipped to L2 norm C before it is averaged, so that replacing an example by another of its class
moves the mean of n_c by at most 2 C / n_c. All classes get the same noise in those units; an example is in one of them
alone, so together they cost what one costs. Which classes a member has and how many examples of each is public.

This is about the embeddings under a given model: an example's earlier effect on the model, in training, is not counted
here, and can be far larger. So a release of prototypes is half of an epsilon, whose other half is DP-SGD: without that,
the charges here are written down, but no epsilon is stated (`Method.states_epsilon`).

N examples, C classes, D embedding, n classes that are posted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from fedchain.learning.client import Client
from fedchain.learning.exceptions import ReleaseRefused
from fedchain.learning.models.prototypes import ClassMeans
from fedchain.learning.privacy.clipping import clip_rows
from fedchain.learning.privacy.ledger import Budget, Entry
from fedchain.learning.privacy.noise import add_noise, fingerprint
from fedchain.learning.privacy.releases import Release

PROTOTYPES = "prototypes"
"""Name of the mechanism in a ledger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrototypeNoise:
    """How prototypes are hidden."""

    multiplier: float
    """Standard deviation of the noise over the sensitivity 2 C / n_c."""

    clip: float
    """Largest L2 norm of one embedding, C."""

    examples_min: int
    """Fewest examples of a class that is posted."""

    budget: Budget
    """The member's budget for the whole run."""

    phase: str
    """Name of the phase that posts."""

    @property
    def release(self) -> Release:
        """The release of a round: noise on a class's sum, which one example moves by 2 C at most."""
        sensitivity = 2 * self.clip
        return Release(PROTOTYPES, self.multiplier * sensitivity, sensitivity)


def noised_class_means(
    client: Client,
    round_number: int,
    embeddings: torch.Tensor,
    labels: torch.Tensor,
    noise: PrototypeNoise,
) -> ClassMeans:
    """Average clipped embeddings (N, D) by label (N,), with noise that is charged to the client's ledger first.

    Raises `ReleaseRefused`, which names the member, where no class has enough examples or the budget is spent.
    """
    counts = torch.bincount(labels, minlength=client.info.classes)  # (C,)
    posted = (counts >= max(1, noise.examples_min)).nonzero().squeeze(1)  # (n,)
    if len(posted) == 0:
        raise ReleaseRefused(
            f"member {client.index}, round {round_number}: its largest class has {int(counts.max())} examples, "
            f"prototypes are posted of {noise.examples_min} or more"
        )
    sums = torch.zeros(client.info.classes, embeddings.shape[1], dtype=torch.float64)
    sums.index_add_(0, labels, clip_rows(embeddings, noise.clip))  # (C, D)
    sensitivity = noise.release.sensitivity
    scaled = (sums[posted] / sensitivity).numpy()  # (n, D)
    charge(client, round_number, noise.phase, scaled, noise.release, noise.budget)
    noised = add_noise(scaled, noise.multiplier, client.secrets, PROTOTYPES, noise.phase, "round", round_number)
    means = torch.from_numpy(noised) * sensitivity / counts[posted].unsqueeze(1)
    return ClassMeans(labels=posted, counts=counts[posted], prototypes=means.float())


def charge(
    client: Client, round_number: int, phase: str, value: NDArray[np.float64], release: Release, budget: Budget
) -> None:
    """Charge the client's ledger for a value before noise is put on it: once for the same value in the same phase.

    Raises `ReleaseRefused` where the budget is spent.
    """
    identity = client.secrets.draw(16, "ledger", fingerprint(value, release.multiplier)).hex()
    client.ledger.charge(Entry(round_number, phase, identity, release), budget)
