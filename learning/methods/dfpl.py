"""DFPL: Zhang et al., "DFPL: Decentralized Federated Prototype Learning Across Heterogeneous Data Distributions",
arXiv:2505.04947, 2025.

Where the paper is silent or differs from FedProto (Tan et al., AAAI 2022), on which it builds, a field switches
between the readings; docs/methods.md gives the reasons. Equation numbers are the paper's.

B batch, C classes, D embedding, K clients, n classes that one client (or the knowledge) holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedchain.learning.aggregation.mean import WEIGHT_MAX, weighted_mean
from fedchain.learning.exceptions import ConfigurationError, InvalidPayload
from fedchain.learning.local_sgd import Auxiliary
from fedchain.learning.method import Phase, validate_range
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.payload.spec import TensorSpec
from fedchain.learning.robust_method import RobustMethod
from fedchain.learning.round import Post, Round, Tensors
from fedchain.learning.schedule import batches_per_pass

if TYPE_CHECKING:
    import torch

    from fedchain.learning.client import Client, Forward
    from fedchain.learning.models.prototypes import ClassMeans


class Known(NamedTuple):
    """The global prototypes, spread over all classes."""

    prototypes: torch.Tensor
    """(C, D); zeros where none is known."""

    is_known: torch.Tensor
    """(C,), bool."""


_Posted = tuple[int, NDArray[np.float32]]
"""One client's count and prototype (D,) of one class."""


@dataclass(frozen=True, kw_only=True)
class Dfpl(RobustMethod):
    """Clients keep their own models and exchange class prototypes, towards which they pull their embeddings."""

    regularizer_weight: float = 1.0
    """Weight lambda of the pull towards the global prototypes."""

    regularizer: Literal["mse", "norm"] = "mse"
    """The pull: mse (each example's squared distance, mean over examples and dimensions; FedProto's code) or norm
    (each class's mean embedding, L2 norm, mean over the classes of the batch; the paper's Eq. 4 as printed)."""

    aggregation: Literal["holders", "all", "samples"] = "holders"
    """Who counts in a class's global prototype: holders (mean over the clients that have the class), all (their sum
    over K, the paper's Eq. 2 as printed) or samples (holders, weighted by the examples that they say they have).
    Another aggregation_rule takes each class's holders for its posts."""

    prototype_source: Literal["recompute", "last_epoch"] = "recompute"
    """What is posted: recompute (class means under the trained model, all data, evaluation mode) or last_epoch (means
    of the embeddings seen during the last pass of training, as FedProto's code)."""

    def validate(self) -> None:
        """Raise `ConfigurationError` for a hyper-parameter outside its range."""
        super().validate()
        validate_range("regularizer_weight", self.regularizer_weight, 0.0, 1e6)
        if self.robust_rule is not None and self.aggregation != "holders":
            raise ConfigurationError(f"aggregation {self.aggregation} is of the plain mean; robust rules take holders")

    def update(self, client: Client, round: Round) -> Tensors:
        """Train (Algorithm 1), then post the class means of the client's data (Eq. 1)."""
        from fedchain.learning.models.prototypes import calculate_prototypes

        known = known_prototypes(client.info, round)
        if self.prototype_source == "last_epoch":
            means = self._train_and_record(client, round, known)
        else:
            self.train(client, round, given=lambda batch: known)
            means = calculate_prototypes(client.model, client.train_images, client.train_labels)
        return {
            "labels": means.labels.numpy(),  # (n,)
            "counts": means.counts.numpy(),  # (n,)
            "prototypes": means.prototypes.numpy(),  # (n, D)
        }

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

    def aggregate(self, phase: Phase, round: Round) -> Tensors:
        """P^i = mean of the posted p_k^i (Eq. 2), or the robust rule; a class that nobody posted is absent."""
        posted: dict[int, list[_Posted]] = {}  # by label, in sender order
        for post in round.posts:
            payload = post.payload
            for label, count, prototype in zip(
                payload["labels"].tolist(), payload["counts"].tolist(), payload["prototypes"], strict=True
            ):
                posted.setdefault(label, []).append((count, prototype))
        labels = sorted(posted)
        holders = [len(posted[label]) for label in labels]
        before = {} if round.knowledge is None else _by_label(round.knowledge)
        prototypes = [self._global_prototype(posted[label], len(round.posts), before.get(label)) for label in labels]
        return {
            "labels": np.array(labels, dtype=np.int64),  # (n,)
            "holders": np.array(holders, dtype=np.int64),  # (n,)
            "prototypes": np.stack(prototypes),  # (n, D)
        }

    def _global_prototype(
        self, posted: list[_Posted], clients: int, before: NDArray[np.float32] | None
    ) -> NDArray[np.float32]:
        """Average the prototypes of one class, (D,), whose last global prototype is `before`, if it had one."""
        prototypes = [prototype for _, prototype in posted]
        if self.robust_rule is not None:
            known = None if before is None else {"prototype": before}
            return self.robust_rule.combine([{"prototype": prototype} for prototype in prototypes], known)["prototype"]
        if self.aggregation == "samples":
            return weighted_mean(prototypes, [count for count, _ in posted])
        if self.aggregation == "all":
            absent = [np.zeros_like(prototypes[0])] * (clients - len(posted))
            return weighted_mean(prototypes + absent, [1] * clients)
        return weighted_mean(prototypes, [1] * len(posted))

    def _train_and_record(self, client: Client, round: Round, known: Known) -> ClassMeans:
        """Train, and average the embeddings that the last pass of training saw, in training mode."""
        import torch

        from fedchain.learning.models.prototypes import class_means
        from fedchain.learning.training import train

        embeddings: list[torch.Tensor] = []
        seen: list[torch.Tensor] = []

        def loss(forward: Forward, images: torch.Tensor, labels: torch.Tensor, given: Known) -> torch.Tensor:
            def recording(images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
                embedding, logits = forward(images)
                embeddings.append(embedding.detach())
                return embedding, logits

            seen.append(labels)
            return self.loss(recording, images, labels, given)

        train(client, loss, self.schedule, round.number, given=lambda batch: known)
        last = batches_per_pass(len(client.train_labels), self.batch_size)
        return class_means(torch.cat(embeddings[-last:]), torch.cat(seen[-last:]), client.info.classes)

    def prototypes(self, knowledge: Tensors) -> Tensors:
        """The global prototypes and how many clients stand behind each."""
        return knowledge

    def check(self, phase: Phase, post: Post, round: Round) -> None:
        """Labels ascend strictly, and there is one count and one prototype for each."""
        payload = post.payload
        labels, n = payload["labels"], len(payload["labels"])
        if (np.diff(labels) <= 0).any():
            raise InvalidPayload(f"labels: strictly ascending order expected, found {labels.tolist()}")
        for name in ("counts", "prototypes"):
            if len(payload[name]) != n:
                raise InvalidPayload(f"{name}: one for each of {n} labels expected, found {len(payload[name])}")

    def payload_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """The client's classes, the examples behind each, and their prototypes."""
        return (
            *_labelled_prototypes(info),
            TensorSpec("counts", (-1,), "int64", free_max=info.classes, minimum=1, maximum=WEIGHT_MAX),
        )

    def knowledge_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """The known classes, the clients behind each, and the global prototypes."""
        return (*_labelled_prototypes(info), TensorSpec("holders", (-1,), "int64", free_max=info.classes, minimum=1))


def known_prototypes(info: ModelInfo, round: Round) -> Known:
    """Return the prototypes of the knowledge; without any, no class is known."""
    import torch

    prototypes = torch.zeros(info.classes, info.embedding_size)  # (C, D)
    is_known = torch.zeros(info.classes, dtype=torch.bool)  # (C,)
    if round.knowledge is not None:
        labels = torch.from_numpy(np.array(round.knowledge["labels"]))
        prototypes[labels] = torch.from_numpy(np.array(round.knowledge["prototypes"]))
        is_known[labels] = True
    return Known(prototypes, is_known)


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
    import torch.nn.functional as F

    members = F.one_hot(labels, len(prototypes)).to(embedding.dtype)  # (B, C)
    counts = members.sum(dim=0)  # (C,)
    means = members.T @ embedding / counts.clamp(min=1).unsqueeze(1)  # (C, D)
    counted = (counts > 0) & is_known  # (C,)
    distance = (means - prototypes) * counted.unsqueeze(1)  # (C, D)
    norms: torch.Tensor = torch.linalg.vector_norm(distance, dim=1)  # (C,)
    return norms.sum() / counted.sum().clamp(min=1)


def _by_label(knowledge: Tensors) -> dict[int, NDArray[np.float32]]:
    """The global prototype (D,) of each known class."""
    return dict(zip(knowledge["labels"].tolist(), knowledge["prototypes"], strict=True))


def _labelled_prototypes(info: ModelInfo) -> tuple[TensorSpec, ...]:
    return (
        TensorSpec("labels", (-1,), "int64", free_max=info.classes, minimum=0, maximum=info.classes - 1),
        TensorSpec("prototypes", (-1, info.embedding_size), free_max=info.classes),
    )
