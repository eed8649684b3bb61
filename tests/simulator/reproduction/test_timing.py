"""Timing plays the rounds that it times; how long they take is not tested."""

from itertools import count
from types import SimpleNamespace

import pytest

from fedchain.simulator.reproduction.experiment import TIMING_METRICS
from fedchain.simulator.reproduction.timing import run_timing
from fedchain.simulator.scenario import Scenario


def test_every_round_but_the_first_is_timed() -> None:
    scenario = Scenario(method="moon", peers=2, rounds=3, hyperparameters={"local_steps": 2})
    closed: list[int] = []
    rows = run_timing(scenario, closed.append)["rows"]
    assert closed == list(range(1, scenario.rounds + 1))
    assert [row["round"] for row in rows] == [2, 3]
    assert all(row[metric] >= 0 for row in rows for metric in TIMING_METRICS)


def test_the_time_of_training_is_a_client_s_and_that_of_aggregation_the_round_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = count()
    shown = SimpleNamespace(process_time=lambda: float(next(clock)))
    monkeypatch.setattr("fedchain.simulator.reproduction.timing.time", shown)
    made = run_timing(Scenario(peers=3, rounds=2, hyperparameters={"local_steps": 1}), lambda number: None)
    (row,) = made["rows"]
    assert (row["training_cpu_s"], row["aggregation_cpu_s"]) == (1.0, 1.0), "each lasts from one look to the next"
