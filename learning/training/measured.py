"""How good a model was found to be: numbers, which processes that hold no model read, too."""

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
