"""A federation that encrypts what it sums."""

from functools import cache
from typing import Any

import pytest

from fedchain.simulator.engine.outcome import Outcome
from fedchain.simulator.run import Run, load_learner
from fedchain.simulator.scenario import Scenario

SETTINGS: dict[str, Any] = {
    "encryption": "threshold",
    "decryption_threshold": 2,
    "contributors_min": 3,
    "local_epochs": 0,
    "local_steps": 1,
}

SCENARIO = Scenario(
    peers=4,
    rounds=2,
    workers=1,
    method="tests.support.learning.small_keys:SmallKeyFedPh",
    hyperparameters=SETTINGS,
    partition="iid",
    test_every=0,
)


def run(scenario: Scenario, *, shares_checks: bool = True) -> Outcome:
    with Run(scenario, load_learner(scenario), shares_checks=shares_checks) as opened:
        outcome = opened.play(lambda row, witness: None)
    assert outcome.violations == []
    assert len(outcome.rows) == scenario.rounds
    return outcome


@pytest.fixture
def outcome() -> Outcome:
    return _outcome()


@cache  # the files that import a fixture have one each
def _outcome() -> Outcome:
    return run(SCENARIO)
