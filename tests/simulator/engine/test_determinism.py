"""The same scenario and seed give the same run, whatever the process, its hash seed and its number of workers."""

import json
import os
import subprocess
import sys

import pytest

from fedchain.simulator.run import load_learner, simulate
from fedchain.simulator.scenario import scenario_from_dict
from tests.support.simulator.trivial import run_trivial, trivial_scenario

_RUN = """
import json, sys
from fedchain.simulator.run import load_learner, simulate
from fedchain.simulator.scenario import scenario_from_dict

scenario = scenario_from_dict(json.loads(sys.argv[1]))
outcome = simulate(scenario, load_learner(scenario))
print(json.dumps([outcome.trace_hash, outcome.tip, [row.to_dict() for row in outcome.rows]]))
"""

SMALL = {"peers": 4, "rounds": 2, "loss": 0.1, "replay": 0.1, "mining_attempts": 8}


def play(hash_seed: str, **values: object) -> list[object]:
    """A small run on the digits, in a process of its own."""
    finished = subprocess.run(
        [sys.executable, "-c", _RUN, json.dumps(SMALL | values)],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    result: list[object] = json.loads(finished.stdout)
    return result


@pytest.mark.long
def test_neither_hash_seed_nor_workers_change_a_run() -> None:
    """This process has another hash seed than the other one."""
    first, other = (
        simulate(scenario, load_learner(scenario))
        for scenario in (
            scenario_from_dict(SMALL | {"workers": 2}),
            scenario_from_dict(SMALL | {"workers": 1, "seed": 1}),
        )
    )
    rows = [row.to_dict() for row in first.rows]
    hash_seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    assert play(hash_seed, workers=1) == json.loads(json.dumps([first.trace_hash, first.tip, rows]))
    assert other.trace_hash != first.trace_hash
    assert other.tip != first.tip
    assert [row.to_dict() for row in other.rows] != rows


def test_a_run_of_cohorts_repeats_on_as_many_workers() -> None:
    values = SMALL | {"method": "fedavg", "model": "logistic", "peers": 5}
    first, again, one_by_one = (
        simulate(scenario, load_learner(scenario)).trace_hash
        for is_vectorized in (True, True, False)
        for scenario in (scenario_from_dict(values | {"workers": 2, "vectorize_clients": is_vectorized}),)
    )
    assert first == again
    assert one_by_one != first, "they round otherwise"


def test_a_repeated_run_in_one_process_is_the_same_run() -> None:
    scenario = trivial_scenario(peers=6, loss=0.2, replay=0.2, degree=3)
    first, second = run_trivial(scenario), run_trivial(scenario)
    assert first.trace_hash == second.trace_hash
    assert (first.tip, first.rows, first.totals) == (second.tip, second.rows, second.totals)


def test_another_seed_is_another_run() -> None:
    assert run_trivial(trivial_scenario(seed=1)).trace_hash != run_trivial(trivial_scenario(seed=2)).trace_hash
