"""Each oracle of the checker can fail: a healthy federation is damaged on purpose, and the checker says so."""

from collections.abc import Sequence

import pytest

from fedchain.chain.storage.store import MemoryStore
from fedchain.chain.transaction import sign_transaction
from fedchain.crypto.keys import PublicKey
from fedchain.network.messages import PostMessage
from fedchain.node.core.effects import Publish
from fedchain.simulator.engine.checker import Checker
from fedchain.simulator.engine.simulation import Simulation, simulation_keys
from tests.simulator.trivial import TrivialRules, trivial_scenario, trivial_simulation

SCENARIO = trivial_scenario(peers=3, rounds=4)


@pytest.fixture
def simulation() -> Simulation:
    simulation = trivial_simulation(SCENARIO)
    assert simulation.run().violations == []
    return simulation


def violations(simulation: Simulation, checker: Checker | None = None) -> list[str]:
    checker = checker or simulation._checker
    checker.check_end(simulation.peers)
    return checker.violations


def test_a_healthy_federation_passes(simulation: Simulation) -> None:
    assert violations(simulation) == []


def test_two_heads_at_the_end_are_found(simulation: Simulation) -> None:
    other = trivial_simulation(trivial_scenario(peers=3, rounds=3))
    other.run()
    simulation.peers[1].node = other.peers[1].node
    found = violations(simulation)
    assert "3 running peers have 2 different heads" in found
    assert any("differ at height" in violation for violation in found)


def test_a_lost_block_and_a_lost_post_are_found(simulation: Simulation) -> None:
    simulation.peers[2].storage = MemoryStore()
    found = violations(simulation)
    assert "peer 2 lost the block at height 1" in found
    assert "peer 2 lost its own post of round 1, phase 0" in found


def test_a_content_that_nobody_holds_is_found(simulation: Simulation) -> None:
    for peer in simulation.peers:
        peer.storage.retain(())
    assert any("is held by nobody" in violation for violation in violations(simulation))


def test_a_chain_whose_contents_are_dropped_is_verified_all_the_same() -> None:
    simulation = trivial_simulation(trivial_scenario(peers=3, rounds=12, retention_blocks=2))
    assert simulation.run().violations == []
    tree = simulation.peers[0].tree
    assert tree is not None
    block = tree.block(tree.canonical(1) or b"")
    assert block is not None
    assert simulation.peers[0].storage.content(block.header.knowledge_root) is None
    assert tree.canonical(1) in simulation._checker._verified


def test_a_block_that_does_not_re_verify_is_found_as_soon_as_it_is_kept() -> None:
    class OtherRules(TrivialRules):
        def aggregate(
            self, phase: str, round_number: int, knowledge: bytes, posts: Sequence[tuple[PublicKey, bytes]]
        ) -> bytes:
            return super().aggregate(phase, round_number, knowledge, posts)[::-1]

    simulation = trivial_simulation(SCENARIO)
    simulation._checker = Checker(simulation._genesis, OtherRules())
    first, *others = simulation.run().violations
    assert first.startswith("height 1 does not re-verify")
    assert "height 2 follows a block that did not verify" in others


def test_a_chain_that_nobody_was_seen_to_keep_is_found(simulation: Simulation) -> None:
    found = violations(simulation, Checker(simulation._genesis, TrivialRules()))
    assert "the block at height 1 was kept by nobody, or is not valid" in found


def test_a_second_post_for_one_phase_is_found(simulation: Simulation) -> None:
    key, chain_id = simulation_keys(SCENARIO)[0], simulation._genesis.chain_id
    post = sign_transaction(key, chain_id, 1, 0, b"another", 5)
    simulation._checker.on_effects(simulation.peers[0], [Publish(PostMessage(post, b"another"))])
    assert simulation._checker.violations == ["peer 0 posted twice in round 1, phase 0"]


def test_another_block_below_the_reorg_limit_is_found(simulation: Simulation) -> None:
    other = trivial_simulation(trivial_scenario(peers=3, rounds=4, seed=0, delay_max_ms=50))
    other.run()
    simulation.peers[1].node = other.peers[1].node
    simulation._checker.on_head(simulation.peers[1])
    (found,) = simulation._checker.violations
    assert "below the reorg limit" in found
