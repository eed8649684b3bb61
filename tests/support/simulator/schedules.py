"""Schedules: short lives of small federations in which nearly everything goes wrong, each drawn from a seed.

First comes chaos: loss, delays, partitions that come and go, crashes, wrong clocks, lost disks, and up to f traitors.
Then the network heals, the traitors go on, and the honest members have to finish some more heights, each within a time
that follows from what a member may wait for (:func:`calm_s`).
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from random import Random
from typing import Any, Literal

from fedchain.chain.genesis import FaultModel
from fedchain.chain.storage.store import MemoryStore
from fedchain.node.core.deadlines import MINING_TIMES
from fedchain.node.core.following.announcing import STATUS_PEERS
from fedchain.node.core.voting.journal import Journal
from fedchain.node.core.voting.twins import LISTENING_MS, SILENT_HEIGHTS, SILENT_TIMEOUTS
from fedchain.simulator.adversaries.registry import BEHAVIOURS
from fedchain.simulator.disturbances import Clock, Fault, FaultKind, MemberChange, Traitors
from fedchain.simulator.engine.network import Conditions
from fedchain.simulator.engine.peer import SimulatedPeer
from fedchain.simulator.engine.simulation import Simulation
from fedchain.simulator.scenario import Scenario
from tests.support.simulator.trivial import trivial_simulation

SIZES = (4, 5, 7, 10, 13)
CHAOS_S = 12.0
"""When the network heals, in virtual seconds."""

HEIGHTS = 2
"""Heights that all honest members have to finish after that."""

PHASE_TIMEOUT_S = 4.0
HEIGHTS_AFTER_LOSSES = HEIGHTS + 2 * SILENT_HEIGHTS + 1
"""The same where disks are lost: a member that lost one is silent for some heights, and the effect shows after them."""

HEIGHTS_OF_CHANGES = 8
"""The same where members change: what is proposed in the calm is counted, and holds."""

ATTEMPTS_IN_CALM = 3
"""Attempts within which all are in the same one, know the same votes, and share the newest lock."""

MIXTURES = 20
CALM = Conditions(delay_min_ms=5, delay_max_ms=100)
SIGN_ONCE = frozenset(
    {
        "silent",
        "falls-silent",
        "crash-loop",
        "slow-blocks",
        "slow-provider",
        "content-forger",
        "low-claimer",
        "backfill-spoiler",
    }
)
"""Behaviours that break promises, and sign nothing twice."""

NOBODY = "nobody"
"""No traitors: everybody is honest."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """One life of a federation."""

    seed: int
    peers: int
    behaviour: str
    """Behaviour of the traitors; ``mixture-3``: each has another; ``nobody``: there are none."""
    excess: int = 0
    """Traitors above f, to see that agreement can break."""
    changes: bool = False
    """Whether members come, go and change keys, and parameters change, in chaos and in calm."""
    losses: bool = False
    """Whether up to f honest members lose their stores, and one of them perhaps its journal.

    Without a journal it may sign twice, so it takes the place of a traitor, unless the traitors sign nothing twice.
    """

    @property
    def command(self) -> str:
        """Command line that plays it again."""
        excess = f" --excess {self.excess}" if self.excess else ""
        excess += " --changes" if self.changes else ""
        excess += " --losses" if self.losses else ""
        return (
            f"python -m tests.soak consensus --schedules 1 --seed {self.seed} --peers {self.peers} "
            f"--behaviour {self.behaviour}{excess}"
        )


@dataclass(slots=True)
class Played:
    """Result of a schedule."""

    schedule: Schedule
    violations: list[str]
    healed_s: float | None
    """Virtual seconds from the healing until all honest members were some heights further; None: they were not."""
    attempts: list[int] = field(default_factory=list)
    """Attempts that each final height took, from 1."""
    cpu_s: float = 0.0
    changes: int = 0
    """Changes of the membership and of rules that the chain counts."""
    events: int = 0
    trace_hash: str = ""
    totals: dict[str, Any] = field(default_factory=dict)


_UNUSED = ("adversary.", "poisoners.", "part_liars.", "changers.")
_BEHAVIOURS = sorted(name for name, place in BEHAVIOURS.items() if not place.startswith(_UNUSED))
"""Behaviours that can break a rule; others follow the protocol or lie only about what they learned. No parts here."""


def behaviours() -> list[str]:
    """Every behaviour, every mixture, and nobody."""
    return [NOBODY, *_BEHAVIOURS, *(f"mixture-{number}" for number in range(MIXTURES))]


CHANGERS = ("change-liar", "change-withholder")
"""Behaviours of traitors that lie about who belongs to the federation; only where members change."""


def draw_scenario(schedule: Schedule) -> Scenario:
    """Draw the events of a schedule."""
    scenario = _draw_scenario(schedule)
    return _with_changes(scenario, schedule) if schedule.changes else scenario


def _with_changes(scenario: Scenario, schedule: Schedule) -> Scenario:
    """The scenario with changes of all kinds, up to the churn limit, in nearly every round.

    As many lie as every set bears: the traitors are drawn for the smallest set that the changes lead to. One of them
    may be a newcomer. Honest members of whom nothing more is said stay.
    """
    draw, peers = Random(f"changes {schedule.seed} {schedule.peers} {schedule.behaviour}"), schedule.peers
    goes = draw.randint(0, max(0, peers - 4)) // 2
    liars = FaultModel.BYZANTINE.faulty(peers - goes)
    joins = draw.randint(0, 3)
    numbers = draw.sample(range(peers), peers)
    traitors, honest = numbers[:liars], numbers[liars:]
    if joins and traitors and draw.random() < 0.4:
        traitors[0] = peers + draw.randrange(joins)
    rows = [
        MemberChange(round=at, kind="join", peers=(peers + number,), reason="newcomer")
        for number, at in enumerate(sorted(draw.sample(range(1, 8), joins)))
    ]
    for number in honest[:goes]:
        kind = draw.choice(_GOES)
        at = draw.randint(1, 7)
        rows.append(MemberChange(round=at, kind=kind, peers=(number,)))
        if kind == "away":
            rows.append(MemberChange(round=at + draw.randint(2, 4), kind="back", peers=(number,)))
    rows += [
        MemberChange(round=draw.randint(1, 8), kind=draw.choice(_KEYS), peers=(number,))
        for number in draw.sample(range(peers), draw.randint(0, peers // 2))
    ]
    if draw.random() < 0.5:
        values = {"omission_slack_ms": draw.choice((300, 600)), "vote_timeout_ms": draw.choice((150, 250))}
        rows.append(MemberChange(round=draw.randint(1, 6), kind="amend", values=values))
    one = {schedule.behaviour} & {*_BEHAVIOURS}  # a mixture is one anyway
    behaviours = [draw.choice((*one, *one, *CHANGERS, draw.choice(_BEHAVIOURS))) for _ in traitors]
    found = () if schedule.behaviour == NOBODY else sorted(zip(traitors, behaviours, strict=True))
    adversaries = tuple(Traitors(behaviour=name, peers=(number,)) for number, name in found)
    lying = {number for row in adversaries for number in row.peers}
    faults = [fault for fault in scenario.faults if not set(fault.peers) & lying or fault.kind in ("partition", "heal")]
    clocks = tuple(clock for clock in scenario.clocks if set(clock.peers) <= lying)
    return replace(
        scenario,
        degree=0,
        admission="quorum",
        away_after=draw.choice((0, 3)) if liars <= 1 else 0,
        changes=tuple(rows),
        adversaries=adversaries,
        faults=tuple(faults),
        clocks=clocks,
    )


_GOES: tuple[Literal["leave", "remove", "away"], ...] = ("leave", "remove", "away")
_KEYS: tuple[Literal["rekey", "recover"], ...] = ("rekey", "recover")


def _draw_scenario(schedule: Schedule) -> Scenario:
    """Draw the events of a schedule in which members do not change."""
    draw, peers = Random(f"schedule {schedule.seed} {schedule.peers} {schedule.behaviour}"), schedule.peers
    numbers = draw.sample(range(peers), peers)
    faulty = FaultModel.BYZANTINE.faulty(peers) + schedule.excess
    forgets = schedule.behaviour not in SIGN_ONCE and any(loss.journal for loss in draw_losses(schedule))
    count = 0 if schedule.behaviour == NOBODY else faulty - forgets
    return Scenario(
        name="schedule",
        proof_function="sha256d",
        mining_attempts=4,
        peers=peers,
        rounds=1_000,
        seed=schedule.seed,
        iteration_s=0.01,
        mining_s=draw.choice((0.2, 0.5, 1.0)),
        phase_timeout_s=PHASE_TIMEOUT_S,
        phase_floor_s=1.0,
        vote_timeout_s=draw.choice((0.2, 0.4, 0.8)),
        degree=draw.choice((0, 0, 4)) if peers > 5 else 0,
        loss=draw.choice((0.0, 0.0, draw.uniform(0, 0.3))),
        replay=draw.choice((0.0, 0.0, draw.uniform(0, 0.3))),
        delay_max_ms=draw.choice((50, 100, 500, 2_000)),
        max_virtual_s=CHAOS_S + 500.0,  # what is too late is said before
        retention_blocks=draw.choice((0, 0, 2)),
        faults=(*_partitions(draw, peers), *_crashes(draw, numbers[count:])),
        clocks=_clocks(draw, numbers[:faulty]),
        adversaries=_traitors(schedule.behaviour, sorted(numbers[:count])),
    )


@dataclass(frozen=True, slots=True)
class Loss:
    """A member loses its disk and is back a while later."""

    at_s: float
    back_s: float
    journal: bool
    """Whether its journal is lost, too."""


def draw_losses(schedule: Schedule) -> tuple[Loss, ...]:
    """Disks that are lost in a schedule. The members that lose them are drawn among the honest ones."""
    if not schedule.losses:
        return ()
    draw, faulty = Random(f"losses {schedule.seed} {schedule.peers}"), FaultModel.BYZANTINE.faulty(schedule.peers)
    losses = []
    for number in range(draw.randint(1, faulty)):
        at_s = draw.uniform(2.0, CHAOS_S - 0.5)
        losses.append(Loss(at_s, at_s + draw.uniform(0.05, 4.0), journal=not number and draw.random() < 0.4))
    return tuple(losses)


def calm_s(scenario: Scenario, *, is_first: bool) -> float:
    """Within how many virtual seconds of calm a height ends, whatever up to f members do.

    The sum of all that an honest member may wait for, each at its worst:

    * what one holds all hold: a status goes to ``STATUS_PEERS`` neighbours a tick, by turns, and where not everybody is
      everybody's neighbour it takes a second turn; question and answer take a tick more;
    * posts that do not come are waited for as long as a phase waits, and what leaves out a post is forgiven after
      ``forgiven_after_ms``: another such time and ``MINING_TIMES`` times the mining time;
    * a block of somebody honest is there after 14 times the mean of at least two thirds of the miners, but for one
      height in a million;
    * an attempt that fails takes its time to gather and three timeouts, and in calm ``ATTEMPTS_IN_CALM`` are enough;
    * at first, members that lost their disks listen, and are silent for ``SILENT_TIMEOUTS`` phase timeouts; and the
      timeouts have grown: attempts that failed in the chaos took longer each, by ``vote_timeout_s``.
    """
    spread_s = 2.0 + 2 * scenario.peers / STATUS_PEERS
    waits_s = scenario.phase_timeout_s * 2 + MINING_TIMES * scenario.mining_s
    mining_s = 14 * 1.5 * scenario.mining_s
    attempt = (2 * CHAOS_S / scenario.vote_timeout_s) ** 0.5 if is_first else 0
    timeouts_s = sum((attempt + later + 1) * scenario.vote_timeout_s for later in range(ATTEMPTS_IN_CALM))
    silence_s = LISTENING_MS / 1_000 + SILENT_TIMEOUTS * scenario.phase_timeout_s if is_first else 0.0
    return spread_s + waits_s + mining_s + 3.25 * timeouts_s + silence_s


def play(schedule: Schedule) -> Played:
    """Run a schedule to its end."""
    begun = time.process_time()
    draw = Random(f"founding {schedule.seed}")
    founded = {
        "omission_slack_ms": 400,
        "inline_size_max": draw.choice((0, 1024, 1024)),  # 0: every payload has to be fetched
        "payload_size_max": 4096,
    }
    scenario = draw_scenario(schedule)
    simulation = trivial_simulation(scenario, founded=founded)
    heights = HEIGHTS_AFTER_LOSSES if schedule.losses else HEIGHTS_OF_CHANGES if schedule.changes else HEIGHTS
    healing, undecided = _Healing(simulation, scenario, heights), list[str]()
    for loss, number in zip(draw_losses(schedule), _losing(simulation, schedule), strict=False):
        _lose(simulation, loss, number)
    outcome = simulation.run()
    if healing.took_s is None:
        undecided = [_where(simulation)]
    state = simulation.checker.finals.state
    return Played(
        schedule,
        [*simulation.checker.violations, *undecided],
        healing.took_s,
        _attempts(simulation),
        time.process_time() - begun,
        sum(record.sequence for record in state.records) + state.amendments.count,
        outcome.events,
        outcome.trace_hash,
        outcome.totals,
    )


def _losing(simulation: Simulation, schedule: Schedule) -> list[int]:
    """The honest members in the order in which they lose their disks."""
    honest = [peer.number for peer in simulation.peers if peer.is_honest]
    return Random(f"losing {schedule.seed} {schedule.peers}").sample(honest, len(honest))


def _lose(simulation: Simulation, loss: Loss, number: int) -> None:
    """Have a member lose its disk, and come back."""
    peer, loop = simulation.peers[number], simulation.loop

    def lose() -> None:
        peer.crash()
        peer.storage = MemoryStore()
        if loss.journal:
            peer.journal = Journal()
        simulation.checker.on_loss(number, journal=loss.journal)

    loop.call_at(loss.at_s, lose)
    loop.call_at(loss.back_s, peer.start)


class _Healing:
    """Heals everything when its time has come, and ends the run when the honest members have gone on."""

    def __init__(self, simulation: Simulation, scenario: Scenario, heights: int) -> None:
        self.took_s: float | None = None
        self._simulation, self._scenario = simulation, scenario
        self._goal, self._left, self._until_s = 0, heights, CHAOS_S + calm_s(scenario, is_first=True)
        simulation.loop.call_at(CHAOS_S, self._heal)

    def _heal(self) -> None:
        simulation = self._simulation
        simulation.network.heal()
        simulation.network.conditions = CALM
        for peer in self._members():
            peer.kill_pending = False
            peer.start()
        for peer in [peer for peer in self._members() if not simulation.network.neighbours(peer.number)]:
            self._copy_chain(peer)
        self._goal = max(self._heights()) + 1
        self._look()

    def _copy_chain(self, peer: SimulatedPeer) -> None:
        """Do for a member what its operator has to: it lost its chain, and all others whose keys it knows have taken
        other ones."""
        heads = [(other.node.head.height, other) for other in self._members() if other.node is not None]
        peer.crash()
        is_copied = peer.copy_head(max(heads, key=itemgetter(0))[1])
        assert is_copied, "nobody takes another key before the first block, and one is at the head of all"
        peer.start()

    def _look(self) -> None:
        loop = self._simulation.loop
        if min(self._heights()) >= self._goal:
            self._goal, self._left = self._goal + 1, self._left - 1
            self._until_s = loop.time() + calm_s(self._scenario, is_first=False)
        if not self._left:
            self.took_s = loop.time() - CHAOS_S
        if not self._left or loop.time() > self._until_s:
            self._simulation.stop()
        else:
            loop.call_later(0.1, self._look)

    def _heights(self) -> list[int]:
        return [peer.node.head.height if peer.node else 0 for peer in self._members()]

    def _members(self) -> list[SimulatedPeer]:
        """The honest peers that count where the chain is."""
        roster = self._simulation.checker.finals.state.roster
        return [peer for peer in self._simulation.peers if peer.is_honest and roster.is_active(peer.public_key)]


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
            kinds: tuple[FaultKind, ...] = ("crash", "kill")
            kind, at_s = draw.choice(kinds), draw.uniform(0.3, CHAOS_S - 1)
            faults.append(Fault(at_s=at_s, kind=kind, peers=(number,)))
            back_s = min(CHAOS_S, at_s + draw.uniform(0.1, 6.0))
            faults.append(Fault(at_s=back_s, kind="restart", peers=(number,)))
    return faults


def _clocks(draw: Random, numbers: Sequence[int]) -> tuple[Clock, ...]:
    """Wrong clocks of at most f members, the traitors if there are any."""
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
    """Attempts of the final heights that an honest peer still has in its storage."""
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
    now_s = simulation.loop.time() - CHAOS_S
    return (
        f"progress: a height has not ended {now_s:.0f} s after the calm: height, attempt, candidates, silent: {where}"
    )
