"""DFPL: Zhang et al., "DFPL: Decentralized Federated Prototype Learning Across Heterogeneous Data Distributions",
arXiv:2505.04947, 2025.

Where the paper is silent or differs from FedProto (Tan et al., AAAI 2022), on which it builds, a field switches
between the readings; docs/methods.md gives the reasons. Equation numbers are the paper's.

B batch, C classes, D embedding, K clients, n classes that one client (or the knowledge) holds.

A newcomer starts from a new model of its own and the global prototypes in force. A leaver's prototypes count in the
sums of its last round alone; a class that it alone held has no prototype from then on.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from fedchain.files.effects import Needs
from fedchain.learning.aggregation.mean import WEIGHT_MAX
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.families.local_sgd import Auxiliary
from fedchain.learning.families.prototypes import Known, PrototypeMethod, known_prototypes
from fedchain.learning.method import validate_range
from fedchain.learning.round import Round, Tensors
from fedchain.learning.training.schedule import batches_per_pass

if TYPE_CHECKING:
    import torch

    from fedchain.learning.client import Client, Forward
    from fedchain.learning.models.prototypes import ClassMeans
    from fedchain.learning.privacy.prototypes import PrototypeNoise
    from fedchain.learning.privacy.releases import Release


@dataclass(frozen=True, kw_only=True)
class Dfpl(PrototypeMethod):
    """Clients keep their own models and exchange class prototypes, towards which they pull their embeddings."""

    regularizer_weight: float = 1.0
    """Weight lambda of the pull towards the global prototypes."""

    regularizer: Annotated[Literal["mse", "norm"], Needs("regularizer_weight")] = "mse"
    """The pull: mse (each example's squared distance, mean over examples and dimensions; FedProto's code) or norm
    (each class's mean embedding, L2 norm, mean over the classes of the batch; the paper's Eq. 4 as printed)."""

    prototype_source: Literal["recompute", "last_epoch"] = "recompute"
    """The prototypes that are posted: recompute (class means under the trained model, all data, evaluation mode) or
    last_epoch (means of the embeddings seen during the last pass of training, as FedProto's code)."""

    prototype_noise: float = 0.0
    """Standard deviation of the noise on what is posted, in units of what replacing one example can do to it under a
    given model, 2 prototype_clip / n_c; 0: none. By itself it has no epsilon: what the example did to the model is
    hidden by gradient_noise."""

    prototype_clip: Annotated[float, Needs("prototype_noise")] = 1.0
    """Largest L2 norm of an embedding in a noised prototype; longer ones are scaled down before they are averaged."""

    examples_min: Annotated[int, Needs("prototype_noise")] = 1
    """Fewest examples of a class whose noised prototype is posted."""

    beyond_dp_sgd: ClassVar[str] = ""
    beyond_late: ClassVar[str] = ""
    beyond_rules: ClassVar[str] = ""

    def validate(self) -> None:
        """Raise `ConfigurationError` for a hyper-parameter outside its range."""
        super().validate()
        validate_range("regularizer_weight", self.regularizer_weight, 0.0, 1e6)
        validate_range("prototype_noise", self.prototype_noise, 0.0, 1e6)
        validate_range("prototype_clip", self.prototype_clip, 0.0, 1e6, low_open=True)
        validate_range("examples_min", self.examples_min, 1, WEIGHT_MAX)
        if self.prototype_noise > 0 and self.prototype_source != "recompute":
            raise ConfigurationError("prototype_noise needs prototype_source recompute: one model, each example once")

    def update(self, client: Client, round: Round) -> Tensors:
        """Train (Algorithm 1), then post the class means of the client's data (Eq. 1).

        Raises `ReleaseRefused`, which names the client, before it trains where its privacy budget is spent.
        """
        self.validate_budget(client, round)
        known = known_prototypes(client.info, round)
        if self.prototype_source == "last_epoch":
            means = self._train_and_record(client, round, known)
        else:
            self.train(client, round, given=lambda batch: known)
            means = self._class_means(client, round)
        return means.as_post()

    def loss(self, forward: Forward, images: torch.Tensor, labels: torch.Tensor, given: Known) -> torch.Tensor:
        """L = CE + lambda * R (Eq. 3). Where no class is known, as in round 1, R is zero."""
        import torch.nn.functional as F

        embedding, logits = forward(images)  # (B, D), (B, C)
        return F.cross_entropy(logits, labels) + self.regularizer_weight * self.pull(embedding, labels, given)

    def pull(self, embedding: torch.Tensor, labels: torch.Tensor, known: Known) -> torch.Tensor:
        """R of embeddings (B, D): how far they are from the global prototypes."""
        distance = mse_to_prototypes if self.regularizer == "mse" else norm_to_prototypes
        return distance(embedding, labels, known.prototypes, known.is_known)

    def auxiliary(self, client: Client, round: Round) -> Auxiliary:
        """Lambda and R."""
        known = known_prototypes(client.info, round)
        return lambda embedding, labels: (self.regularizer_weight, self.pull(embedding, labels, known))

    @property
    def hides_prototypes(self) -> bool:
        """Whether there is noise on what is posted."""
        return self.prototype_noise > 0

    def prototype_release(self) -> Release:
        """The release of prototypes in a round under their noise, if the model is given."""
        return self._noise().release

    def _class_means(self, client: Client, round: Round) -> ClassMeans:
        """Average the embeddings of all the client's data under its model, in evaluation mode (Eq. 1)."""
        from fedchain.learning.models.prototypes import calculate_prototypes, forward_all
        from fedchain.learning.privacy.prototypes import noised_class_means

        if self.prototype_noise == 0:
            return calculate_prototypes(client.model, client.train_images, client.train_labels)
        embeddings, _ = forward_all(client.model, client.train_images)  # (n, D)
        return noised_class_means(client, round.number, embeddings, client.train_labels, self._noise())

    def _noise(self) -> PrototypeNoise:
        """How prototypes are hidden."""
        from fedchain.learning.privacy.prototypes import PrototypeNoise

        return PrototypeNoise(
            multiplier=self.prototype_noise,
            clip=self.prototype_clip,
            examples_min=self.examples_min,
            budget=self.budget,
            phase="update",
        )

    def _train_and_record(self, client: Client, round: Round, known: Known) -> ClassMeans:
        """Train, and average the embeddings that the last pass of training saw, in training mode."""
        import torch

        from fedchain.learning.models.prototypes import class_means

        last = batches_per_pass(len(client.train_labels), self.batch_size)
        embeddings, batches = deque[torch.Tensor](maxlen=last), deque[torch.Tensor](maxlen=last)

        def given(batch: torch.Tensor) -> Known:
            batches.append(batch)
            return known

        self.train(client, round, given=given, seen=embeddings.append)
        labels = client.train_labels[torch.cat(list(batches))]
        return class_means(torch.cat(list(embeddings)), labels, client.info.classes)


def mse_to_prototypes(
    embedding: torch.Tensor, labels: torch.Tensor, prototypes: torch.Tensor, is_known: torch.Tensor
) -> torch.Tensor:
    """R = 1/(B D) sum_b ||f(x_b) - P^(y_b)||^2; an example of an unknown class counts as no distance (FedProto)."""
    distance = embedding - prototypes[labels]  # (B, D)
    return (distance.square() * is_known[labels].unsqueeze(1)).mean()


def norm_to_prototypes(
    embedding: torch.Tensor, labels: torch.Tensor, prototypes: torch.Tensor, is_known: torch.Tensor
) -> torch.Tensor:
    """R = 1/|I| sum_(i in I) ||p^i - P^i||_2, I the known classes of the batch, p^i their batch means (Eq. 4)."""
    import torch

    members = (labels.unsqueeze(1) == torch.arange(len(prototypes))).to(embedding.dtype)  # (B, C)
    counts = members.sum(dim=0)  # (C,)
    means = members.T @ embedding / counts.clamp(min=1).unsqueeze(1)  # (C, D)
    counted = (counts > 0) & is_known  # (C,)
    distance = (means - prototypes) * counted.unsqueeze(1)  # (C, D)
    norms: torch.Tensor = torch.linalg.vector_norm(distance, dim=1)  # (C,)
    return norms.sum() / counted.sum().clamp(min=1)
