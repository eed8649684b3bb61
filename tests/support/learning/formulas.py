"""Tensors small enough to follow, for the formulas of a loss and of an aggregate."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from fedchain.learning.families.local_sgd import LocalSgdMethod
from fedchain.learning.families.prototypes import Known
from fedchain.learning.method import Method
from fedchain.learning.round import ReadPost, Round, Tensors

B, C, D = 6, 4, 3
GENERATOR = torch.Generator().manual_seed(0)
EMBEDDING = torch.rand(B, D, generator=GENERATOR, dtype=torch.float64)
LOGITS = torch.randn(B, C, generator=GENERATOR, dtype=torch.float64)
LABELS = torch.tensor([0, 2, 2, 1, 0, 2])
PROTOTYPES = torch.rand(C, D, generator=GENERATOR, dtype=torch.float64)
IS_KNOWN = torch.tensor([True, False, True, True])


def forward(images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return EMBEDDING, LOGITS


def loss_of(method: LocalSgdMethod, is_known: torch.Tensor = IS_KNOWN) -> float:
    return float(method.loss(forward, torch.zeros(B, 1), LABELS, Known(PROTOTYPES, is_known)))


def aggregate(method: Method, payloads: Sequence[Tensors]) -> Tensors:
    posts = tuple(ReadPost(bytes([index]), payload) for index, payload in enumerate(payloads))
    return method.aggregate(method.phases[0], Round(1, None, posts))


def posted(labels: list[int], counts: list[int], prototypes: Any) -> Tensors:
    return {"labels": np.array(labels), "counts": np.array(counts), "prototypes": np.array(prototypes, np.float32)}


CROSS_ENTROPY = float(F.cross_entropy(LOGITS, LABELS))


def random_models(count: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(4)
    return [{"model.w": rng.normal(size=(3, 2)).astype(np.float32)} for _ in range(count)]
