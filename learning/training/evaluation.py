"""How good a model is: accuracy (a fraction in [0, 1]) and mean cross-entropy. D embedding, N examples."""

from collections.abc import Callable
from typing import Any

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
    that no embedding can be compared with, and for a term that is no two numbers.
    """
    embeddings, logits = forward_all(model, images)  # (N, D), (N, C)
    by_prototype = None
    if prototypes is not None and prototype_labels is not None:
        if prototypes.shape[1] != embeddings.shape[1]:
            found, width = prototypes.shape[1], embeddings.shape[1]
            raise OwnCodeFailed(f"the method's prototypes have {found} columns, embeddings of the model {width}")
        by_prototype = accuracy(nearest_prototype(embeddings, prototype_labels, prototypes), labels)
    loss = float(F.cross_entropy(logits, labels))
    term = None if auxiliary is None else _as_numbers(auxiliary(embeddings, labels))
    return Evaluation(
        local_accuracy=accuracy(logits.argmax(dim=1), labels),
        local_loss=loss,
        prototype_accuracy=by_prototype,
        auxiliary_loss=None if term is None else term[1],
        local_objective=None if term is None else loss + term[0] * term[1],
    )


def _as_numbers(term: Any) -> tuple[float, float]:
    """Return weight and value of the term beside cross-entropy. Raises `OwnCodeFailed` for anything else."""
    try:
        weight, value = term
        return float(weight), float(value)
    except (TypeError, ValueError, RuntimeError):  # torch's own, for a tensor of several numbers
        found = " ".join(repr(term).split())
        wanted = "the method's auxiliary must give weight and value, two numbers"
        raise OwnCodeFailed(f"{wanted}, not {found:.80}") from None


def accuracy(predicted: torch.Tensor, labels: torch.Tensor) -> float:
    """Return the fraction of equal labels."""
    return int((predicted == labels).sum()) / len(labels)
