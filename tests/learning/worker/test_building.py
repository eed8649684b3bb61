"""A learner is what its plan says: its stores are opened by the functions that the plan names."""

from pathlib import Path

import pytest

from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.payload.part_folder import PartFolder
from fedchain.learning.task.data_source import DataSource, PartitionedDataSource
from fedchain.learning.worker.building import build_learner
from fedchain.learning.worker.plan import LearnerPlan, Named

CONFIG = LearningConfig(clients=2)


def counted(name: str, source: DataSource) -> DataSource:
    """Another source in place of the one that was opened."""
    assert name == "why"
    return PartitionedDataSource(CONFIG)


def test_a_learner_knows_its_plan_and_opens_the_stores_that_it_names(tmp_path: Path) -> None:
    plan = LearnerPlan(config=CONFIG, parts=Named("fedchain.learning.payload.part_folder:parts_in", (str(tmp_path),)))
    learner = build_learner(plan)
    assert learner.plan is plan
    assert learner.config == CONFIG
    assert isinstance(learner.parts(0), PartFolder)


def test_learners_of_one_plan_may_share_an_open_source_which_is_not_replaced_twice() -> None:
    plan = LearnerPlan(config=CONFIG, source=Named(f"{__name__}:counted", ("why",)))
    first = build_learner(plan)
    second = build_learner(plan, source=first.source)
    assert second.source is first.source


def test_a_function_that_is_not_here_is_refused_by_its_name() -> None:
    plan = LearnerPlan(config=CONFIG, secrets=Named("fedchain.learning.sums.secrets:nowhere"))
    with pytest.raises(ConfigurationError, match=r"names fedchain\.learning\.sums\.secrets:nowhere, which is not here"):
        build_learner(plan)
