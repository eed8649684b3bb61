"""How good a model is: accuracy (a fraction in [0, 1]) and mean cross-entropy. D embedding, N examples."""

from collections.abc import Callable

import torch
import torch.nn.functional as F

from fedchain.learning.exceptions import OwnCodeFailed
from fedchain.learning.models.base import Model
from fedchain.learning.models.prototypes import forward_all, nearest_prototype
from fedchain.learning.training.measured import Evaluation

Auxiliary = Callable[[torch.Tensor, torch.Tensor], tuple[float, torch.Tensor]]
"""auxiliary(embeddings (N, D), labels (N,)) -> weight and value; see `Method.auxiliary`."""


def evaluate(model: Model, images: torch.Tensor, labels: torch.Tensor) -> tuple[float, float]:
    """Return accuracy and mean cross-entropy on N labelled images."""
    result = evaluate_local(model, images, labels)
    return result.local_accuracy, result.local_loss


def evaluate_local(
    model: Model,
    images: torch.Tensor,
    labels: torch.Tensor,
    prototypes: torch.Tensor | None = None,
    prototype_labels: torch.Tensor | None = None,
    auxiliary: Auxiliary | None = None,
) -> Evaluation:
    """Measure a model on N labelled images; with prototypes (n, D) and their labels (n,), their prediction too.

    `auxiliary` gives weight and value of the method's term beside cross-entropy. Raises `OwnCodeFailed` for prototypes
    that no embedding can be compared with.
    """
    embeddings, logits = forward_all(model, images)  # (N, D), (N, C)
    by_prototype = None
    if prototypes is not None and prototype_labels is not None:
        if prototypes.shape[1] != embeddings.shape[1]:
            found, width = prototypes.shape[1], embeddings.shape[1]
            raise OwnCodeFailed(f"the method's prototypes have {found} columns, embeddings of the model {width}")
        by_prototype = accuracy(nearest_prototype(embeddings, prototype_labels, prototypes), labels)
    loss = float(F.cross_entropy(logits, labels))
    term = None if auxiliary is None else auxiliary(embeddings, labels)
    return Evaluation(
        local_accuracy=accuracy(logits.argmax(dim=1), labels),
        local_loss=loss,
        prototype_accuracy=by_prototype,
        auxiliary_loss=None if term is None else float(term[1]),
        local_objective=None if term is None else loss + term[0] * float(term[1]),
    )


def accuracy(predicted: torch.Tensor, labels: torch.Tensor) -> float:
    """Return the fraction of equal labels."""
    return int((predicted == labels).sum()) / len(labels)
