"""Timing plays the rounds that it times; how long they take is not tested."""

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
