"""Trained models, measured again: on one member's test set, on all of them, on the whole test set of a data set."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedchain.learning.worker.learner import Learner
from fedchain.learning.worker.model_file import ModelState
from fedchain.simulator.trained.folders import ModelFolder, TrainedModel


@dataclass(frozen=True, slots=True)
class Measured:
    """How good one model is."""

    sites: tuple[int, ...]
    """Members on whose own test sets it was measured."""
    accuracies: tuple[float, ...]
    """One for each of them, as fractions."""
    losses: tuple[float, ...]
    """Mean cross-entropy on the same, in nats."""
    test_accuracy: float | None
    """On the whole test set; None: the members have none in common."""

    @property
    def accuracy(self) -> float:
        """Mean over the members' test sets (TAA), added up in their order, as a run does."""
        return sum(self.accuracies) / len(self.accuracies)

    @property
    def loss(self) -> float:
        """Mean over the same (TAL)."""
        return sum(self.losses) / len(self.losses)


@dataclass(frozen=True, slots=True)
class CrossSite:
    """Models of members, each on the own test set of each member."""

    owners: tuple[int | None, ...]
    """Whose model each row is; None: the common one."""
    sites: tuple[int, ...]
    """Whose test set each column is."""
    accuracies: tuple[tuple[float, ...], ...]
    """A row for each model, as fractions."""


def measure(learner: Learner, state: ModelState, owner: int, sites: Sequence[int]) -> Measured:
    """Measure a model on the own test sets of members, and on the whole test set where there is one.

    Args:
        learner: has the members' data.
        state: the model's.
        owner: a member whose model is built in the same way.
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
    """Measure a model as its run did: a member's on its own test set, the aggregate on everybody's."""
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
