"""Training ahead of the votes changes no run: neither its trace, nor what it learns, nor what it measures."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedchain.learning.executors.ahead import Forecasts
from fedchain.learning.executors.executor import Asked, Question
from fedchain.learning.executors.inline import InlineExecutor
from fedchain.learning.executors.outcomes import Counts
from fedchain.learning.worker.plan import LearnerPlan
from fedchain.simulator.choices import HERE, Training
from fedchain.simulator.run import Run, load_learner
from fedchain.simulator.scenario import scenario_from_dict
from tests.support.simulator.interruptions import KINDS, SMALL, found

QUICK: Mapping[str, Any] = {**SMALL, "peers": 5, "workers": 2}

SCENARIOS: Mapping[str, Mapping[str, Any]] = {
    "prototypes": {"method": "dfpl"},
    "control variates, lost messages": {"method": "scaffold", "loss": 0.2, "replay": 0.2},
    "momentum, three workers": {"method": "fedavg", "hyperparameters": {"momentum": 0.9}, "workers": 3},
    "groups, one worker": {"method": "demlearn", "workers": 1},
    "two phases": {"method": "fedcurv"},
    "crashes": KINDS["prototypes, restarted"],
    "mixed blocks": {"method": "scaffold", "delay_min_ms": 400, "delay_max_ms": 2_000, "mining_s": 1.0},
    "withheld blocks": {
        "method": "fedavg",
        "adversaries": [{"behaviour": "double-voter", "peers": [4]}, {"behaviour": "sign-flipper", "peers": [3]}],
        "peers": 7,
    },
    "drawn cohorts": {
        "method": "fedavg",
        "model": "logistic",
        "peers": 9,
        "contributors_per_round": 4,
        "committee_size": 4,
    },
    "sleepers": {
        "method": "scaffold",
        "peers": 12,
        "contributors_per_round": 4,
        "committee_size": 4,
        "idle_sleep": True,
    },
    "noise": {"hyperparameters": {"local_steps": 2, "prototype_noise": 6.0}, "rounds": 2},
    "parts": KINDS["for one reader"],
    "an aggregator": {"method": "fedgkt", "model": "split-mlp-1", "partition": "iid"},
}
"""Runs of some seconds, each with something that a forecast may run into."""

IN_CI = {"crashes", "withheld blocks", "sleepers", "noise", "an aggregator"}
"""Peers that go back, candidates that lose, peers that are asleep, and forecasts that are refused."""


class Eager(InlineExecutor):
    """Makes each forecast at once, but every third of another knowledge than it is asked to: a candidate that loses."""

    def __init__(self, plan: LearnerPlan) -> None:
        super().__init__(plan)
        self.forecasts, self._known = Counts(), [b""]
        self.ahead = Forecasts(self.learner, lambda number, outcome: self.forecasts.add(outcome))

    def compute(self, question: Question, state: Path | None = None) -> Asked:
        if question.knowledge not in self._known:
            self._known.append(question.knowledge)
        return super().compute(question, state)

    def foresee(self, question: Question) -> None:
        self.forecasts.foreseen += 1
        number, client = self.forecasts.foreseen, question.client
        before = self.learner.checkpoint(client)
        self.ahead.make(number, question if number % 3 else replace(question, knowledge=self._known[-1]))
        assert self.learner.checkpoint(client) == before, f"client {client} has changed by a forecast"


def play(values: Mapping[str, Any], training: Training = HERE) -> tuple[dict[str, Any], Counts | None]:
    scenario = scenario_from_dict({**QUICK, **values})
    with Run(scenario, load_learner(scenario), training=training) as run:
        return found(run.play(lambda row, witness: None)), run.forecasts


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(values, id=name, marks=() if name in IN_CI else pytest.mark.slow)
        for name, values in SCENARIOS.items()
    ],
)
def test_it_changes_no_run(values: Mapping[str, Any]) -> None:
    plain, none = play({**values, "train_ahead": False})
    assert none == Counts()
    ahead, counts = play(values)
    assert ahead == plain
    assert counts is not None
    assert counts.foreseen > 0
    spoiled, counts = play(values, Training(executor=Eager))
    assert spoiled == plain
    assert counts is not None
    is_foreseen = not counts.refused
    assert (counts.ready > 0, counts.thrown_away > 0) == (is_foreseen, is_foreseen), counts


def test_an_executor_that_foresees_nothing_is_asked_for_nothing() -> None:
    values = {"method": "fedavg"}
    assert play(values, Training(executor=InlineExecutor)) == (play(values)[0], None)


def test_those_that_sleep_are_foreseen_before_they_wake() -> None:
    scenario = scenario_from_dict({**QUICK, **SCENARIOS["sleepers"], "method": "fedavg"})
    with Run(scenario, load_learner(scenario), training=Training(executor=Eager)) as run:
        run.play(lambda row, witness: None)
    drawn = scenario.contributors_per_round * (scenario.rounds - 1)
    assert run.forecasts is not None
    assert run.forecasts.foreseen >= drawn, "all that later rounds draw, of which most sleep"
