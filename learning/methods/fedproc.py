"""FedProc: Mu et al., "FedProc: Prototypical Contrastive Federated Learning on Non-IID Data", Future Generation
Computer Systems 143, 2023 (arXiv:2109.12273).

B batch, C classes, D embedding.

A newcomer starts from the common model and the prototypes in force, with the alpha of the round and not of its age. A
leaver's prototypes count in the means of its last round alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from fedchain.learning.families.prototypes import NEVER, known_prototypes
from fedchain.learning.method import Phase, validate_range
from fedchain.learning.methods.fedavg import FedAvg
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.payload.spec import TensorSpec
from fedchain.learning.round import ReadPost, Round, Tensors
from fedchain.learning.sums.plain import PlainSums

if TYPE_CHECKING:
    import torch

    from fedchain.learning.client import Client, Forward


class Contrast(NamedTuple):
    """The prototypes that the loss contrasts embeddings with, and the weight of cross-entropy."""

    alpha: torch.Tensor
    """(), weight of cross-entropy."""

    prototypes: torch.Tensor
    """(C, D); zeros where none is known."""

    is_known: torch.Tensor
    """(C,), bool."""


@dataclass(frozen=True, kw_only=True)
class FedProc(FedAvg):
    """FedAvg that also shares class prototypes and contrasts embeddings with them, at first above all."""

    contrast_rounds: int = 100
    """Rounds over which the weight alpha of cross-entropy rises from 0 to 1."""

    beyond_dp_sgd: ClassVar[str] = "it posts the class means of the examples, too"
    beyond_rules: ClassVar[str] = ""
    uses_embedding: ClassVar[bool] = True

    def validate(self) -> None:
        """Raise `ConfigurationError` for a hyper-parameter outside its range."""
        super().validate()
        validate_range("contrast_rounds", self.contrast_rounds, 1, 1 << 20)

    def update(self, client: Client, round: Round) -> Tensors:
        """Train; post the parameters, n_k and the class means of the client's data."""
        import torch

        from fedchain.learning.models.prototypes import calculate_prototypes

        contrast = Contrast(torch.tensor(self.alpha(round)), *known_prototypes(client.info, round))
        self.train(client, round, given=lambda batch: contrast)
        means = calculate_prototypes(client.model, client.train_images, client.train_labels)
        return self.post_model(client) | means.as_post()

    def alpha(self, round: Round) -> float:
        """Return the weight of cross-entropy; without prototypes there is nothing else."""
        return 1.0 if round.knowledge is None else min((round.number - 1) / self.contrast_rounds, 1.0)

    def loss(self, forward: Forward, images: torch.Tensor, labels: torch.Tensor, given: Contrast) -> torch.Tensor:
        """alpha * CE + (1 - alpha) * L_gpc, the contrast with the unit prototypes of all classes."""
        import torch.nn.functional as F

        embedding, logits = forward(images)  # z, (B, D), (B, C)
        similarity = embedding.to(given.prototypes.dtype) @ F.normalize(given.prototypes, dim=1).T  # z . c_j, (B, C)
        log_share = F.log_softmax(similarity.masked_fill(~given.is_known, NEVER), dim=1)  # (B, C)
        own = log_share.gather(1, labels.unsqueeze(1)).squeeze(1)  # (B,)
        contrast = -(own * given.is_known[labels]).mean()  # L_gpc; an example of an unknown class counts nothing
        return given.alpha * F.cross_entropy(logits, labels) + (1 - given.alpha) * contrast

    def aggregate(self, phase: Phase, round: Round) -> Tensors:
        """The weighted mean of the models, and each class's mean embedding over all examples of the round."""
        return self.combine(round, self.weight) | self.sums.aggregate(phase, round)

    @cached_property
    def sums(self) -> PlainSums:
        """How prototypes become one. With equal weights, or a robust rule, nobody's examples are counted."""
        is_counted = self.weighting == "examples" and self.robust_rule is None
        return PlainSums("samples" if is_counted else "holders", self.robust_rule)

    def prototypes(self, knowledge: Tensors) -> Tensors:
        """The global prototypes and how many clients stand behind each."""
        return {name: np.array(knowledge[name]) for name in ("labels", "holders", "prototypes")}

    def check(self, phase: Phase, post: ReadPost, round: Round) -> None:
        """Labels ascend strictly, and there is one count and one prototype for each."""
        self.sums.check(phase, post, round)

    def payload_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """The model's tensors, n_k, and the client's prototypes with their counts."""
        return (*super().payload_spec(phase, info), *self.sums.payload_spec(phase, info))

    def knowledge_spec(self, phase: Phase, info: ModelInfo) -> tuple[TensorSpec, ...]:
        """The model's tensors and the global prototypes."""
        return (*super().knowledge_spec(phase, info), *self.sums.knowledge_spec(phase, info))
