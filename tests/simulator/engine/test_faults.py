"""Faults come at their times, and each does what it says."""

from fedchain.simulator.disturbances import Fault, FaultKind
from fedchain.simulator.engine.faults import Faults
from fedchain.simulator.engine.simulation import Simulation
from tests.support.simulator.trivial import trivial_scenario, trivial_simulation

KINDS: tuple[FaultKind, ...] = ("crash", "restart", "slow", "partition", "heal", "kill", "restart")


def at(simulation: Simulation, time_s: float) -> list[bool]:
    """Which peers run at a time."""
    found: list[bool] = []
    simulation.loop.call_at(time_s, lambda: found.extend(peer.node is not None for peer in simulation.peers))
    return found


def test_a_peer_that_crashes_is_away_until_it_is_restarted() -> None:
    faults = (Fault(at_s=1.0, kind="crash", peers=(2,)), Fault(at_s=5.0, kind="restart", peers=(2,)))
    simulation = trivial_simulation(trivial_scenario(faults=faults))
    before, meanwhile, after = (at(simulation, time_s) for time_s in (0.9, 1.1, 5.1))
    assert simulation.run().violations == []
    assert (before, meanwhile, after) == ([True] * 4, [True, True, False, True], [True] * 4)


def test_a_slow_peer_takes_longer_until_the_fault_that_ends_it() -> None:
    faults = (Fault(at_s=0.0, kind="slow", peers=(1,), factor=9.0), Fault(at_s=2.0, kind="slow", peers=(1,)))
    simulation = trivial_simulation(trivial_scenario(faults=faults))
    found: list[float] = []
    simulation.loop.call_at(1.0, lambda: found.append(simulation.peers[1].slowness))
    simulation.run()
    assert (found, simulation.peers[1].slowness) == ([9.0], 1.0)


def test_repairs_are_waited_for_and_damage_is_not() -> None:
    simulation = trivial_simulation(trivial_scenario())
    told: list[Fault] = []
    faults = [Fault(at_s=3.0, kind="heal"), Fault(at_s=9.0, kind="crash", peers=(0,))]
    played = Faults(faults, simulation.peers, simulation.network, told.append)
    assert [played.leave_repairs(now_s) for now_s in (0.0, 3.0, 3.1)] == [True, True, False]
    played.begin(simulation.loop)
    simulation.run()
    assert told[0] == faults[0]


def test_faults_of_one_moment_happen_in_the_order_of_the_scenario() -> None:
    pairs = [[Fault(at_s=at_s, kind=kind, peers=(2,)) for kind in KINDS] for at_s in (1.0, 0.5)]
    simulation = trivial_simulation(trivial_scenario())
    told: list[Fault] = []
    Faults([*pairs[0], *pairs[1]], simulation.peers, simulation.network, told.append).begin(simulation.loop)
    found = at(simulation, 1.1)
    assert simulation.run().violations == []
    assert told == [*pairs[1], *pairs[0]]
    assert found == [True] * 4
