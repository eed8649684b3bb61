"""How good a model was found to be, and when that is looked at: plain values for processes that hold no model, too."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One model, measured."""

    local_accuracy: float
    """Fraction of the client's own test set that the model's head gets right, over all C outputs."""

    local_loss: float
    """Mean cross-entropy on the client's own test set, in nats."""

    prototype_accuracy: float | None = None
    """Fraction right if each embedding takes the nearest global prototype among the client's classes."""

    auxiliary_loss: float | None = None
    """The method's term beside cross-entropy, unweighted, on the client's own test set; None without one."""

    local_objective: float | None = None
    """The loss that the method minimises, on the client's own test set: cross-entropy and the weighted term."""

    test_accuracy: float | None = None
    """Fraction of the whole test set that the head gets right; None if not measured."""

    test_accuracy_prototype: float | None = None
    """Fraction of it right if each embedding takes the nearest global prototype of all; None if not measured."""

    test_loss: float | None = None
    """Mean cross-entropy on the whole test set, in nats; None if not measured."""


@dataclass(frozen=True, slots=True)
class Measurements:
    """When models are measured on their clients' own test sets, and which are measured on the whole one."""

    every: int = 1
    """Rounds between measurements on the own test sets; 0: none but those that one on the whole test set includes."""

    last: int = 0
    """The last round, which is measured unless none is, as are those after it."""

    test_local: bool = True
    """Whether models that nobody shares may be measured on the whole test set, too."""

    def is_due(self, round_number: int) -> bool:
        """Whether a round's models are measured, whatever is asked for beside it."""
        return self.every > 0 and (round_number % self.every == 0 or round_number >= self.last > 0)


IN_EVERY_ROUND = Measurements()
"""All models are measured in every round, and on the whole test set as well where that is asked for."""


def calculate_taa(evaluations: Sequence[Evaluation]) -> float:
    """TAA: the plain mean over clients of the accuracy on their own test sets (DFPL, section V)."""
    return sum(evaluation.local_accuracy for evaluation in evaluations) / len(evaluations)


def calculate_tal(evaluations: Sequence[Evaluation]) -> float:
    """TAL: the plain mean over clients of the loss on their own test sets (DFPL, section V)."""
    return sum(evaluation.local_loss for evaluation in evaluations) / len(evaluations)
