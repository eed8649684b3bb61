"""Attacks that took version 1 of the protocol over, divided it or stalled it, and what comes of them now."""

from itertools import pairwise

import pytest

from fedchain.chain.block import Header
from fedchain.chain.difficulty import work_from_bits
from fedchain.node.core.notices import ClockOff
from fedchain.simulator.disturbances import Clock, Fault
from fedchain.simulator.engine.outcome import Outcome
from fedchain.simulator.engine.simulation import Simulation
from fedchain.simulator.scenario import Scenario
from tests.support.campaigns import some
from tests.support.simulator.attacks import attacked, miners
from tests.support.simulator.trivial import trivial_scenario, trivial_simulation


def play(scenario: Scenario) -> tuple[Simulation, Outcome]:
    """Run it to its end; nothing that was promised is broken."""
    simulation = trivial_simulation(scenario)
    outcome = simulation.run()
    assert outcome.violations == []
    banned_by_honest = {banned for number, banned in outcome.totals["bans"] if simulation.peers[number].is_honest}
    assert all(not simulation.peers[number].is_honest for number in banned_by_honest)
    return simulation, outcome


@pytest.mark.long
def test_one_member_of_ten_does_not_capture_the_federation() -> None:
    """It used to be the only elector after some 150 seconds, and all later blocks its own."""
    rounds = 40
    simulation, outcome = play(attacked("capture-attacker", (9,), peers=10, rounds=rounds, seed=0))
    own = miners(simulation).count(9)
    assert own <= rounds * 0.1 + 4 * (rounds * 0.1 * 0.9) ** 0.5, "its share of the hash power, within four deviations"
    counted = sum(min(row.posts, 9) for row in outcome.rows)
    assert counted >= 0.99 * 9 * rounds
    head = simulation.peers[0].node
    assert head is not None
    assert len(head.head.roster.electors) == 10


def test_blocks_that_cost_no_virtual_time_cost_little_real_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each made the next one harder: after twenty rounds one took millions of hashes, and the run came to no end."""
    simulation = trivial_simulation(attacked("sibling-miner", (3,), peers=4, rounds=30))
    liar, most, found = simulation.peers[3], work_from_bits(simulation._genesis.initial_bits), list[Header]()
    search = liar.search

    def note(header: Header) -> Header:
        assert work_from_bits(header.bits) < 100 * most
        found.append(header)
        return search(header)

    monkeypatch.setattr(liar, "search", note)
    assert simulation.run().violations == []
    assert {header.height for header in found} >= set(range(25, 30)), "it goes on"


def test_members_that_train_for_longer_than_a_phase_waits_are_counted() -> None:
    """They used to leave the electorate, without anybody's malice."""
    slow = tuple(
        Fault(at_s=0.0, kind="slow", peers=(number,), factor=factor) for number, factor in ((1, 6.0), (2, 6.5))
    )
    simulation, outcome = play(trivial_scenario(peers=3, rounds=6, faults=slow, phase_timeout_s=4.0))
    assert [row.posts for row in outcome.rows] == [3] * 6
    assert simulation.peers[0].node is not None
    assert len(simulation.peers[0].node.head.roster.electors) == 3


@pytest.mark.parametrize("behaviour", ["double-voter", "yes-voter"])
def test_liars_among_a_divided_federation_do_not_divide_its_chain(behaviour: str) -> None:
    """One double voter of five used to have both halves accept 120 blocks of their own."""
    faults = (Fault(at_s=6.0, kind="partition", peers=(0, 1, 6)), Fault(at_s=60.0, kind="heal"))
    _, outcome = play(attacked(behaviour, (6,), peers=7, rounds=12, faults=faults, phase_timeout_s=5.0))
    assert len(outcome.rows) == 12


@pytest.mark.long
@pytest.mark.parametrize(
    "behaviour",
    some(
        [
            "poison-poster",
            "payload-withholder",
            "slow-provider",
            "sibling-miner",
            "invalid-poster",
            "post-equivocator",
            "junk-flooder",
            "replay-flooder",
            "difficulty-liar",
            "censor",
        ],
        first=4,
    ),
)
def test_rounds_go_on_and_nobody_honest_is_banned(behaviour: str) -> None:
    """Each of them used to stall learning, fill disks, or have honest members ban each other."""
    rounds, timeout_s = 8, 5.0
    _, outcome = play(attacked(behaviour, (5, 6), peers=7, rounds=rounds, phase_timeout_s=timeout_s))
    closed_s = [0.0, *(row.virtual_s for row in outcome.rows)]
    lasted_s = [later - earlier for earlier, later in pairwise(closed_s)]
    assert max(lasted_s) < 2 * timeout_s + 60, "a round was stalled"
    assert sorted(lasted_s)[rounds // 2] < 2 * timeout_s
    assert outcome.totals["posts_lost"] == 0


def test_who_returns_is_not_held_up_by_those_who_claim_more_than_they_have() -> None:
    """It used to stand at height 1 after ten minutes."""
    faults = (Fault(at_s=0.5, kind="crash", peers=(0,)), Fault(at_s=60.0, kind="restart", peers=(0,)))
    simulation, _ = play(attacked("catch-up-hog", (5, 6), peers=7, rounds=16, faults=faults, phase_timeout_s=5.0))
    heights = {peer.number: peer.node.head.height for peer in simulation.peers if peer.node is not None}
    assert heights[0] == heights[1]


@pytest.mark.parametrize("offset_s", [-600.0, 600.0, 172_800.0])
def test_a_wrong_clock_costs_its_owner_a_warning_and_nobody_a_post(offset_s: float) -> None:
    wrong = (Clock(peers=(4,), offset_s=offset_s),)
    simulation, outcome = play(trivial_scenario(peers=5, rounds=8, clocks=wrong))
    assert [row.posts for row in outcome.rows] == [5] * 8
    owner = simulation.peers[4].public_key
    for peer in simulation.peers:
        warned = [notice for notice in peer.notices if isinstance(notice, ClockOff)]
        assert {notice.member for notice in warned} == {owner}, f"peer {peer.number}"
        assert all(abs(notice.offset_ms - offset_s * 1000) < 5_000 for notice in warned)
