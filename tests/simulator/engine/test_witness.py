"""A run's record of its blocks before they were final."""

from fedchain.crypto.address import address
from fedchain.simulator.disturbances import Fault, Traitors
from fedchain.simulator.engine.outcome import Outcome
from tests.support.simulator.trivial import run_trivial, trivial_scenario, trivial_simulation


def heights(outcome: Outcome) -> list[int]:
    return [block.height for block in outcome.seen]


def test_candidates_of_all_peers_are_told_with_the_one_that_became_final() -> None:
    # To mine takes no time, and to tell the others does: everybody mines every block.
    simulation = trivial_simulation(trivial_scenario(mining_s=0.004))
    outcome = simulation.run()
    assert heights(outcome) == [1, 2, 3]
    members = {address(peer.public_key) for peer in simulation.peers}
    assert {item.miner for block in outcome.seen for item in block.candidates} == members
    known = sum(len(block.candidates) - 1 for block in outcome.seen)
    assert 3 < known <= outcome.totals["not_taken"]
    for block in outcome.seen:
        assert block.hash in {item.hash for item in block.candidates}
        assert 0 <= min(item.after_ms for item in block.candidates) <= block.final_ms
        assert block.trained_ms is not None
        assert 0 < block.trained_ms < block.final_ms
    assert outcome.seen[-1].hash == outcome.tip


def test_a_liar_s_block_that_lost_is_told() -> None:
    """Honest miners differ, too: there is a true aggregate for each choice of posts, and each is another one."""
    simulation = trivial_simulation(
        trivial_scenario(mining_s=0.004, adversaries=(Traitors(behaviour="false-aggregator", peers=(3,)),))
    )
    outcome, liar = simulation.run(), address(simulation.peers[3].public_key)
    lies = 0
    for block in outcome.seen:
        true = {item.knowledge_root for item in block.candidates if item.miner != liar}
        false = {item.knowledge_root for item in block.candidates if item.miner == liar}
        assert true.isdisjoint(false)
        assert block.hash in {item.hash for item in block.candidates if item.miner != liar}
        lies += len(false)
    assert lies, "it mined, and was told of"


def test_what_came_while_the_peer_was_away_is_not_told() -> None:
    faults = (Fault(at_s=1.0, kind="crash", peers=(0,)), Fault(at_s=40.0, kind="restart", peers=(0,)))
    outcome = run_trivial(trivial_scenario(rounds=8, faults=faults))
    seen = heights(outcome)
    assert seen == sorted(set(seen))
    assert seen[-1] == 8
    assert set(range(1, 9)) - set(seen), "it slept through some"
