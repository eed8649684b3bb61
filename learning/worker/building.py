"""Learners are built from their plans."""

from collections.abc import Callable
from typing import Any

from fedchain.files.spool import InMemory
from fedchain.learning.task.choice import TaskFunction
from fedchain.learning.task.data_source import DataSource
from fedchain.learning.worker.learner import Learner
from fedchain.learning.worker.plan import LearnerPlan, Named
from fedchain.learning.worker.stores import Stores


def build_learner(
    plan: LearnerPlan, task: TaskFunction | None = None, source: DataSource | None = None
) -> "PlannedLearner":
    """Build the learner of a plan.

    Args:
        plan: the plan.
        task: for own data, the function itself; None: the one that the plan names.
        source: where examples come from, if another learner of the plan has opened it: :attr:`Learner.source`.
    """
    learner = PlannedLearner(plan, task, source)
    if plan.source is not None and source is None:
        learner.replace_source(plan.source.resolve())
    learner.train_on(plan.device, vectorize_clients=plan.vectorize_clients)
    return learner


class PlannedLearner(Learner):
    """A learner with the plan that it was built from: another process builds the same one from it."""

    def __init__(self, plan: LearnerPlan, task: TaskFunction | None, source: DataSource | None) -> None:
        super().__init__(
            plan.config,
            task,
            source=source,
            measurements=plan.measurements,
            members=plan.members,
            chain_id=plan.chain_id,
            stores=Stores(
                _resolved(plan.secrets),
                _resolved(plan.ledger),
                _resolved(plan.parts),
                InMemory if plan.spools is None else plan.spools.resolve()(),
            ),
        )
        self.plan = plan


def _resolved(named: Named | None) -> Callable[..., Any] | None:
    return None if named is None else named.resolve()
