"""Schedules: short lives of small federations in which nearly everything goes wrong, each drawn from a seed.

First comes chaos: loss, delays, partitions that come and go, crashes, wrong clocks, and up to f traitors. Then the
network heals, the traitors go on, and the honest members have to finish two more heights.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from fedchain.chain.genesis import FaultModel
from fedchain.simulator.adversaries.registry import BEHAVIOURS
from fedchain.simulator.engine.network import Conditions
from fedchain.simulator.engine.simulation import Simulation
from fedchain.simulator.scenario import Clock, Fault, Scenario, ScenarioError, Traitors
from tests.simulator.trivial import trivial_simulation

SIZES = (4, 5, 7, 10, 13)
CHAOS_S = 12.0
"""When the network heals, in virtual seconds."""

HEIGHTS = 2
"""Heights that all honest members have to finish after that."""

PHASE_TIMEOUT_S = 4.0
PROGRESS_S = 25 * PHASE_TIMEOUT_S
"""How long they have for it."""

MIXTURES = 20
CALM = Conditions(delay_min_ms=5, delay_max_ms=100)
NOBODY = "nobody"
"""No traitors: everybody is honest."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """One life of a federation."""

    seed: int
    peers: int
    behaviour: str
    """What the traitors do; ``mixture-3``: each something else; ``nobody``: there are none."""
    excess: int = 0
    """Traitors above f, to see that agreement can break."""

    @property
    def command(self) -> str:
        """What plays it again."""
        excess = f" --excess {self.excess}" if self.excess else ""
        return (
            f"python -m tests.soak consensus --schedules 1 --seed {self.seed} --peers {self.peers} "
            f"--behaviour {self.behaviour}{excess}"
        )


@dataclass(slots=True)
class Played:
    """What became of a schedule."""

    schedule: Schedule
    violations: list[str]
    healed_s: float | None
    """Virtual seconds from the healing until all honest members were two heights further; None: they were not."""
    attempts: list[int] = field(default_factory=list)
    """Attempts that each final height took, from 1."""
    cpu_s: float = 0.0
    events: int = 0
    trace_hash: str = ""
    totals: dict[str, Any] = field(default_factory=dict)


_BEHAVIOURS = sorted(name for name, place in BEHAVIOURS.items() if not place.startswith(("adversary.", "poisoners.")))
"""Who follows the protocol, or lies only about what it learned, breaks no rule of it."""


def behaviours() -> list[str]:
    """Every behaviour, every mixture, and nobody."""
    return [NOBODY, *_BEHAVIOURS, *(f"mixture-{number}" for number in range(MIXTURES))]


def draw_scenario(schedule: Schedule) -> Scenario:
    """What happens in a schedule."""
    draw, peers = Random(f"schedule {schedule.seed} {schedule.peers} {schedule.behaviour}"), schedule.peers
    numbers = draw.sample(range(peers), peers)
    faulty = FaultModel.BYZANTINE.faulty(peers) + schedule.excess
    count = 0 if schedule.behaviour == NOBODY else faulty
    return Scenario(
        name="schedule",
        proof_function="sha256d",
        mining_attempts=4,
        peers=peers,
        rounds=1_000,
        seed=schedule.seed,
        shared_verification=True,
        iteration_s=0.01,
        mining_s=draw.choice((0.2, 0.5, 1.0)),
        phase_timeout_s=PHASE_TIMEOUT_S,
        phase_floor_s=1.0,
        vote_timeout_s=draw.choice((0.2, 0.4, 0.8)),
        degree=draw.choice((0, 0, 4)) if peers > 5 else 0,
        loss=draw.choice((0.0, 0.0, draw.uniform(0, 0.3))),
        replay=draw.choice((0.0, 0.0, draw.uniform(0, 0.3))),
        delay_max_ms=draw.choice((50, 100, 500, 2_000)),
        max_virtual_s=CHAOS_S + PROGRESS_S,
        retention_blocks=draw.choice((0, 0, 2)),
        faults=(*_partitions(draw, peers), *_crashes(draw, numbers[count:])),
        clocks=_clocks(draw, numbers[:faulty]),
        adversaries=_traitors(schedule.behaviour, sorted(numbers[:count])),
    )


def play(schedule: Schedule) -> Played:
    """Run a schedule to its end."""
    begun = time.process_time()
    draw = Random(f"founding {schedule.seed}")
    founded = {
        "omission_slack_ms": 400,
        "inline_size_max": draw.choice((0, 1024, 1024)),  # 0: every payload has to be fetched
        "payload_size_max": 4096,
    }
    simulation = trivial_simulation(draw_scenario(schedule), founded=founded)
    healing = _Healing(simulation)
    undecided: list[str] = []
    try:
        outcome = simulation.run()
    except ScenarioError:
        simulation.checker.check_end(is_settled=False)
        undecided, outcome = [_where(simulation)], None
    return Played(
        schedule,
        [*simulation.checker.violations, *undecided],
        healing.took_s,
        _attempts(simulation),
        time.process_time() - begun,
        outcome.events if outcome else 0,
        outcome.trace_hash if outcome else "",
        outcome.totals if outcome else {},
    )


class _Healing:
    """Heals everything when its time has come, and ends the run when the honest members have gone on."""

    def __init__(self, simulation: Simulation) -> None:
        self.took_s: float | None = None
        self._simulation, self._goal = simulation, 0
        simulation.loop.call_at(CHAOS_S, self._heal)

    def _heal(self) -> None:
        simulation = self._simulation
        simulation.network.heal()
        simulation.network.conditions = CALM
        for peer in simulation.peers:
            if peer.is_honest:
                peer.kill_pending = False
                peer.start()
        self._goal = HEIGHTS + max(self._heights())
        self._look()

    def _look(self) -> None:
        loop = self._simulation.loop
        if min(self._heights()) >= self._goal:
            self.took_s = loop.time() - CHAOS_S
            self._simulation.stop()
        else:
            loop.call_later(0.1, self._look)

    def _heights(self) -> list[int]:
        return [peer.node.head.height if peer.node else 0 for peer in self._simulation.peers if peer.is_honest]


def _partitions(draw: Random, peers: int) -> list[Fault]:
    faults, at_s = [], draw.uniform(0.0, 3.0)
    while draw.random() < 0.6 and at_s < CHAOS_S - 1:
        side = draw.sample(range(peers), draw.randint(1, peers - 1))
        faults.append(Fault(at_s=at_s, kind="partition", peers=tuple(sorted(side))))
        at_s += draw.uniform(0.5, 5.0)
        if draw.random() < 0.5:
            faults.append(Fault(at_s=min(at_s, CHAOS_S), kind="heal"))
            at_s += draw.uniform(0.2, 3.0)
    return faults


def _crashes(draw: Random, honest: Sequence[int]) -> list[Fault]:
    faults = []
    for number in honest:
        if draw.random() < 0.2:
            kind, at_s = draw.choice(("crash", "kill")), draw.uniform(0.3, CHAOS_S - 1)
            faults.append(Fault(at_s=at_s, kind=kind, peers=(number,)))
            back_s = min(CHAOS_S, at_s + draw.uniform(0.1, 6.0))
            faults.append(Fault(at_s=back_s, kind="restart", peers=(number,)))
    return faults


def _clocks(draw: Random, numbers: Sequence[int]) -> tuple[Clock, ...]:
    """Of at most f members, the traitors if there are any."""
    if draw.random() < 0.5:
        return ()
    return tuple(
        Clock(
            peers=(number,),
            offset_s=draw.uniform(-600, 600),
            drift=draw.choice((0.0, 0.5, -0.5)),
            at_s=draw.choice((0.0, 5.0)),
        )
        for number in numbers
    )


def _traitors(behaviour: str, numbers: Sequence[int]) -> tuple[Traitors, ...]:
    if not behaviour.startswith("mixture-"):
        return (Traitors(behaviour=behaviour, peers=tuple(numbers)),) if numbers else ()
    draw = Random(behaviour)
    return tuple(Traitors(behaviour=draw.choice(_BEHAVIOURS), peers=(number,)) for number in numbers)


def _attempts(simulation: Simulation) -> list[int]:
    """Of the final heights that an honest peer still has in its storage."""
    found = []
    for height in range(1, len(simulation.checker.finals.hashes)):
        records = (peer.storage.final(height) for peer in simulation.peers if peer.is_honest)
        record = next((item for item in records if item is not None), None)
        if record is not None:
            found.append(record[1].attempt + 1)
    return found


def _where(simulation: Simulation) -> str:
    """Where an undecided schedule stood."""
    nodes = {peer.number: peer.node for peer in simulation.peers if peer.node is not None and peer.is_honest}
    where = {
        number: (node.head.height, node.voting.agreement.attempt, len(node.ledger.entries), node.is_silent())
        for number, node in nodes.items()
    }
    return f"progress: not {HEIGHTS} heights within {PROGRESS_S:.0f} s: height, attempt, candidates, silent: {where}"
