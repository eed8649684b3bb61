"""Each oracle of the checker can fail: a healthy federation is damaged on purpose, and the checker says so."""

import pytest

from fedchain.chain.exceptions import InvalidBlock
from fedchain.chain.storage.store import MemoryStore
from fedchain.node.core.events import Tick
from fedchain.node.core.node import Node
from fedchain.simulator.disturbances import MemberChange, Traitors
from fedchain.simulator.engine.simulation import Simulation
from tests.support.simulator.checked import simulation as simulation
from tests.support.simulator.checked import violations
from tests.support.simulator.trivial import trivial_scenario, trivial_simulation


def test_a_healthy_federation_passes(simulation: Simulation) -> None:
    assert violations(simulation) == []


def test_two_heads_at_the_end_are_found(simulation: Simulation) -> None:
    other = trivial_simulation(trivial_scenario(peers=3, rounds=3))
    other.run()
    simulation.peers[1].node = other.peers[1].node
    assert "agreement: 3 running peers have 2 different heads" in violations(simulation)


def test_a_lost_block_and_a_lost_post_are_found(simulation: Simulation) -> None:
    lost = MemoryStore()
    head = simulation.peers[2].storage.head()
    assert head is not None
    lost.append([head])
    missing = lost.final
    lost.final = lambda height: None if height == head.block.header.height else missing(height)  # type: ignore[method-assign]
    simulation.peers[2].storage = lost
    found = violations(simulation)
    assert f"lost: peer 2 lost the block at height {head.block.header.height}" in found
    assert "lost: peer 2 lost its own post of round 1, phase 0" in found


def test_a_stored_block_that_is_not_the_final_one_is_found(simulation: Simulation) -> None:
    other = trivial_simulation(trivial_scenario(peers=3, rounds=4, seed=1))
    other.run()
    simulation.peers[1].storage = other.peers[1].storage
    assert "agreement: peer 1 has stored another block at height 1" in violations(simulation)


def test_a_content_that_nobody_holds_is_found(simulation: Simulation) -> None:
    for peer in simulation.peers:
        peer.storage.retain(())
    assert any("is held by nobody" in violation for violation in violations(simulation))


def test_what_all_that_were_there_took_with_them_is_not_missed() -> None:
    """Newcomers of a real federation fetch it in the background. The report said that it had broken a promise."""
    comes = [MemberChange(round=number, kind="join", peers=(number + 2,)) for number in range(2, 7)]
    goes = [MemberChange(round=number, kind="leave", peers=(number - 4,)) for number in range(4, 8)]
    simulation = trivial_simulation(
        trivial_scenario(peers=4, rounds=10, admission="quorum", changes=(*comes, *goes)), founded={"version": 3}
    )
    assert simulation.run().violations == []
    for peer in simulation.peers:
        peer.storage.retain(())
    assert any("of height 9 is held by nobody" in violation for violation in violations(simulation))


def test_what_a_shorter_window_let_everybody_drop_is_not_missed_in_a_longer_one() -> None:
    longer = MemberChange(round=8, kind="amend", values={"retention_blocks": 50})
    simulation = trivial_simulation(trivial_scenario(rounds=14, retention_blocks=2, changes=(longer,)))
    assert simulation.run().violations == []
    state = simulation.checker.finals.state
    assert (state.height, state.rules.retention_blocks) == (14, 50)
    for peer in simulation.peers:
        peer.storage.retain(())
    missed = {violation.partition(" of height ")[2].partition(" ")[0] for violation in violations(simulation)}
    assert missed == {str(height) for height in range(7, 15)}  # the last two of height 8, and all since


def test_a_chain_whose_contents_are_dropped_is_verified_all_the_same() -> None:
    simulation = trivial_simulation(trivial_scenario(peers=3, rounds=12, retention_blocks=2))
    assert simulation.run().violations == []
    final = simulation.peers[0].storage.final(1)
    assert final is not None
    assert simulation.peers[0].storage.content(final[0].header.knowledge_root) is None
    assert simulation.checker.finals.hashes[1] == final[0].hash


def test_a_newcomer_without_a_place_may_lose_its_journal() -> None:
    joins = MemberChange(round=2, kind="join", peers=(4,))
    simulation = trivial_simulation(trivial_scenario(rounds=6, admission="quorum", changes=(joins,)))
    newcomer = simulation.peers[-1]
    assert newcomer.public_key not in simulation.checker.finals.state.roster.seats
    simulation.checker.on_loss(newcomer.number, journal=True)
    assert simulation.run().violations == []


@pytest.mark.parametrize(("banned", "is_broken"), [(1, True), (3, False)])
def test_an_honest_peer_that_bans_another_is_found(banned: int, is_broken: bool) -> None:
    simulation = trivial_simulation(trivial_scenario(adversaries=(Traitors(behaviour="follower", peers=(3,)),)))
    while not simulation.network.bans:
        simulation.network.blame(0, simulation.peers[banned].public_key, InvalidBlock("block", "it is none"))
    assert simulation.checker.violations == (
        [f"bans: honest peer 0 bans honest peer {banned} (at 0.000 s)"] if is_broken else []
    )


def test_the_next_key_of_a_traitor_alone_is_a_traitor_s() -> None:
    simulation = trivial_simulation(trivial_scenario(adversaries=(Traitors(behaviour="follower", peers=(3,)),)))
    for number in (0, 3):
        simulation.checker.on_key(number, bytes([number]) * 32)
    assert simulation.checker.finals._traitors == {simulation.peers[3].public_key, bytes([3]) * 32}


def test_a_pool_that_is_larger_than_its_bound_is_found(simulation: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Node, "sizes", lambda _: [("crimes", 4)])
    simulation.checker.on_event(simulation.peers[0], Tick(), ())
    (found,) = simulation.checker.violations
    assert found.startswith("bounds: peer 0 holds 4 crimes, at most 3 are allowed")


@pytest.mark.parametrize("is_stopped", [False, True])
def test_each_run_is_checked_at_its_end(is_stopped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Peers of one that was stopped may have different heads."""
    simulation, asked = trivial_simulation(trivial_scenario()), list[bool]()
    monkeypatch.setattr(simulation.checker, "check_end", lambda *, is_settled: asked.append(is_settled))
    if is_stopped:
        simulation.loop.call_at(2.0, simulation.stop)
    simulation.run()
    assert asked == [not is_stopped]
