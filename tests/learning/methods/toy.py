"""A batch small enough to follow: B examples, C classes, D embedding, W models."""

from typing import Any

import torch
import torch.nn.functional as F

from fedchain.learning.families.local_sgd import LocalSgdMethod

B, C, D, W = 6, 4, 3, 3
GENERATOR = torch.Generator().manual_seed(0)
EMBEDDING = torch.randn(B, D, generator=GENERATOR, dtype=torch.float64)
COMMON = torch.randn(B, D, generator=GENERATOR, dtype=torch.float64)
PREVIOUS = torch.randn(B, D, generator=GENERATOR, dtype=torch.float64)
LOGITS = torch.randn(B, C, generator=GENERATOR, dtype=torch.float64)
LABELS = torch.tensor([0, 2, 2, 1, 0, 2])
CROSS_ENTROPY = float(F.cross_entropy(LOGITS, LABELS))


def loss_of(method: LocalSgdMethod, given: Any, embedding: torch.Tensor = EMBEDDING) -> float:
    """The method's loss where the model makes these embeddings and logits of the batch."""
    return float(method.loss(lambda _: (embedding, LOGITS), torch.zeros(B, 1), LABELS, given))


def cosine(one: torch.Tensor, other: torch.Tensor) -> float:
    """The cosine similarity of two vectors, as the formula has it."""
    return float(one @ other / (one.norm() * other.norm()))
