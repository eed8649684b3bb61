"""Class prototypes: the mean embedding of each class (Snell et al., Prototypical Networks, NeurIPS 2017).

B batch, C classes, D embedding, n classes present.
"""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray

from fedchain.learning.device import device_in_use
from fedchain.learning.models.base import Model

EVALUATION_BATCH = 256
"""Images per forward pass outside training; bounds the memory, not the result."""


@dataclass(frozen=True, slots=True, eq=False)
class ClassMeans:
    """The mean embedding of each class that has examples."""

    labels: torch.Tensor
    """(n,) int64, ascending."""

    counts: torch.Tensor
    """(n,) int64, examples behind each mean."""

    prototypes: torch.Tensor
    """(n, D) float32."""

    def as_post(self) -> dict[str, NDArray[Any]]:
        """Return the three by their names."""
        return {
            "labels": self.labels.numpy(),  # (n,)
            "counts": self.counts.numpy(),  # (n,)
            "prototypes": self.prototypes.numpy(),  # (n, D)
        }


def class_means(embeddings: torch.Tensor, labels: torch.Tensor, classes: int) -> ClassMeans:
    """Average embeddings (N, D) by label (N,); accumulated in float64."""
    sums = torch.zeros(classes, embeddings.shape[1], dtype=torch.float64)
    sums.index_add_(0, labels, embeddings.double())  # (C, D)
    counts = torch.bincount(labels, minlength=classes)  # (C,)
    present = counts.nonzero().squeeze(1)  # (n,)
    means = sums[present] / counts[present].unsqueeze(1)
    return ClassMeans(labels=present, counts=counts[present], prototypes=means.float())


def calculate_prototypes(model: Model, images: torch.Tensor, labels: torch.Tensor) -> ClassMeans:
    """Return the class means of a data set under the model in evaluation mode (DFPL Eq. 1)."""
    embeddings, logits = forward_all(model, images)  # (N, D), (N, C)
    return class_means(embeddings, labels, logits.shape[1])


def forward_all(model: Model, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return embeddings (N, D), in float32, and logits (N, C) in evaluation mode, batch after batch."""
    model.eval()
    device = device_in_use()
    if device.type != "cpu":
        model = copy.deepcopy(model).to(device)
    with torch.inference_mode():
        parts = [model(batch.to(device)) for batch in torch.split(images, EVALUATION_BATCH)]
    embeddings = torch.cat([embedding for embedding, _ in parts]).float()  # under autocast they are bfloat16
    return embeddings.cpu(), torch.cat([logits for _, logits in parts]).cpu()


def nearest_prototype(embeddings: torch.Tensor, labels: torch.Tensor, prototypes: torch.Tensor) -> torch.Tensor:
    """Predict (N,) labels: for each embedding (N, D) the label (n,) of the nearest prototype (n, D), by L2."""
    return labels[torch.cdist(embeddings, prototypes).argmin(dim=1)]
