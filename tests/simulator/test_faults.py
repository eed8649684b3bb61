"""The fault campaign: twenty-five seeds, each with its own mix of loss, delay, replay, mesh, partition and crashes.

With any mix, the federation agrees on one head soon after the network is whole again, loses nothing, and no side
of a partition extends the chain beyond what was under way when it began.
"""

import random
from dataclasses import dataclass
from typing import Any

import pytest

from fedchain.simulator.disturbances import Fault
from fedchain.simulator.engine.outcome import Outcome
from fedchain.simulator.engine.simulation import Simulation
from fedchain.simulator.scenario import Scenario
from tests.support.campaigns import some
from tests.support.simulator.trivial import trivial_scenario, trivial_simulation

SEEDS = 25
IN_CI = {1, 2, 4, 9, 17}
"""Small federations with every kind of trouble, which `.ci/run` plays; all of them `make test-all`."""
ROUNDS = 8
SPLIT_S, HEAL_S = 12.0, 42.0
SETTLED_S = SPLIT_S + 4.0
"""From here on nothing that was sent before the split is still under way."""
ROUNDS_TO_AGREE = 3


def draw_scenario(seed: int) -> Scenario:
    """One mix; every fault is left out in some of them."""
    draw = random.Random(f"fault campaign {seed}")
    peers = draw.choice((6, 8, 12, 20)) if seed % 5 else 20
    values: dict[str, Any] = {
        "peers": peers,
        "seed": seed,
        "loss": draw.choice((0.0, draw.uniform(0, 0.3))),
        "replay": draw.choice((0.0, draw.uniform(0, 0.5))),
        "delay_min_ms": draw.choice((0, 10)),
        "delay_max_ms": draw.choice((10, 50, 100)),
        "degree": draw.choice((0, 4)),
        "retention_blocks": random.Random(f"retention {seed}").choice((0, 0, 2, 4)),
    }
    numbers = draw.sample(range(peers), peers)
    faults: list[Fault] = []
    if draw.random() < 0.6:
        half = tuple(sorted(numbers[: peers // 2]))
        faults += [Fault(at_s=SPLIT_S, kind="partition", peers=half), Fault(at_s=HEAL_S, kind="heal")]
    if draw.random() < 0.6:
        for number in numbers[: peers // 3]:
            crash_s = draw.uniform(1.0, HEAL_S)
            faults.append(Fault(at_s=crash_s, kind="crash", peers=(number,)))
            faults.append(Fault(at_s=crash_s + draw.uniform(0.5, 20.0), kind="restart", peers=(number,)))
    return trivial_scenario(rounds=ROUNDS, phase_timeout_s=6.0, mining_attempts=64, faults=tuple(faults), **values)


@dataclass(slots=True)
class Sighting:
    """Heads as they were at one moment."""

    heights: list[int]
    heads: set[bytes]


class Watched:
    """A simulation whose heads are looked at while it runs."""

    def __init__(self, scenario: Scenario) -> None:
        self.simulation: Simulation = trivial_simulation(scenario)
        self.at_split = self.at_end_of_split = Sighting([], set())
        self.agreed_at_height: int | None = None
        self.height_at_heal = 0
        loop = self.simulation.loop
        loop.call_at(SETTLED_S, self._look_at_split)
        loop.call_at(HEAL_S - 0.001, self._look_at_end_of_split)
        loop.call_at(HEAL_S, self._wait_for_agreement)

    def run(self) -> Outcome:
        return self.simulation.run()

    def see(self) -> Sighting:
        nodes = [peer.node for peer in self.simulation.peers if peer.node is not None]
        return Sighting([node.head.height for node in nodes], {node.head.block_hash for node in nodes})

    def _look_at_split(self) -> None:
        self.at_split = self.see()

    def _look_at_end_of_split(self) -> None:
        self.at_end_of_split = self.see()
        self.height_at_heal = max(self.at_end_of_split.heights)

    def _wait_for_agreement(self) -> None:
        seen = self.see()
        if len(seen.heads) == 1:
            self.agreed_at_height = max(seen.heights)
        else:
            self.simulation.loop.call_later(0.25, self._wait_for_agreement)


@pytest.mark.long
@pytest.mark.parametrize("seed", some(range(SEEDS), chosen=IN_CI))
def test_the_federation_survives(seed: int) -> None:
    scenario = draw_scenario(seed)
    watched = Watched(scenario)
    outcome = watched.run()

    assert outcome.violations == []
    assert outcome.totals["height"] == ROUNDS
    assert [row.round for row in outcome.rows] == list(range(1, ROUNDS + 1))
    heads = watched.see()
    assert len(heads.heads) == 1
    assert len(heads.heights) == scenario.peers, "everyone came back"

    if any(fault.kind == "partition" for fault in scenario.faults):
        # Half of the electorate is not more than half of it: neither side can accept a block of its own.
        assert max(watched.at_end_of_split.heights) <= max(watched.at_split.heights) + 1, "one may be voted through"
        assert watched.agreed_at_height is not None
        assert watched.agreed_at_height <= watched.height_at_heal + ROUNDS_TO_AGREE
    if seed == 4:  # six peers, of which two crash, and messages are lost
        again = Watched(draw_scenario(seed)).run()
        assert (again.trace_hash, again.tip) == (outcome.trace_hash, outcome.tip)


def test_the_campaign_holds_every_mix() -> None:
    """A campaign that never drew a fault would pass for the wrong reason."""
    drawn = [draw_scenario(seed) for seed in range(SEEDS)]
    for name in ("loss", "replay", "degree"):
        values = [getattr(scenario, name) for scenario in drawn]
        assert 5 <= sum(value == 0 for value in values) <= SEEDS - 5, name
    for kind in ("partition", "crash"):
        count = sum(any(fault.kind == kind for fault in scenario.faults) for scenario in drawn)
        assert 10 <= count <= SEEDS - 10, kind
    assert sum(scenario.peers == 20 for scenario in drawn) >= 10
    assert any(scenario.loss > 0.2 for scenario in drawn)
