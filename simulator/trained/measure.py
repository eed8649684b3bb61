"""Measuring trained models: on one member's test set, on all of them, on the whole test set of a data set."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedchain.learning.worker.learner import Learner
from fedchain.learning.worker.model_file import ModelState
from fedchain.simulator.trained.folders import ModelFolder, TrainedModel


@dataclass(frozen=True, slots=True)
class Measured:
    """Measurements of one model."""

    sites: tuple[int, ...]
    """Members on whose own test sets it was measured."""
    accuracies: tuple[float, ...]
    """Accuracies on these, as fractions."""
    losses: tuple[float, ...]
    """Mean cross-entropies on these, in nats."""
    test_accuracy: float | None
    """Accuracy on the whole test set; None if the members have none in common."""

    @property
    def accuracy(self) -> float:
        """Mean over the members' test sets (TAA), summed in their order, as in a run."""
        return sum(self.accuracies) / len(self.accuracies)

    @property
    def loss(self) -> float:
        """Mean loss over the members' test sets (TAL)."""
        return sum(self.losses) / len(self.losses)


@dataclass(frozen=True, slots=True)
class CrossSite:
    """Models of members, each measured on the own test set of each member."""

    owners: tuple[int | None, ...]
    """Owner of each row's model; None: the common model."""
    sites: tuple[int, ...]
    """Owner of each column's test set."""
    accuracies: tuple[tuple[float, ...], ...]
    """Accuracies as fractions, a row for each model."""


def measure(learner: Learner, state: ModelState, owner: int, sites: Sequence[int]) -> Measured:
    """Measure a model on the own test sets of members, and on the whole test set if there is one.

    Args:
        learner: has the members' data.
        state: the model's state.
        owner: a member whose model has the same architecture.
        sites: members, at least one.

    Raises:
        ConfigurationError: the state is of another model.
    """
    found = learner.measure(state, owner, sites)
    whole = learner.measure_on_all(state, owner)
    return Measured(
        sites=tuple(sites),
        accuracies=tuple(item.local_accuracy for item in found),
        losses=tuple(item.local_loss for item in found),
        test_accuracy=None if whole is None else whole.local_accuracy,
    )


def measure_trained(folder: ModelFolder, learner: Learner, model: TrainedModel) -> Measured:
    """Measure a model as its run did: a member's on its own test set, the aggregate on all members' test sets."""
    member = model.origin.member
    return measure(learner, model.state, member or 0, folder.sites if member is None else (member,))


def measure_cross_site(learner: Learner, models: Sequence[TrainedModel], sites: Sequence[int]) -> CrossSite:
    """Measure each model on each member's own test set."""
    rows = [learner.measure(model.state, model.origin.member or 0, sites) for model in models]
    return CrossSite(
        owners=tuple(model.origin.member for model in models),
        sites=tuple(sites),
        accuracies=tuple(tuple(item.local_accuracy for item in row) for row in rows),
    )
