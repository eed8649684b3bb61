"""A second statement, and one that was sent before it was written down, are found."""

from fedchain.chain.post import sign_post
from fedchain.network.messages import PostMessage
from fedchain.node.core.effects import Publish
from fedchain.node.core.events import Tick
from fedchain.simulator.engine.simulation import Simulation
from fedchain.simulator.founding import simulation_keys
from tests.support.simulator.checked import SCENARIO
from tests.support.simulator.checked import simulation as simulation


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
