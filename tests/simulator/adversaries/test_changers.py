"""Traitors that lie about who belongs to the federation change nothing that the others did not approve of."""

import pytest

from fedchain.simulator.disturbances import MemberChange, Traitors
from fedchain.simulator.engine.simulation import Simulation
from tests.support.simulator.trivial import trivial_scenario, trivial_simulation

CHANGES = (
    MemberChange(round=2, kind="join", peers=(5,), reason="newcomer"),
    MemberChange(round=3, kind="rekey", peers=(1,)),
    MemberChange(round=5, kind="recover", peers=(2,), reason="lost"),
)


def played(behaviour: str) -> Simulation:
    traitors = (Traitors(behaviour=behaviour, peers=(4,)),)
    simulation = trivial_simulation(
        trivial_scenario(peers=5, rounds=12, admission="quorum", changes=CHANGES, adversaries=traitors)
    )
    assert simulation.run().violations == []
    return simulation


@pytest.mark.parametrize("behaviour", ["change-liar", "change-withholder"])
def test_what_the_others_approve_of_happens_and_nothing_else(behaviour: str) -> None:
    simulation = played(behaviour)
    node = simulation.peers[0].node
    assert node is not None
    standings = [record.standing.name for record in node.head.records]
    assert standings == ["ACTIVE"] * 6
    sequences = [record.sequence for record in node.head.records]
    assert sequences[:4] == [0, 1, 1, 0]
    assert sequences[4] == 0 if behaviour == "change-withholder" else sequences[4] <= 12
    assert sequences[5] == 1


@pytest.mark.parametrize("behaviour", ["change-liar", "change-withholder"])
def test_where_members_are_the_same_for_ever_there_is_nothing_to_lie_about(behaviour: str) -> None:
    traitors = (Traitors(behaviour=behaviour, peers=(4,)),)
    outcome = trivial_simulation(trivial_scenario(version=2, peers=5, rounds=12, adversaries=traitors)).run()
    assert outcome.violations == []
