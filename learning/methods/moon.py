"""MOON: Li et al., "Model-Contrastive Federated Learning", CVPR 2021 (arXiv:2103.16257).

B batch, C classes, D embedding, n examples of the client, S scalars of the model's state.

A newcomer starts from the common model; in its first round it has no last model, and l_con is zero. A leaver takes its
last model with it: nobody else has that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple

from fedchain.files.effects import Needs
from fedchain.learning.method import validate_range
from fedchain.learning.methods.fedavg import FedAvg
from fedchain.learning.round import Round, Tensors

if TYPE_CHECKING:
    import torch

    from fedchain.learning.client import Client, Forward


@dataclass(slots=True)
class MoonState:
    """The state that a client keeps between rounds."""

    previous: torch.Tensor | None = None
    """(S,): the state of its last local model."""


class Others(NamedTuple):
    """Embeddings of a batch under two models that are not trained."""

    common: torch.Tensor
    """(B, D): the common model."""

    previous: torch.Tensor
    """(B, D): the client's own last model."""

    weight: float
    """Weight mu of the contrast; 0 in a client's first round, when there is no last model."""

    widths: tuple[int, ...] = ()
    """(L,): where all layers lie side by side (FedIntR), the width of each; D is their sum."""


@dataclass(frozen=True, kw_only=True)
class Moon(FedAvg):
    """FedAvg whose clients pull embeddings towards the common model's and away from their own last model's."""

    contrast_weight: float = 1.0
    """Weight mu of the contrastive term."""

    temperature: Annotated[float, Needs("contrast_weight")] = 0.5
    """Temperature tau of the similarities."""

    beyond_dp_sgd: ClassVar[str] = ""
    beyond_late: ClassVar[str] = "its clients remember the model that they posted"
    beyond_rules: ClassVar[str] = ""
    beyond_fedex: ClassVar[str] = "its clients remember the model that they posted"
    uses_embedding: ClassVar[bool] = True

    def validate(self) -> None:
        """Raise `ConfigurationError` for a hyper-parameter outside its range."""
        super().validate()
        validate_range("contrast_weight", self.contrast_weight, 0.0, 1e6)
        validate_range("temperature", self.temperature, 0.0, 1e6, low_open=True)

    def update(self, client: Client, round: Round) -> Tensors:
        """Train with the contrastive term (Algorithm 1), post the parameters and n_k, and keep the local model."""
        from fedchain.learning.models.representations import training_embeddings
        from fedchain.learning.models.vectors import read_state

        common = training_embeddings(client)  # (n, D)
        state = client.state(MoonState)
        previous = training_embeddings(client, state.previous)  # (n, D)
        weight = 0.0 if state.previous is None else self.contrast_weight
        self.train(client, round, given=lambda batch: Others(common[batch], previous[batch], weight))
        state.previous = read_state(client.model)  # (S,)
        return self.post_model(client)

    def loss(self, forward: Forward, images: torch.Tensor, labels: torch.Tensor, given: Others) -> torch.Tensor:
        """l = l_sup + mu * l_con (Eq. 4). In a client's first round there is no previous model, and l_con is zero."""
        import torch.nn.functional as F

        embedding, logits = forward(images)  # z, (B, D), (B, C)
        positive = F.cosine_similarity(embedding, given.common) / self.temperature  # (B,)
        negative = F.cosine_similarity(embedding, given.previous) / self.temperature  # (B,)
        contrast = F.softplus(negative - positive).mean()  # -log(exp p / (exp p + exp n)), Eq. 3
        return F.cross_entropy(logits, labels) + given.weight * contrast
