"""The federation that a scenario founds."""

from typing import Any

import pytest

from fedchain.learning.application import Application
from fedchain.simulator.engine.clock import EPOCH_MS
from fedchain.simulator.founding import consensus_of, found_federation, simulation_keys
from fedchain.simulator.scenario import Scenario, ScenarioError, scenario_from_dict


def test_keys_follow_from_the_seed_alone() -> None:
    keys = [key.public_key for key in simulation_keys(Scenario(peers=3, seed=1))]
    assert len(set(keys)) == 3
    assert keys == [key.public_key for key in simulation_keys(Scenario(peers=3, seed=1, rounds=9))]
    assert not {*keys} & {key.public_key for key in simulation_keys(Scenario(peers=3, seed=2))}


@pytest.mark.parametrize("values", [{}, {"version": 2}, {"admission": "quorum"}, {"away_after": 2}])
def test_the_document_is_of_version_3_unless_another_is_asked_for(values: dict[str, Any]) -> None:
    scenario = Scenario(peers=3, **values)
    genesis = found_federation(scenario, Application(scenario.learning_config()), simulation_keys(scenario))
    assert genesis.version == scenario.version == values.get("version", 3)
    assert scenario_from_dict(scenario.to_dict()) == scenario


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("admission", "quorum"),
        ("sponsors", 2),
        ("away_after", 2),
        ("patience_percent", 50),
        ("late_rounds", 2),
        ("churn", 0.1),
        ("changes", [{"round": 2, "kind": "leave", "peers": [1]}]),
    ],
)
def test_what_begins_with_version_3_is_refused_in_version_2(name: str, value: object) -> None:
    with pytest.raises(ScenarioError, match=f"version is 2, {name} begins with version 3"):
        scenario_from_dict({"version": 2, name: value}).validate()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"late_rounds": 3, "retention_blocks": 2}, "retention_blocks is 2, late_rounds = 3 needs at least 4, or 0"),
        ({"sponsors": 2}, "sponsors is 2, it must be 0 unless admission is sponsors"),
        ({"admission": "sponsors", "sponsors": 4}, "sponsors is 4, it must be between 1 and 3"),
    ],
)
def test_values_that_contradict_each_other_are_a_fault_of_the_scenario(values: dict[str, Any], message: str) -> None:
    scenario = Scenario(peers=3, **values)
    scenario.validate()
    with pytest.raises(ScenarioError, match=f"^{message}$"):
        found_federation(scenario, Application(scenario.learning_config()), simulation_keys(scenario))


def test_the_document_says_what_the_scenario_determines() -> None:
    scenario = Scenario(peers=3, mining_s=0.25, phase_timeout_s=7.5, rounds=5)
    keys = simulation_keys(scenario)
    genesis = found_federation(scenario, Application(scenario.learning_config()), keys)
    assert genesis.members == tuple(key.public_key for key in keys)
    assert (genesis.created_ms, genesis.rounds) == (EPOCH_MS, 5)
    assert (genesis.target_mining_time_ms, genesis.phase_timeout_ms) == (250, 7500)
    for name, value in consensus_of(scenario).items():
        assert getattr(genesis, name) == value
