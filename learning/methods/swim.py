"""SWIM: Zhang et al., "SWIM: Sliding-Window Model Contrast for Federated Learning", Future Generation Computer Systems
164, 2025.

B batch, C classes, D embedding, W models (or batches) in the window, n examples of the client, R rounds.

A newcomer starts from the common model with an empty window, and the mu of the round and not of its age. A leaver takes
its window with it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.method import validate_range
from fedchain.learning.methods.fedavg import FedAvg
from fedchain.learning.round import Round, Tensors

if TYPE_CHECKING:
    import torch

    from fedchain.learning.client import Client, Forward


@dataclass(slots=True)
class SwimState:
    """The state that a client keeps between rounds."""

    earlier: tuple[torch.Tensor, ...] = ()
    """W or fewer times (n, D): embeddings of its images under its last local models, the newest last."""


class Window(NamedTuple):
    """The representations that the loss contrasts embeddings with."""

    common: torch.Tensor
    """(B, D): the batch under the common model."""

    earlier: torch.Tensor
    """(W, B, D): the window; zeros where it is not filled yet."""

    is_filled: torch.Tensor
    """(W,), bool."""

    mu: torch.Tensor
    """(), weight of the contrast."""


@dataclass(frozen=True, kw_only=True)
class Swim(FedAvg):
    """MOON's contrast with a window of earlier representations: the near ones attract, the far ones repel."""

    temperature: float = 0.5
    """Temperature tau of the similarities."""

    window: int = 4
    """Number of earlier representations in the window, W."""

    window_of: Literal["models", "batches"] = "models"
    """The entries of the sliding window: models (the client's last W local models, each on the current batch; the
    paper's abstract) or batches (its last model on the last W batches, other images for the most part; the published
    code)."""

    rounds: int = 100
    """Rounds R over which the weight mu of the contrast falls from 1/2 to 0."""

    beyond_dp_sgd: ClassVar[str] = ""
    beyond_rules: ClassVar[str] = ""
    uses_embedding: ClassVar[bool] = True

    def validate(self) -> None:
        """Raise `ConfigurationError` for a hyper-parameter outside its range."""
        super().validate()
        validate_range("temperature", self.temperature, 0.02, 1e6)  # e^(1 / temperature) is a float32
        validate_range("window", self.window, 1, 64)
        validate_range("rounds", self.rounds, 1, 1 << 20)
        if self.gradient_noise > 0 and self.window_of == "batches":
            raise ConfigurationError("DP-SGD needs window_of models: a window of batches shows an example to others")

    def update(self, client: Client, round: Round) -> Tensors:
        """Train with the contrastive term, post the parameters and n_k, and let the window slide."""
        import torch

        from fedchain.learning.models.representations import training_embeddings

        common = training_embeddings(client)  # (n, D)
        state = client.state(SwimState)
        earlier = list(state.earlier)  # W or fewer times (n, D), the newest last
        mu = torch.tensor(self.mu(round.number))
        latest: deque[torch.Tensor] = deque(maxlen=self.window)

        def given(batch: torch.Tensor) -> Window:
            if self.window_of == "models" or not earlier:
                rows = [embeddings[batch] for embeddings in earlier]
            else:
                latest.append(earlier[-1][batch])
                rows = list(latest)
            missing = [torch.zeros_like(common[batch])] * (self.window - len(rows))
            is_filled = torch.arange(self.window) < len(rows)  # (W,)
            return Window(common[batch], torch.stack([*rows, *missing]), is_filled, mu)

        self.train(client, round, given=given)
        kept = self.window if self.window_of == "models" else 1
        # A fixed model has the same output for an image in every round: its output is kept, and not the model.
        state.earlier = tuple([*earlier, training_embeddings(client)][-kept:])
        return self.post_model(client)

    def mu(self, number: int) -> float:
        """Return the weight of the contrast in a round."""
        return max(0.5 - number / (2 * self.rounds), 0.0)

    def loss(self, forward: Forward, images: torch.Tensor, labels: torch.Tensor, given: Window) -> torch.Tensor:
        """(1 - mu) CE - mu log(P / (P + N)), P and N the sums over near and far representations."""
        import torch
        import torch.nn.functional as F

        embedding, logits = forward(images)  # z, (B, D), (B, C)
        to_common = F.cosine_similarity(embedding, given.common).mean()
        to_earlier = F.cosine_similarity(embedding.unsqueeze(0), given.earlier, dim=2).mean(dim=1)  # (W,)
        terms = torch.exp(to_earlier / self.temperature) * given.is_filled  # (W,)
        is_near = to_earlier >= 0.5  # (W,)
        near = torch.exp(to_common / self.temperature) + (terms * is_near).sum()  # P
        far = (terms * ~is_near).sum()  # N
        contrast = -torch.log(near / (near + far))
        return (1 - given.mu) * F.cross_entropy(logits, labels) + given.mu * contrast
