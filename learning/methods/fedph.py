"""FedPH: Kuang and Mi, "FedPH: Privacy-Enhanced Heterogeneous Federated Learning", 2023 (arXiv:2301.11705).

Where the paper is silent or its authors' code differs, a field says which of the two its default follows, and
docs/methods.md why. Equation numbers are the paper's. Its frozen backbone is a model here (`frozen-2`, or
`frozen-2+frozen-3` for FedPH-mh); its encryption is `encryption`, which every method with prototypes has.

B batch, C classes, D embedding, n classes that one client holds.

A newcomer starts from a new model of its own and the global embeddings in force. A leaver's embeddings count in the
sums of its last round alone. Shares of a threshold key are dealt to places at the founding, so a newcomer has one only
if its place was dealt one, and a leaver's is missing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np

from fedchain.files.effects import Needs
from fedchain.learning.exceptions import ConfigurationError, NothingToPost
from fedchain.learning.families.local_sgd import Auxiliary
from fedchain.learning.families.prototypes import NEVER, Known, PrototypeMethod, known_prototypes
from fedchain.learning.method import validate_range
from fedchain.learning.privacy.noise import add_noise
from fedchain.learning.round import Round, Tensors

if TYPE_CHECKING:
    import torch

    from fedchain.learning.client import Client, Forward
    from fedchain.learning.models.prototypes import ClassMeans
    from fedchain.learning.privacy.releases import Release

NORMAL_MAX = 9.0
"""A standard normal number as it is drawn here is never larger."""


@dataclass(frozen=True, kw_only=True)
class FedPh(PrototypeMethod):
    """Clients train heads of their own and draw each embedding to its class's global one, away from the others."""

    learning_rate: float = 0.001
    """Step size eta of local SGD."""

    momentum: float = 0.5
    """Momentum of local SGD; its buffer starts empty in every round."""

    weight_decay: float = 1e-4
    """L2 penalty of local SGD, as the paper has it; the published code leaves it out."""

    local_epochs: int = 1
    """Passes over the client's data per round, as the published code; if 0, local_steps minibatch steps."""

    shared_init: bool = False
    """Whether all clients start from the same random model; otherwise each draws its own."""

    contrast_weight: float = 1.0
    """Weight lambda of the contrast with the global embeddings; 1 in the published code, the paper does not say."""

    temperature: Annotated[float, Needs("contrast_weight")] = 1.0
    """Temperature t, by which similarities are divided."""

    magnitude_max: float = 16.0
    """threshold: largest magnitude of a number that can be encrypted: unit vectors have 1, noise needs more."""

    noise: Literal["none", "local", "split"] = "none"
    """Gaussian noise on what is posted: none, local (each post is private by itself) or split (the sum is, towards all
    that cannot open less than it: each client adds a part). split needs encryption."""

    noise_multiplier: Annotated[float, Needs("noise")] = 1.0
    """Standard deviation of the noise, where there is any, in units of what replacing one example can do to a mean
    under a given model, 2/n. By itself it has no epsilon: what the example did to the model is hidden by
    gradient_noise."""

    class_examples_min: int = 1
    """Fewest examples of a class that is posted. One example moves a mean of n by at most 2/n, so with few of them
    noise drowns it."""

    beyond_dp_sgd: ClassVar[str] = ""
    beyond_rules: ClassVar[str] = ""

    def validate(self) -> None:
        """Raise `ConfigurationError` for a hyper-parameter outside its range."""
        super().validate()
        validate_range("contrast_weight", self.contrast_weight, 0.0, 1e6)
        validate_range("temperature", self.temperature, 0.0, 1e6, low_open=True)
        validate_range("noise_multiplier", self.noise_multiplier, 0.0, 1e6, low_open=True)
        validate_range("class_examples_min", self.class_examples_min, 1, 1 << 20)
        if self.noise == "split" and not self.sums.hides:
            raise ConfigurationError(
                "noise split needs encryption threshold: only what is opened has the noise of all its holders"
            )
        needed = 1.0 + NORMAL_MAX * self.noise_std(self.class_examples_min)
        if self.sums.hides and needed > self.magnitude_max:
            raise ConfigurationError(
                f"magnitude_max is {self.magnitude_max}, noise for classes of {self.class_examples_min} examples needs "
                f"{needed:.1f}; raise it or class_examples_min"
            )

    def update(self, client: Client, round: Round) -> Tensors:
        """Train (Algorithm 1), then post the mean embedding of each class of the client's data (Eq. 7), noised.

        Raises `ReleaseRefused`, which names the client, before it trains where its privacy budget is spent.
        """
        import torch.nn.functional as F

        from fedchain.learning.models.prototypes import class_means, forward_all
        from fedchain.learning.privacy.clipping import finite_rows

        self.validate_budget(client, round)
        known = known_prototypes(client.info, round)
        self.train(client, round, given=lambda batch: known)
        embeddings, _ = forward_all(client.model, client.train_images)  # (n_k, D)
        units = F.normalize(embeddings, dim=1)
        units = finite_rows(units) if self.hides_prototypes else units
        means = class_means(units, client.train_labels, client.info.classes)
        return self._noised(self._large_enough(means, client, round), client, round).as_post()

    def loss(self, forward: Forward, images: torch.Tensor, labels: torch.Tensor, given: Known) -> torch.Tensor:
        """L = L_S + lambda * L_R (Eq. 11), L_S cross-entropy. Where no class is known, as in round 1, L_R is zero."""
        import torch.nn.functional as F

        embedding, logits = forward(images)  # z, (B, D), (B, C)
        return F.cross_entropy(logits, labels) + self.contrast_weight * self.contrast(embedding, labels, given)

    def contrast(self, embedding: torch.Tensor, labels: torch.Tensor, known: Known) -> torch.Tensor:
        """L_R = -log(exp(cos(z, C^y) / t) / sum_j exp(cos(z, C^j) / t)) over the known classes j (Eq. 10).

        Mean over the batch (B, D); an example of an unknown class counts nothing.
        """
        import torch.nn.functional as F

        units = F.normalize(embedding.to(known.prototypes.dtype), dim=1)
        similarity = units @ F.normalize(known.prototypes, dim=1).T  # cosines, (B, C)
        masked = (similarity / self.temperature).masked_fill(~known.is_known, NEVER)
        terms = F.cross_entropy(masked, labels, reduction="none")  # (B,)
        return (terms * known.is_known[labels]).mean()

    def auxiliary(self, client: Client, round: Round) -> Auxiliary:
        """Lambda and L_R."""
        known = known_prototypes(client.info, round)
        return lambda embedding, labels: (self.contrast_weight, self.contrast(embedding, labels, known))

    @property
    def hides_prototypes(self) -> bool:
        """Whether there is noise on what is posted."""
        return self.noise != "none"

    def noise_std(self, examples: int) -> float:
        """Return the standard deviation of the noise on each number of a class with so many examples, 0 without any.

        S_f sigma, divided by sqrt(t - 1) where it is split (Lemma 1) and others are sure to add theirs. Then S_f is
        that of the smallest class allowed, for all alike: the noise of members with many examples hides one with few.
        """
        if self.noise == "none":
            return 0.0
        if self.noise == "local":
            return self.noise_multiplier * self._sensitivity(examples)
        others = self.sums.honest_min - 1  # none where thresholds do not protect, which is refused beside the members
        return self.noise_multiplier * self._sensitivity(self.class_examples_min) / math.sqrt(max(1, others))

    def prototype_release(self) -> Release:
        """The release of prototypes in a round under their noise, if the model is given: of a class's sum."""
        from fedchain.learning.privacy.releases import Release

        one = self._sensitivity(1)
        return Release(f"prototypes, {self.noise}", self.noise_multiplier * one, one)

    def _sensitivity(self, examples: int) -> float:
        """S_f: how far one example, replaced by another, moves a mean of unit vectors in L2 norm."""
        return 2.0 / examples

    def _large_enough(self, means: ClassMeans, client: Client, round: Round) -> ClassMeans:
        """Leave out classes with too few examples. Raises `NothingToPost` if none is left."""
        from fedchain.learning.models.prototypes import ClassMeans

        kept = means.counts >= self.class_examples_min
        if not kept.any():
            raise NothingToPost(
                f"member {client.index}, round {round.number}: no class has {self.class_examples_min} examples, the "
                f"largest has {int(means.counts.max())}"
            )
        return ClassMeans(means.labels[kept], means.counts[kept], means.prototypes[kept])

    def _noised(self, means: ClassMeans, client: Client, round: Round) -> ClassMeans:
        """Add N(0, std^2) to each number, from the member's private randomness."""
        if self.noise == "none":
            return means
        import torch

        from fedchain.learning.models.prototypes import ClassMeans
        from fedchain.learning.privacy.prototypes import charge

        sums = means.prototypes.double() * means.counts.unsqueeze(1)  # (n, D)
        charge(client, round.number, "update", sums.numpy(), self.prototype_release(), self.budget)
        rows = [
            add_noise(row, self.noise_std(count), client.secrets, "fedph", round.number, label)
            for label, count, row in zip(
                means.labels.tolist(), means.counts.tolist(), means.prototypes.double().numpy(), strict=True
            )
        ]
        return ClassMeans(means.labels, means.counts, torch.from_numpy(np.stack(rows)).float())
