"""SWIM: Zhang et al., "SWIM: Sliding-Window Model Contrast for Federated Learning", Future Generation Computer Systems
164, 2025.

B batch, C classes, D embedding, W models (or batches) in the window, n examples of the client, R rounds.
"""

from collections import deque
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F

from fedchain.learning.client import Client, Forward, Memory
from fedchain.learning.method import Phase, validate_range
from fedchain.learning.methods.fedavg import FedAvg
from fedchain.learning.models.representations import training_embeddings
from fedchain.learning.round import Round, Tensors
from fedchain.learning.training import train


@dataclass(frozen=True, kw_only=True)
class Swim(FedAvg):
    """MOON's contrast with a window of earlier representations: the near ones attract, the far ones repel."""

    temperature: float = 0.5
    """Temperature tau of the similarities."""

    window: int = 4
    """Number of earlier representations in the window, W."""

    window_of: Literal["models", "batches"] = "models"
    """What slides: models (the client's last W local models, each on the current batch; the paper's abstract) or
    batches (its last model on the last W batches, other images for the most part; the published code)."""

    rounds: int = 100
    """Rounds R over which the weight mu of the contrast falls from 1/2 to 0."""

    def validate(self) -> None:
        """Raise `ConfigurationError` for a hyper-parameter outside its range."""
        super().validate()
        validate_range("temperature", self.temperature, 0.02, 1e6)  # e^(1 / temperature) is a float32
        validate_range("window", self.window, 1, 64)
        validate_range("rounds", self.rounds, 1, 1 << 20)

    def update(self, client: Client, round: Round) -> Tensors:
        """Train with the contrastive term, post the parameters and n_k, and let the window slide."""
        common = training_embeddings(client)  # (n, D)
        earlier = list(client.memory.get("earlier", ()))  # W or fewer times (n, D), the newest last
        client.memory["mu"] = torch.tensor(max(0.5 - round.number / (2 * self.rounds), 0.0))
        latest: deque[torch.Tensor] = deque(maxlen=self.window)

        def beside(batch: torch.Tensor) -> Memory:
            if self.window_of == "models" or not earlier:
                rows = [embeddings[batch] for embeddings in earlier]
            else:
                latest.append(earlier[-1][batch])
                rows = list(latest)
            missing = [torch.zeros_like(common[batch])] * (self.window - len(rows))
            return {
                "common_embedding": common[batch],  # (B, D)
                "window": torch.stack([*rows, *missing]),  # (W, B, D)
                "is_filled": torch.arange(self.window) < len(rows),  # (W,)
            }

        train(client, self.loss, self.schedule, round.number, beside=beside)
        kept = self.window if self.window_of == "models" else 1
        # A model that stands still makes the same of an image in every round: what it makes is kept, and not the model.
        client.memory["earlier"] = torch.stack([*earlier, training_embeddings(client)][-kept:])  # (W or fewer, n, D)
        return self.post_model(client)

    phases: ClassVar[tuple[Phase, ...]] = (Phase("update", update),)
    uses_embedding: ClassVar[bool] = True

    def loss(self, forward: Forward, images: torch.Tensor, labels: torch.Tensor, memory: Memory) -> torch.Tensor:
        """(1 - mu) CE - mu log(P / (P + N)), P and N the sums over near and far representations."""
        embedding, logits = forward(images)  # z, (B, D), (B, C)
        to_common = F.cosine_similarity(embedding, memory["common_embedding"]).mean()
        to_earlier = F.cosine_similarity(embedding.unsqueeze(0), memory["window"], dim=2).mean(dim=1)  # (W,)
        terms = torch.exp(to_earlier / self.temperature) * memory["is_filled"]  # (W,)
        is_near = to_earlier >= 0.5  # (W,)
        near = torch.exp(to_common / self.temperature) + (terms * is_near).sum()  # P
        far = (terms * ~is_near).sum()  # N
        contrast = -torch.log(near / (near + far))
        return (1 - memory["mu"]) * F.cross_entropy(logits, labels) + memory["mu"] * contrast
