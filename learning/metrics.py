"""How good a model is: accuracy (a fraction in [0, 1]) and mean cross-entropy. D embedding, N examples."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from fedchain.learning.models import Model
from fedchain.learning.prototypes import forward_all, nearest_prototype


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One model, measured."""

    local_accuracy: float
    """Fraction of the client's own test set that the model's head gets right, over all C outputs."""

    local_loss: float
    """Mean cross-entropy on the client's own test set, in nats."""

    prototype_accuracy: float | None = None
    """Fraction right if each embedding takes the nearest global prototype among the client's classes."""

    test_accuracy: float | None = None
    """Fraction of the whole test set that the head gets right; None if not measured."""

    test_loss: float | None = None
    """Mean cross-entropy on the whole test set, in nats; None if not measured."""


def evaluate(model: Model, images: torch.Tensor, labels: torch.Tensor) -> tuple[float, float]:
    """Return accuracy and mean cross-entropy on N labelled images."""
    _, logits = forward_all(model, images)
    return accuracy(logits.argmax(dim=1), labels), float(F.cross_entropy(logits, labels))


def evaluate_prototypes(
    model: Model, images: torch.Tensor, labels: torch.Tensor, prototypes: torch.Tensor, prototype_labels: torch.Tensor
) -> float:
    """Return the accuracy of nearest-prototype prediction on N labelled images; prototypes (n, D), labels (n,)."""
    embeddings, _ = forward_all(model, images)
    return accuracy(nearest_prototype(embeddings, prototype_labels, prototypes), labels)


def accuracy(predicted: torch.Tensor, labels: torch.Tensor) -> float:
    """Return the fraction of equal labels."""
    return int((predicted == labels).sum()) / len(labels)


def calculate_taa(evaluations: Sequence[Evaluation]) -> float:
    """TAA: the plain mean over clients of the accuracy on their own test sets (DFPL, section V)."""
    return sum(evaluation.local_accuracy for evaluation in evaluations) / len(evaluations)


def calculate_tal(evaluations: Sequence[Evaluation]) -> float:
    """TAL: the plain mean over clients of the loss on their own test sets (DFPL, section V)."""
    return sum(evaluation.local_loss for evaluation in evaluations) / len(evaluations)
