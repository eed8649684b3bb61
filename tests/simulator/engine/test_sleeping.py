"""How many peers stay awake."""

from collections.abc import Sequence

import pytest

from fedchain.network.verdict import Verdict
from fedchain.node.core.events import Event, PeersConnected, PeersDisconnected
from fedchain.simulator.disturbances import Fault, FaultKind, Traitors
from fedchain.simulator.engine.peer import SimulatedPeer
from fedchain.simulator.engine.sleeping import Shifts
from tests.support.simulator.trivial import (
    trivial_scenario,
    trivial_simulation,
)


def test_peers_that_wake_and_sleep_at_one_moment_are_told_of_in_one_event(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = trivial_scenario(peers=30, rounds=4, contributors_per_round=4, committee_size=7, idle_sleep=True)
    simulation, told = trivial_simulation(drawn), list[int]()
    handle = SimulatedPeer.handle

    def watched(self: SimulatedPeer, event: Event) -> Verdict:
        if isinstance(event, (PeersConnected, PeersDisconnected)):
            told.append(len(event.peers))
            if self.node is not None and isinstance(event, PeersDisconnected):
                assert {*event.peers} <= {*self.node._context.peers}, "it was connected to all of them"
        return handle(self, event)

    monkeypatch.setattr(SimulatedPeer, "handle", watched)
    assert simulation.run().violations == []
    assert sum(told) > 2 * len(told), "an event each would be as many events as peers"
    for peer in simulation.peers:
        if peer.node is not None:
            others = {other.public_key for other in simulation.peers if other.node is not None and other is not peer}
            assert {*peer.node._context.peers} == others


@pytest.mark.slow
@pytest.mark.long
def test_as_many_stay_awake_at_the_newest_head_as_a_newcomer_wants_to_hear_it_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With fewer, those who were drawn at last would wait for ever, and nobody could contribute."""
    scenario = trivial_scenario(peers=120, rounds=15, contributors_per_round=4, committee_size=10, idle_sleep=True)
    simulation = trivial_simulation(scenario)
    holders: list[int] = []
    let_sleep = Shifts._let_sleep

    def watched(self: Shifts, peers: Sequence[SimulatedPeer]) -> None:
        let_sleep(self, peers)
        heads = [other.node.head.block_hash for other in simulation.peers if other.node is not None]
        holders.extend([heads.count(heads[0])] * len(peers))

    monkeypatch.setattr(Shifts, "_let_sleep", watched)
    assert simulation.run().violations == []
    assert len(holders) > 50
    assert min(holders) >= 4, "f + 1 of a committee of ten"


DRAWN = {"peers": 8, "rounds": 8, "contributors_per_round": 4, "committee_size": 4, "idle_sleep": True}


@pytest.mark.parametrize("kind", ["crash", "kill"])
def test_a_peer_that_is_down_is_not_woken_when_a_head_draws_it(kind: FaultKind) -> None:
    scenario = trivial_scenario(**DRAWN, faults=(Fault(at_s=3.0, kind=kind, peers=(2, 5)),))
    simulation = trivial_simulation(scenario)
    seen: list[int] = []

    def look() -> None:
        seen.extend(number for number in (2, 5) if simulation.peers[number].node is not None)
        simulation.loop.call_later(0.1, look)

    simulation.loop.call_at(6.0, look)
    assert simulation.run().violations == []
    assert seen == []


def test_a_peer_that_is_restarted_while_all_others_sleep_finds_them() -> None:
    """It slept from the beginning, and no head comes any more that would wake anybody."""
    untouched = trivial_simulation(trivial_scenario(**DRAWN))
    end_s = untouched.run().virtual_s
    asleep = [peer.number for peer in untouched.peers if peer.node is None]
    assert asleep
    faults = (Fault(at_s=end_s - 1e-3, kind="restart", peers=(asleep[0],)),)
    simulation = trivial_simulation(trivial_scenario(**DRAWN, faults=faults, max_virtual_s=end_s + 60))
    assert simulation.run().violations == []
    node = simulation.peers[asleep[0]].node
    assert node is not None
    assert node.head.finished


def test_an_adversary_that_comes_back_from_a_crash_is_told_to_all_that_are_awake(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    traitors = Traitors(behaviour="crash-loop", peers=(5,), parameters={"up_s": 1.0})
    simulation = trivial_simulation(trivial_scenario(**DRAWN, adversaries=(traitors,)))
    restart, apart = SimulatedPeer.restart, list[bool]()

    def watched(self: SimulatedPeer) -> None:
        restart(self)
        others = [peer.node for peer in simulation.peers if peer.node is not None and peer is not self]
        apart.extend(self.public_key not in node._context.peers for node in others)

    monkeypatch.setattr(SimulatedPeer, "restart", watched)
    assert simulation.run().violations == []
    assert apart, "it crashes about every second"
    assert not any(apart)
