"""A run's record of its blocks before they were final."""

from collections.abc import Sequence
from dataclasses import replace

from fedchain.crypto.address import address
from fedchain.node.shell.sightings import ELSEWHERE
from fedchain.node.shell.timeline import SeenBlock, SeenCandidate, members_in
from fedchain.simulator.disturbances import Fault, Traitors
from tests.support.simulator.trivial import run_trivial, trivial_scenario, trivial_simulation, troubled_scenario


def lost(seen: Sequence[SeenBlock]) -> list[SeenCandidate]:
    return [item for block in seen for item in block.candidates if item.hash != block.hash]


def test_candidates_of_all_peers_are_told_with_the_one_that_became_final() -> None:
    # To mine takes no time, and to tell the others does: everybody mines every block.
    simulation = trivial_simulation(trivial_scenario(mining_s=0.004, seed=1))
    outcome = simulation.run()
    assert [block.height for block in outcome.seen] == [1, 2, 3]
    members = {address(peer.public_key) for peer in simulation.peers}
    assert {item.miner for block in outcome.seen for item in block.candidates} == members
    for block in outcome.seen:
        assert block.hash in {item.hash for item in block.candidates}
        assert 0 <= min(item.after_ms for item in block.candidates) <= block.final_ms
        assert block.trained_ms is not None
        assert 0 < block.trained_ms < block.final_ms
    assert outcome.seen[-1].hash == outcome.tip


def test_lost_blocks_of_troubled_runs_are_those_that_their_metrics_count() -> None:
    """The first peer alone does not tell of them all: some came to it when the height was decided."""
    taken_by_first, came_late = list[bool](), list[bool]()
    for seed in (24, 26):
        outcome = run_trivial(replace(troubled_scenario(), seed=seed))
        told = lost(outcome.seen)
        valid = [item for item in told if list(members_in(item.valid))]
        refused = [item for item in told if item.refused and item not in valid]
        assert (len(valid), len(refused)) == (outcome.totals["not_taken"], outcome.totals["refused"])
        assert (outcome.totals["not_taken"], outcome.totals["refused"]) == (
            sum(row.not_taken for row in outcome.rows),
            sum(row.refused for row in outcome.rows),
        )
        assert len(valid) >= 3
        taken_by_first += [0 in members_in(item.valid) for item in valid]
        came_late += [ELSEWHERE in item.refused for item in told]
    assert not all(taken_by_first), "peer 0 took only some"
    assert any(came_late)


def test_a_block_that_was_told_is_told_again_with_what_came_later() -> None:
    early = list[list[SeenBlock]]()
    troubled = replace(troubled_scenario(), seed=3)
    asked = trivial_simulation(troubled, on_round=lambda row: early.append(asked.witness.blocks()))
    once = run_trivial(troubled).seen
    assert asked.run().seen == once
    assert any(block not in once for blocks in early for block in blocks), "slower peers saw it later"


def test_attempts_that_failed_are_told_with_their_reasons() -> None:
    outcome = run_trivial(troubled_scenario())
    failed = [attempt for block in outcome.seen for attempt in block.failed]
    assert failed
    assert max(row.attempts for row in outcome.rows) > 1
    for attempt in failed:
        for reason, peers in attempt.why.items():
            assert reason
            assert {*members_in(peers)} <= {0, 1, 2, 3, 4, 5}, "a liar's view is not told"


def test_a_liar_s_block_is_refused_and_its_reason_is_told() -> None:
    """Honest miners differ, too: there is a true aggregate for each choice of posts, and each is another one."""
    simulation = trivial_simulation(
        trivial_scenario(mining_s=0.004, adversaries=(Traitors(behaviour="false-aggregator", peers=(3,)),))
    )
    outcome, liar = simulation.run(), address(simulation.peers[3].public_key)
    lies = [item for item in lost(outcome.seen) if item.miner == liar]
    assert lies, "it mined, and was told of"
    assert {item.valid for item in lies} == {"0"}
    assert any(reason.startswith("knowledge root") for item in lies for reason in item.refused)
    assert outcome.totals["refused"] == len([item for item in lies if item.refused])


def test_posts_in_no_block_are_told_with_their_senders() -> None:
    """A post that reached nobody in time is the sender's own observation."""
    faults = (Fault(at_s=0.9, kind="partition", peers=(3,)), Fault(at_s=60.0, kind="heal"))
    simulation = trivial_simulation(trivial_scenario(rounds=6, phase_timeout_s=6.0, faults=faults))
    outcome, lonely = simulation.run(), simulation.peers[3].public_key
    found = {(block.height, post.member) for block in outcome.seen for post in block.posts}
    assert (1, 3) in found
    for height, member in found:
        block, _ = simulation.peers[0].storage.final(height) or (None, None)
        assert block is not None
        assert member == 3
        assert lonely not in {post.sender for post in block.transactions}


def test_what_came_while_the_first_peer_was_away_is_told_by_the_others() -> None:
    faults = (Fault(at_s=1.0, kind="crash", peers=(0,)), Fault(at_s=40.0, kind="restart", peers=(0,)))
    outcome = run_trivial(trivial_scenario(rounds=8, faults=faults))
    assert [block.height for block in outcome.seen] == [*range(1, 9)]
    away = [block for block in outcome.seen for item in block.candidates if 0 not in members_in(item.seen)]
    assert away, "it slept through some"
