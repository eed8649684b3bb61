"""Each oracle of the checker can fail: a healthy federation is damaged on purpose, and the checker says so."""

from collections.abc import Sequence

import pytest

from fedchain.chain.knowledge import Occasion
from fedchain.chain.post import sign_post
from fedchain.chain.storage.store import MemoryStore
from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import PostMessage
from fedchain.node.core.effects import Publish
from fedchain.node.core.events import Tick
from fedchain.simulator.engine.checker import Checker
from fedchain.simulator.engine.simulation import Simulation, simulation_keys
from tests.support.simulator.trivial import TrivialRules, trivial_scenario, trivial_simulation

SCENARIO = trivial_scenario(peers=3, rounds=4)


@pytest.fixture
def simulation() -> Simulation:
    simulation = trivial_simulation(SCENARIO)
    assert simulation.run().violations == []
    return simulation


def violations(simulation: Simulation) -> list[str]:
    """Violations found at the end, without their moments."""
    simulation.checker.check_end()
    return [found.rpartition(" (at ")[0] for found in simulation.checker.violations]


def watch(simulation: Simulation, rules: TrivialRules | None = None) -> Checker:
    """A checker that has not seen anything yet."""
    return Checker(simulation._genesis, rules or TrivialRules(), simulation.loop, simulation.peers)


def test_a_healthy_federation_passes(simulation: Simulation) -> None:
    assert violations(simulation) == []


def test_two_heads_at_the_end_are_found(simulation: Simulation) -> None:
    other = trivial_simulation(trivial_scenario(peers=3, rounds=3))
    other.run()
    simulation.peers[1].node = other.peers[1].node
    assert "agreement: 3 running peers have 2 different heads" in violations(simulation)


def test_two_final_blocks_at_one_height_are_found(simulation: Simulation) -> None:
    other = trivial_simulation(trivial_scenario(peers=3, rounds=4, seed=1))
    other.run()
    final = other.peers[1].storage.head()
    assert final is not None
    assert not simulation.checker.finals.on_final(1, final)
    (found,) = simulation.checker.violations
    assert found.startswith("agreement: peer 1 finalized")


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


def test_a_chain_whose_contents_are_dropped_is_verified_all_the_same() -> None:
    simulation = trivial_simulation(trivial_scenario(peers=3, rounds=12, retention_blocks=2))
    assert simulation.run().violations == []
    final = simulation.peers[0].storage.final(1)
    assert final is not None
    assert simulation.peers[0].storage.content(final[0].header.knowledge_root) is None
    assert simulation.checker.finals.hashes[1] == final[0].hash


def test_a_block_that_does_not_re_verify_is_found_as_soon_as_it_is_final() -> None:
    class OtherRules(TrivialRules):
        def aggregate(self, occasion: Occasion, knowledge: bytes, posts: Sequence[tuple[PublicKey, bytes]]) -> bytes:
            return super().aggregate(occasion, knowledge, posts)[::-1]

    simulation = trivial_simulation(SCENARIO)
    simulation.checker = watch(simulation, OtherRules())
    simulation.run()
    assert simulation.checker.violations[0].startswith("validity: height 1 does not re-verify")


def test_a_second_post_for_one_phase_is_found(simulation: Simulation) -> None:
    key, chain_id = simulation_keys(SCENARIO)[0], simulation._genesis.chain_id
    post = sign_post(key, chain_id, 1, 0, b"another")
    said = Publish(PostMessage(post, b"another"))
    simulation.checker.on_event(simulation.peers[0], Tick(), [said])
    first = simulation.checker.violations[0]
    assert first.startswith("double signature: peer 0 posted twice in (1, 0)")


def test_a_post_that_was_sent_before_it_was_written_down_is_found(simulation: Simulation) -> None:
    key, chain_id = simulation_keys(SCENARIO)[0], simulation._genesis.chain_id
    said = Publish(PostMessage(sign_post(key, chain_id, 9, 0, b"early"), b"early"))
    simulation.checker.on_event(simulation.peers[0], Tick(), [said])
    (found,) = simulation.checker.violations
    assert found.startswith("lost: peer 0 sent its post of (9, 0) before it wrote it down")


def test_an_honest_peer_that_bans_another_is_found(simulation: Simulation) -> None:
    simulation.checker.on_ban(0, 1)
    (found,) = simulation.checker.violations
    assert found.startswith("bans: honest peer 0 bans honest peer 1")
