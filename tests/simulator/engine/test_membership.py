"""Members come, leave and are removed in a simulation, and the checker has nothing to say."""

from typing import Any

import pytest

from fedchain.chain.member import Standing
from fedchain.simulator.disturbances import Fault, MemberChange
from fedchain.simulator.engine.simulation import Simulation
from fedchain.simulator.scenario import Scenario, ScenarioError, scenario_from_dict
from tests.support.simulator.trivial import trivial_scenario, trivial_simulation

JOIN = MemberChange(round=2, kind="join", peers=(5,), reason="newcomer")
LEAVE = MemberChange(round=3, kind="leave", peers=(1,))
REMOVE = MemberChange(round=5, kind="remove", peers=(2,), reason="gone")


def living(*changes: MemberChange, **fields: Any) -> Scenario:
    said: dict[str, Any] = {"peers": 5, "rounds": 10, "admission": "quorum", "changes": changes}
    return trivial_scenario(**(said | fields))


def played(scenario: Scenario) -> Simulation:
    simulation = trivial_simulation(scenario)
    assert simulation.run().violations == []
    return simulation


def standings(simulation: Simulation) -> list[str]:
    node = simulation.peers[0].node
    assert node is not None
    return [record.standing.name.lower() for record in node.head.records]


@pytest.mark.parametrize("seed", range(4))
def test_a_federation_lives(seed: int) -> None:
    simulation = played(living(JOIN, LEAVE, REMOVE, seed=seed))
    assert standings(simulation) == ["active", "left", "removed", "active", "active", "active"]
    asked = simulation._executor.asked  # type: ignore[attr-defined]
    last = {client: max(number for who, number in asked if who == client) for client in range(6)}
    assert {client for client, number in last.items() if number == 10} == {0, 3, 4, 5}
    assert min(number for who, number in asked if who == 5) >= 4, "counted from the second round after"
    running = [peer.node for peer in simulation.peers if peer.node is not None]
    assert len(running) == 4
    assert len({node.head.block_hash for node in running}) == 1


def test_lost_messages_keep_nobody_out() -> None:
    simulation = played(living(JOIN, LEAVE, loss=0.2, seed=3, rounds=14))
    assert standings(simulation) == ["active", "left", "active", "active", "active", "active"]


def test_two_members_that_die_one_after_the_other_do_not_stop_the_federation() -> None:
    """With six members one may fail at a time; the first that dies is away before the second does."""
    faults = (Fault(at_s=20.0, kind="crash", peers=(4,)), Fault(at_s=600.0, kind="crash", peers=(5,)))
    simulation = trivial_simulation(
        trivial_scenario(peers=6, rounds=40, away_after=3, faults=faults, phase_timeout_s=10.0, mining_s=30.0)
    )
    assert simulation.run().violations == []
    found = standings(simulation)
    assert found[4] == "away"
    assert found.count("active") in (4, 5)


def test_who_was_away_comes_back() -> None:
    faults = (Fault(at_s=20.0, kind="crash", peers=(4,)), Fault(at_s=400.0, kind="restart", peers=(4,)))
    back = MemberChange(round=25, kind="back", peers=(4,))
    simulation = played(
        trivial_scenario(
            peers=6, rounds=40, away_after=3, faults=faults, phase_timeout_s=10.0, mining_s=30.0, changes=(back,)
        )
    )
    node = simulation.peers[0].node
    assert node is not None
    assert node.head.records[4].standing is Standing.ACTIVE
    assert node.head.records[4].sequence == 1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"admission": "closed"}, "admission is closed"),
        ({"degree": 2}, "no degree"),
        ({"changes": (MemberChange(round=2, kind="join", peers=(6,)),)}, "between 5 and 5"),
        ({"changes": (MemberChange(round=2, kind="leave", peers=(7,)),)}, "between 0 and 4"),
        ({"changes": (MemberChange(round=2, kind="join", peers=(5, 6)),)}, "two peers join in one round"),
    ],
)
def test_impossible_changes_are_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        living(JOIN, **fields)


def test_a_scenario_with_changes_survives_its_file() -> None:
    scenario = living(JOIN, LEAVE)
    assert scenario_from_dict(scenario.to_dict()) == scenario
    assert (scenario.members, scenario.newcomers, scenario.everybody) == (5, 1, 6)
    assert "changes" not in trivial_scenario().to_dict()
