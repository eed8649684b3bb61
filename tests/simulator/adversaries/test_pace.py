"""Adversaries of power and pace: outcomes in version 2, and in version 3, whose rules end them.

docs/results.md has the figures of longer runs.
"""

from dataclasses import replace
from itertools import pairwise
from math import log2
from statistics import mean
from typing import Any

import pytest

from fedchain.chain.genesis import PATIENCE_DEFAULT, FaultModel
from fedchain.chain.roster import draw, seed_of_electors
from fedchain.learning.amended import Amended
from fedchain.simulator.disturbances import Fault, Traitors
from fedchain.simulator.engine.outcome import Outcome
from fedchain.simulator.engine.simulation import Simulation
from tests.support.simulator.attacks import attacked, miners
from tests.support.simulator.trivial import (
    LOCAL_STEPS,
    TrivialExecutor,
    trivial_genesis,
    trivial_scenario,
    trivial_simulation,
)

PEERS, ATTACKER, VICTIM = 10, 9, 0
COALITION, COMMITTEE = tuple(range(14, 20)), 7


OWN_DIFFICULTY: dict[str, Any] = {"version": 3, "mining_attempts": 256}
"""Founding of version 3. With few hashes there would be no easier targets for members that have won less."""


def play(behaviour: str, power: float = 1.0, rounds: int = 30, **founding: Any) -> tuple[Simulation, Outcome]:
    """Ten peers of version 2, one of which attacks with a multiple of the others' hash rate. The checker finds nothing
    wrong."""
    said = {"peers": PEERS, "rounds": rounds, "hash_rates": (1.0,) * ATTACKER + (power,), "version": 2} | founding
    scenario = attacked(behaviour, (ATTACKER,), **said)
    simulation = trivial_simulation(scenario)
    outcome = simulation.run()
    assert (outcome.violations, outcome.totals["convicted"]) == ([], [])
    return simulation, outcome


def lengths_s(outcome: Outcome) -> list[float]:
    """Virtual seconds of each round."""
    return [later - earlier for earlier, later in pairwise([0.0, *(row.virtual_s for row in outcome.rows)])]


def counted(simulation: Simulation, number: int) -> list[bool]:
    """Whether a peer's post is counted, by round."""
    storage, member = simulation.peers[0].storage, simulation.peers[number].public_key
    finals = (storage.final(height) for height in range(1, len(miners(simulation)) + 1))
    return [member in {post.sender for post in final[0].transactions} for final in finals if final is not None]


@pytest.mark.slow
@pytest.mark.long
def test_a_head_start_wins_far_more_blocks_than_its_power_and_makes_rounds_last_their_timeout() -> None:
    _, outcome = play("head-start")
    _, honest = play("follower")
    assert outcome.totals["mined"][ATTACKER] >= 9 > 2 * 30 / PEERS
    assert sorted(lengths_s(outcome))[15] > 25 > 3 * sorted(lengths_s(honest))[15]


@pytest.mark.long
@pytest.mark.parametrize(
    ("behaviour", "power"), [("head-start", 1.0), pytest.param("follower", 300.0, marks=pytest.mark.slow)]
)
def test_with_a_difficulty_of_its_own_each_member_wins_its_share_of_the_blocks(behaviour: str, power: float) -> None:
    simulation, _ = play(behaviour, power, rounds=40, **OWN_DIFFICULTY)
    won = [number == ATTACKER for number in miners(simulation)]
    assert sum(won) <= 40 / PEERS + log2(300) + 1
    assert sum(won[20:]) <= 5, "after the burst it has its share, which is 2, and luck"


@pytest.mark.slow
@pytest.mark.long
def test_a_head_start_ends_with_the_patience_that_it_costs() -> None:
    _, outcome = play("head-start", **OWN_DIFFICULTY)
    assert outcome.totals["mined"][ATTACKER] <= 6
    assert sorted(lengths_s(outcome))[15] < 10


@pytest.mark.slow
@pytest.mark.long
def test_a_slow_walk_makes_every_round_last_the_timeout() -> None:
    _, outcome = play("slow-walk")
    assert sorted(lengths_s(outcome))[15] > 30
    assert [row.posts for row in outcome.rows] == [PEERS] * 30, "it is counted all the same"


@pytest.mark.slow
@pytest.mark.long
def test_a_slow_walk_adds_no_more_than_its_budget() -> None:
    rounds, timeout_s = 40, 30
    _, outcome = play("slow-walk", rounds=rounds, **OWN_DIFFICULTY)
    _, honest = play("follower", rounds=rounds, **OWN_DIFFICULTY)
    usual_s, share = sum(lengths_s(honest)), PATIENCE_DEFAULT / 100
    assert sum(lengths_s(outcome)) < (1 + share) * usual_s + 3 * timeout_s
    assert sorted(lengths_s(outcome))[rounds // 2] < 10, "in most rounds nobody waits for it for long"


def test_a_slow_walk_that_was_restarted_does_the_same_whatever_the_process_remembers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its node may find the state that it reads in memory, or make another object of it."""
    stopped = Fault(at_s=35.0, kind="crash", peers=(5, 6, 7, 8, ATTACKER))  # the others are no quorum
    later = Fault(at_s=95.0, kind="restart", peers=(ATTACKER,))
    faults = (stopped, later, replace(stopped, at_s=125.0, kind="restart"))
    _, outcome = play("slow-walk", rounds=8, version=3, faults=faults)
    monkeypatch.setattr("fedchain.chain.state._states", Forgetting())
    assert play("slow-walk", rounds=8, version=3, faults=faults)[1].trace_hash == outcome.trace_hash


class Forgetting(dict[Any, Any]):
    """Remembers nothing."""

    def __setitem__(self, key: Any, value: Any) -> None:
        pass


@pytest.mark.long
def test_liars_that_keep_it_out_of_their_votes_add_no_more_either() -> None:
    """They are as many as may lie, and their votes stand in most certificates."""
    rounds, timeout_s, liars = 20, 30, (7, 8, 9)
    said: dict[str, Any] = {"peers": PEERS, "rounds": rounds} | OWN_DIFFICULTY
    mute = Traitors(behaviour="slow-walk", peers=liars, parameters={"mute": 1})
    outcome = trivial_simulation(trivial_scenario(adversaries=(mute,), **said)).run()
    assert (outcome.violations, outcome.totals["convicted"]) == ([], [])
    _, honest = play("follower", rounds=rounds, **OWN_DIFFICULTY)
    share = PATIENCE_DEFAULT / 100
    assert sum(lengths_s(outcome)) < (1 + share) * sum(lengths_s(honest)) + 3 * timeout_s * len(liars)
    assert sorted(lengths_s(outcome))[rounds // 2] < 10


@pytest.mark.slow
@pytest.mark.long
def test_a_graphics_card_leaves_a_punctual_member_out_of_most_rounds() -> None:
    simulation, _ = play("hash-censor", 300.0, rounds=40)
    assert sum(counted(simulation, VICTIM)[20:]) <= 10
    simulation, _ = play("follower", 300.0, rounds=40)
    assert all(counted(simulation, VICTIM)), "power alone leaves nobody out"


@pytest.mark.slow
@pytest.mark.long
def test_with_a_difficulty_of_its_own_a_graphics_card_censors_its_own_blocks_alone() -> None:
    simulation, outcome = play("hash-censor", 300.0, rounds=40, **OWN_DIFFICULTY)
    is_counted, own = counted(simulation, VICTIM), [number == ATTACKER for number in miners(simulation)]
    assert sum(is_counted[20:]) >= 15
    assert all(seen or mine for seen, mine in zip(is_counted, own, strict=True))
    assert sorted(lengths_s(outcome)[20:])[10] < 10, "nobody waits for it"


@pytest.mark.long
def test_a_censor_with_a_graphics_card_leaves_nobody_out_whose_post_is_in_time() -> None:
    simulation, outcome = play("hash-censor", 300.0, **OWN_DIFFICULTY)
    assert sum(counted(simulation, VICTIM)) >= 27
    assert sorted(lengths_s(outcome))[15] < 10


class Slower(TrivialExecutor):
    """The last peer trains for 16 s where the others take one, and for 100 s in one round."""

    def __init__(self, late_round: int) -> None:
        super().__init__()
        self._late_round = late_round

    def planned_steps(self, client: int, phase: str, round_number: int, amended: Amended = ()) -> int:
        if client != ATTACKER:
            return LOCAL_STEPS
        return 100 * LOCAL_STEPS if round_number == self._late_round else 16 * LOCAL_STEPS


@pytest.mark.slow
@pytest.mark.long
def test_a_slow_member_is_counted_as_often_as_its_budget_lasts_whatever_happened_once() -> None:
    often = []
    for late_round in (0, 5):
        values = {"peers": PEERS, "rounds": 60, "version": 3, "patience_percent": 500, "phase_timeout_s": 60.0}
        simulation = trivial_simulation(trivial_scenario(**values), executor=Slower(late_round))
        assert simulation.run().violations == []
        often.append(sum(counted(simulation, ATTACKER)[10:]))
    assert min(often) > 10
    assert max(often) - min(often) < 8, often


@pytest.mark.slow
@pytest.mark.long
def test_ever_better_candidates_end_with_an_honest_leader() -> None:
    _, outcome = play("late-better", 30.0)
    assert 2 <= outcome.totals["attempts_max"] <= 4, "attempts are split, and none after an honest leader's"


@pytest.mark.slow
@pytest.mark.long
def test_power_that_leaves_takes_the_next_blocks_with_it() -> None:
    simulation, outcome = play("hash-leaver", 50.0)
    lasted_s = lengths_s(outcome)
    assert simulation.peers[ATTACKER].node is None
    assert max(lasted_s[20:]) > 40 > 4 * sorted(lasted_s[5:20])[7]


@pytest.mark.long
def test_with_a_difficulty_of_its_own_power_that_leaves_takes_no_blocks_with_it() -> None:
    """Mining has an exponential law, so what a round takes beside it says how long the others waited for the leaver."""
    simulation, outcome = play("hash-leaver", 50.0, **OWN_DIFFICULTY)
    lasted_s, storage = lengths_s(outcome), simulation.peers[0].storage
    assert max(lasted_s[20:]) < 5 * mean(lasted_s[5:20])
    finals = (storage.final(height) for height in range(1, len(lasted_s) + 1))
    mined_s = [final[1].mining_ms / 1_000 for final in finals if final is not None]
    waits_s = [length_s - mining_s for length_s, mining_s in zip(lasted_s, mined_s, strict=True)]
    assert max(waits_s[:20]) < 2
    assert waits_s[20] < 2 + 5.5, "phase_floor_s, although a phase may wait for 30 s"
    assert max(waits_s[21:]) < 2, "it is waited for once"


@pytest.mark.slow
@pytest.mark.long
def test_where_blocks_draw_committees_a_grinder_with_power_draws_more_of_its_coalition_than_one_bears() -> None:
    bad, rates = {}, tuple(20.0 if number in COALITION else 1.0 for number in range(20))
    for behaviour in ("grinder", "follower"):
        scenario = attacked(
            behaviour, COALITION, peers=20, rounds=60, committee_size=COMMITTEE, version=2, hash_rates=rates
        )
        simulation = trivial_simulation(scenario)
        assert simulation.run().violations == []
        bad[behaviour] = bad_committees(simulation)
    assert bad["grinder"] > 1.5 * bad["follower"], bad


@pytest.mark.long
def test_where_heights_draw_committees_a_grinder_only_loses_blocks() -> None:
    rounds, founding = 14, OWN_DIFFICULTY | {"committee_size": COMMITTEE}
    scenario = attacked("grinder", COALITION, peers=20, rounds=rounds, **founding)
    simulation, genesis = trivial_simulation(scenario), trivial_genesis(scenario)
    assert simulation.run().violations == []
    members, storage = genesis.members, simulation.peers[0].storage
    own, places = {members[number] for number in COALITION}, {key: seat for seat, key in enumerate(members)}
    committees = [
        draw(members, COMMITTEE, seed_of_electors(genesis, height, bytes(32)), places)
        for height in range(1, rounds + 2)
    ]
    wanted = [len(committee & own) > FaultModel.BYZANTINE.faulty(COMMITTEE) for committee in committees]
    for height, (committee, is_next_wanted) in enumerate(zip(committees, wanted[1:], strict=False), 1):
        final = storage.final(height)
        assert final is not None
        block, certificate = final
        assert {vote.voter for vote in certificate.votes} <= committee
        assert is_next_wanted or block.header.miner not in own, "it threw its solution away"
    assert 0 < sum(wanted) < rounds / 2


def bad_committees(simulation: Simulation) -> int:
    """Number of heights whose committee has more of the coalition than it bears."""
    storage, members = simulation.peers[0].storage, tuple(peer.public_key for peer in simulation.peers)
    own = {members[number] for number in COALITION}
    finals = (storage.final(height) for height in range(1, len(miners(simulation)) + 1))
    drawn = [draw(members, COMMITTEE, final[0].hash + b"committee") for final in finals if final is not None]
    return sum(len(committee & own) > FaultModel.BYZANTINE.faulty(COMMITTEE) for committee in drawn)
