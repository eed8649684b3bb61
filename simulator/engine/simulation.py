"""A simulation: builds the peers of a scenario, runs them in virtual time, and measures the run.

The same scenario and seed give the same events, the same chain and the same models for any number of worker
processes; ``Outcome.trace_hash`` proves it.
"""

import asyncio
import gc
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedchain.chain.difficulty import bits_from_attempts
from fedchain.chain.genesis import FaultModel, Genesis
from fedchain.chain.knowledge import Rules as ChainRules
from fedchain.chain.post import Post
from fedchain.chain.state import State, genesis_state, may_close_empty, posts_required
from fedchain.chain.storage.store import MemoryStore, Storage
from fedchain.crypto.hashing import HASH_SIZE, Hash, sha256
from fedchain.crypto.keys import PrivateKey, PublicKey
from fedchain.files.links import Link
from fedchain.files.members import MemberAccuracy
from fedchain.learning.application import Application
from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import DecryptionRefused, NothingToPost
from fedchain.learning.executors.executor import Executor, Interrupted
from fedchain.learning.payload.part_folder import LinkedPartFolder
from fedchain.learning.seeding import derive
from fedchain.learning.training.measured import Evaluation
from fedchain.learning.worker.contribution import Contribution
from fedchain.node.core.checks import NOWHERE_ELSE, Checks, PassedChecks
from fedchain.node.core.effects import Contribute, Effect
from fedchain.node.core.events import Contributed, Event, MessageReceived, Mined, PeerConnected, PeerDisconnected
from fedchain.node.core.posts import NO_GOOD_POSTS
from fedchain.node.founding import task
from fedchain.node.shell.timeline import SeenBlock
from fedchain.simulator.adversaries.adversary import Coalition
from fedchain.simulator.adversaries.registry import build_adversary
from fedchain.simulator.disturbances import Fault
from fedchain.simulator.engine.checker import Checker
from fedchain.simulator.engine.clock import EPOCH_MS, VirtualTimeLoop, WallClock
from fedchain.simulator.engine.content_pool import ContentPool
from fedchain.simulator.engine.measurement import RoundMetrics, Span
from fedchain.simulator.engine.network import Conditions, NetworkWatch, Parcel, SimulatedNetwork
from fedchain.simulator.engine.no_record import NO_RECORD, NoRecord
from fedchain.simulator.engine.peer import Behaviour, Machine, Pace, SimulatedPeer, Surroundings
from fedchain.simulator.engine.recorder import Recorder
from fedchain.simulator.engine.sealing import sealing
from fedchain.simulator.engine.shared_posts import SharedPosts
from fedchain.simulator.engine.sleeping import Shifts
from fedchain.simulator.engine.witness import Witness
from fedchain.simulator.resuming.record import Record
from fedchain.simulator.scenario import Scenario, ScenarioError

TRACE_LINES_MAX = 4_096
"""Largest number of lines of the trace that are hashed together; the end of a round ends such a stretch, too."""

OBJECTS_PER_PEER = 20
"""New objects per peer after which Python collects garbage, unless its own threshold is higher. Many peers make many
objects and keep most of them: with 150 peers, a twelfth of the time was spent on scanning those."""

CHAIN_KEEPER = 0
"""Number of the peer that a run keeps the chain of, and the observations of each block."""

SETTLE_S = 60.0
"""Virtual seconds that the peers have, after the last round, to agree on one head."""


@dataclass(slots=True)
class Progress:
    """Progress of a running simulation; a display reads it from another thread."""

    virtual_s: float = 0.0
    """Virtual time, in seconds."""
    round: int = 0
    """Round that is open."""
    phase: str = "start"
    """Work of most peers: training, exchange, mining, voting."""
    height: int = 0
    """Height of the highest head."""
    head: str = ""
    """First bytes of its hash, in hexadecimal."""
    not_taken: int = 0
    """Valid blocks that did not become final, so far."""
    peers_up: int = 0
    """Peers that run."""
    last: RoundMetrics | None = None
    """The last closed round."""


@dataclass(slots=True)
class Outcome:
    """Results of a simulation."""

    rows: list[RoundMetrics]
    """One per round."""
    timeline: dict[tuple[int, int], Span]
    """Times of each peer's work, by (peer number, round)."""
    tip: str
    """Hash of the head, in hexadecimal."""
    knowledge_root: str
    """Hash of the final knowledge, in hexadecimal."""
    trace_hash: str
    """SHA-256 over every delivery, contribution, seal, head and fault, in order, stretch by stretch, in hexadecimal."""
    virtual_s: float
    """Duration of the run, in virtual seconds."""
    events: int
    """Number of events that the nodes handled."""
    violations: list[str]
    """Violations that the checker found; empty if all is well."""
    last_local: dict[int, tuple[int, Evaluation]] = field(default_factory=dict)
    """By number of each honest peer that trained: its last round of training, and its model's evaluation then."""
    members: list[MemberAccuracy] = field(default_factory=list)
    """Accuracies of the members' models, by round and member."""
    totals: dict[str, Any] = field(default_factory=dict)
    """Blocks, attempts, bans, bytes and the like."""
    not_posted: list[str] = field(default_factory=list)
    """Reasons for which peers had nothing to post: one line for each peer and round, in order."""
    skipped: list[str] = field(default_factory=list)
    """Contributions that a peer could not use, and why: one line for each receiver, sender and round, in order."""
    knowledge: bytes = field(default=b"", repr=False)
    """The final knowledge itself, as the learning method's rules read it."""
    links: list[Link] = field(default_factory=list)
    """Traffic between the members; none of very many members."""
    seen: list[SeenBlock] = field(default_factory=list)
    """Observations of blocks before they were final, by the peer whose chain is kept."""


def found_federation(
    scenario: Scenario, rules: Application, keys: list[PrivateKey], config: LearningConfig | None = None
) -> Genesis:
    """The genesis document of a scenario. Its date of creation is the beginning of virtual time.

    Args:
        scenario: validated.
        rules: the same task's rules.
        keys: the members' keys.
        config: the scenario's task with the keys that were dealt for it; None if none were.
    """
    return task.found_federation(
        config or scenario.learning_config(),
        rules,
        [key.public_key for key in keys],
        **consensus_of(scenario),
    )


def consensus_of(scenario: Scenario) -> dict[str, Any]:
    """Fields of the genesis document that a scenario determines, apart from the task and its members."""
    return {
        "name": scenario.name,
        "created_ms": EPOCH_MS,
        "rounds": scenario.rounds,
        "aggregator": scenario.aggregator_rule,
        "centralized": scenario.centralized,
        "proof_function": scenario.proof_function,
        "initial_bits": bits_from_attempts(scenario.mining_attempts),
        "target_mining_time_ms": round(scenario.mining_s * 1000),
        "fault_model": FaultModel(scenario.fault_model),
        "contribution_quorum": scenario.contribution_quorum,
        "round_interval_ms": round(scenario.round_interval_s * 1000),
        "phase_timeout_ms": round(scenario.phase_timeout_s * 1000),
        "phase_floor_ms": round(scenario.phase_floor_s * 1000),
        "vote_timeout_ms": round(scenario.vote_timeout_s * 1000),
        "retention_blocks": scenario.retention_blocks,
        "committee_size": scenario.committee_size,
        "contributors_per_round": scenario.contributors_per_round,
    }


def simulation_keys(scenario: Scenario) -> list[PrivateKey]:
    """Keys of the simulated peers: they follow from the scenario's seed, so they protect nothing."""
    return [
        PrivateKey(sha256(f"fedchain simulation {scenario.seed} peer {number}".encode()))
        for number in range(scenario.members)
    ]


@dataclass(frozen=True, slots=True)
class Supervision:
    """How the caller of a run follows it, ends it, and goes on with it."""

    on_round: Callable[[RoundMetrics], None] = lambda row: None
    """Called with each round's row when the round is closed."""
    stop: threading.Event | None = None
    """Ends the run with Interrupted when another thread sets it."""
    record: Record | NoRecord = NO_RECORD
    """This run's record, which holds its results up to an interruption."""


class Simulation:
    """One run of a scenario.

    Args:
        scenario: validated.
        genesis: the result of :func:`found_federation`.
        keys: the result of :func:`simulation_keys`.
        rules: the learning method's rules of validity.
        executor: trains the models.
        parts: folder with each peer's parts, in a folder named by its number; None if posts have no parts.
        supervision: how the run is followed, ended and resumed.
    """

    def __init__(
        self,
        scenario: Scenario,
        genesis: Genesis,
        keys: list[PrivateKey],
        rules: ChainRules,
        executor: Executor,
        parts: Path | None = None,
        supervision: Supervision = Supervision(),
    ) -> None:
        self.progress = Progress()
        self.peers: list[SimulatedPeer] = []
        self.loop = VirtualTimeLoop()
        self.traitors = frozenset(number for row in scenario.adversaries for number in row.peers)
        self.checker = Checker(genesis, rules, self.loop, self.peers, self.traitors)
        self.recorder, self.witness = Recorder(genesis, self.loop), Witness()
        self._scenario, self._genesis, self._executor = scenario, genesis, executor
        self._on_round, self._stop, self._record = supervision.on_round, supervision.stop, supervision.record
        self._trace = bytes(HASH_SIZE)
        self._trace_lines: list[bytes] = []  # not hashed yet
        self._events = 0
        self._is_stopped = False
        self._not_posted: dict[tuple[int, int], str] = {}  # why a peer had nothing to post in a round
        self._skipped: dict[tuple[int, int, int], str] = {}  # why a peer could use nothing of another in a round
        self._failed: dict[tuple[int, int], set[PublicKey]] = {}  # members that failed to post, by phase
        self._done: asyncio.Future[None] = self.loop.create_future()
        contents = self._contents = ContentPool()
        self.network = SimulatedNetwork(
            self.loop,
            genesis_state(genesis).roster.members,
            _conditions(scenario),
            derive(scenario.seed, "network"),
            NetworkWatch(self._trace_delivery, self._on_link, self.checker.on_ban),
            contents.share,
        )
        follow = scenario.shared_verification
        self._shifts = Shifts(genesis, self.peers, self.network, follow=follow) if scenario.idle_sleep else None
        around = Surroundings(
            self.loop,
            self.network,
            genesis,
            executor,
            self._record.remembering(sealing(genesis.proof_function)),
            _pace(scenario),
            SharedPosts() if scenario.shared_verification else NO_GOOD_POSTS,
            contents.intern,
            self._evaluates_test,
            self,
        )
        shared = Checks(genesis, rules, contents.intern) if scenario.shared_verification else None
        elsewhere = PassedChecks() if self._record.resumptions else NOWHERE_ELSE
        behaviours = self._build_behaviours(keys, rules)
        pool: dict[Hash, Any] = {}
        known_parts: dict[Hash, Path] = {}
        for number, key in enumerate(keys):
            clock = WallClock([setting for setting in scenario.clocks if number in setting.peers])
            draw = random.Random(derive(scenario.seed, "peer", number))
            folder = None if parts is None else LinkedPartFolder(parts / str(number), known_parts)
            self.peers.append(
                SimulatedPeer(
                    number,
                    key,
                    shared or Checks(genesis, rules, contents.intern, elsewhere=elsewhere),
                    Machine(MemoryStore(pool, contents.shelf()), clock, draw, folder),
                    around,
                    behaviours.get(number),
                )
            )

    def _build_behaviours(self, keys: Sequence[PrivateKey], rules: ChainRules) -> dict[int, Behaviour]:
        """Behaviours of the traitors, by peer number."""
        if not self.traitors:
            return {}
        honest = tuple(number for number in range(len(keys)) if number not in self.traitors)
        known = tuple(keys[number] for number in sorted(self.traitors))
        coalition = Coalition(self._genesis, rules, self.loop, known, honest)
        built: dict[int, Behaviour] = {}
        for row in self._scenario.adversaries:
            for number in row.peers:
                draw = random.Random(derive(self._scenario.seed, "adversary", number))
                built[number] = build_adversary(row.behaviour, coalition, draw, row.parameters)
        return built

    def keep_chain(self, store: Storage) -> None:
        """Keep the chain of one peer in a store; the others keep theirs in memory. Call it before the run begins."""
        self.peers[CHAIN_KEEPER].storage = store

    def run(self) -> Outcome:
        """Run to the end of the last round. Afterwards, the peers' storages lack large contents.

        Raises:
            ScenarioError: the federation did not reach it within ``max_virtual_s``.
            NothingToPost: so many peers have nothing to post that a phase can never have its posts.
        """
        try:
            with _rare_collections(OBJECTS_PER_PEER * len(self.peers)):
                self._run()
                self.checker.check_end(is_settled=not self._is_stopped)
                return self._outcome()
        finally:
            self._contents.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.set_exception_handler(self._on_exception)
        try:
            self._begin()
            self.loop.run_until_complete(self._done)
            self._measure_final_models()
        finally:
            asyncio.set_event_loop(None)
            self.loop.close()

    def _begin(self) -> None:
        if self._shifts is None:
            for peer in self.peers:
                peer.start()
        else:
            self._shifts.begin()
        for fault in self._scenario.faults:
            self.loop.call_at(fault.at_s, self._apply_fault, fault)
        self.loop.call_later(1.0, self._look)

    def stop(self) -> None:
        """End the run at once; peers may then have different heads."""
        self._is_stopped = True
        if not self._done.done():
            self._done.set_result(None)

    # reports of the peers

    def on_event(self, peer: SimulatedPeer, event: Event, effects: Sequence[Effect]) -> None:
        """A node handled an event: note it in the trace and in the timeline."""
        self._events += 1
        if self._stop is not None:
            self._look_whether_to_stop(self._stop)
        if peer.number == CHAIN_KEEPER and peer.node is not None:
            self.witness.look(peer.node, event, effects, self.loop.now_ms())
        if not effects and isinstance(event, (MessageReceived, PeerConnected)):
            if peer.is_honest and isinstance(event, MessageReceived):
                self.checker.inclusion.on_message(peer, event.message, effects, self.loop.now_ms())
            return
        if isinstance(event, Contributed):
            self._note(peer.number, "contributed", sha256(event.payload))
        elif isinstance(event, Mined):
            self._note(peer.number, "mined", event.header.hash)
        if peer.is_honest:
            self.checker.on_event(peer, event, effects)
            if effects:
                self.recorder.on_effects(peer, effects)

    def on_post(self, peer: SimulatedPeer, post: Post) -> None:
        """An honest peer took a post without any effect, as it takes most."""
        self._events += 1
        if self._stop is not None:
            self._look_whether_to_stop(self._stop)
        self.checker.inclusion.on_post(peer, post, self.loop.now_ms())

    def on_contribution(self, peer: SimulatedPeer, effect: Contribute, made: Contribution | NothingToPost) -> None:
        """A peer finished training: keep its measurements, or end the run if too few peers are left that can post."""
        if isinstance(made, Contribution):
            if peer.is_honest:  # results of traitors are not reported
                self.recorder.evaluations.add(peer.number, effect.round, effect.phase, made)
            for other, reason in made.skipped:
                said = f"peer {peer.number}, round {effect.round}: nothing of peer {other} is used: {reason}"
                self._skipped.setdefault((peer.number, effect.round, other), said)
            return
        self._not_posted[peer.number, effect.round] = str(made)
        if isinstance(made, DecryptionRefused):
            return  # a phase of shares may close without any
        assert peer.node is not None, "only a running peer trains"
        head = peer.node.head
        if head.round != effect.round:
            return
        failed = self._failed.setdefault((head.round, head.phase), set())
        failed.add(peer.public_key)
        able = len(head.roster.contributors - failed)
        required = 1 if may_close_empty(self._genesis, head) else posts_required(self._genesis, head)
        if able < required and not self._done.done():
            self._done.set_exception(made)

    def on_head(self, peer: SimulatedPeer, old: State) -> None:
        """A peer's head moved: check it, and close the round if this peer is the first to close it."""
        assert peer.node is not None, "only a running peer's head moves"
        head = peer.node.head
        self._note(peer.number, "head", head.block_hash)
        if not peer.is_honest:
            return
        self.checker.on_head(peer)
        self.recorder.on_head(peer, old, head)
        if head.height > self.progress.height:
            self.progress.height, self.progress.head = head.height, head.block_hash.hex()[:12]
            self.progress.round = min(head.round, self._genesis.rounds)
            if head.round > old.round and head.round - 1 > len(self.recorder.rows):
                self._close_round(peer)
        if self._shifts is not None and head.height >= self.progress.height:
            self.loop.call_later(0.0, self._shifts.change, peer)

    def _look_whether_to_stop(self, stop: threading.Event) -> None:
        if stop.is_set() and not self._done.done():
            self._done.set_exception(Interrupted())

    def _on_link(self, number: int, neighbour: int, connected: bool) -> None:
        """A connection was cut or made: a ban began or ended, or another link replaced the cut one."""
        peer, member = self.peers[number], self.peers[neighbour].public_key
        if peer.node is not None:
            peer.handle(PeerConnected(member) if connected else PeerDisconnected(member))

    # course of the run

    def _look(self) -> None:
        """Once a virtual second, note the progress, and end the run if it is over."""
        now_s, rows = self.loop.time(), self.recorder.rows
        running = [peer.node for peer in self.peers if peer.node is not None and peer.is_honest]
        self.progress.virtual_s, self.progress.peers_up = now_s, len(running)
        self.progress.phase = self._phase()
        heads = {node.head.block_hash for node in running}
        finished = bool(running) and all(node.head.finished for node in running)
        last_closed_s = rows[-1].virtual_s if rows else 0.0
        if finished and not self._faults_ahead(now_s) and (len(heads) == 1 or now_s - last_closed_s > SETTLE_S):
            self._done.set_result(None)
        elif now_s > self._scenario.max_virtual_s:
            reached = max((node.head.round for node in running), default=0)
            self._done.set_exception(
                ScenarioError(f"round {reached} of {self._scenario.rounds} was still open after {now_s:.0f} virtual s")
            )
        else:
            self.loop.call_later(1.0, self._look)

    def _faults_ahead(self, now_s: float) -> bool:
        """Whether a restart or the healing of the network is still to come."""
        return any(fault.at_s >= now_s and fault.kind in ("restart", "heal") for fault in self._scenario.faults)

    def _phase(self) -> str:
        round_number = self.progress.round
        spans = [self.recorder.span(peer.number, round_number) for peer in self.peers if peer.node is not None]
        if not spans or all(span.trained is None for span in spans):
            return "training"
        if any(span.voted is not None for span in spans):
            return "voting"
        return "mining" if any(span.mining is not None for span in spans) else "exchange"

    def _apply_fault(self, fault: Fault) -> None:
        self._note(0, fault.kind, repr(fault.peers).encode())
        if fault.kind == "partition":
            self.network.split([fault.peers])
        elif fault.kind == "heal":
            self.network.heal()
        for number in fault.peers:
            peer = self.peers[number]
            if fault.kind == "crash":
                peer.crash()
                self.recorder.timeline.pop((number, self.progress.round), None)
            elif fault.kind == "kill":
                peer.kill_pending = peer.node is not None
            elif fault.kind == "restart":
                peer.crash()
                self.checker.on_crash(number)
                peer.start()
            elif fault.kind == "slow":
                peer.slowness = fault.factor

    def _on_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception") or RuntimeError(context["message"])
        if not self._done.done():
            self._done.set_exception(error)

    # measurements

    def _close_round(self, peer: SimulatedPeer) -> None:
        assert peer.node is not None, "only a running peer closes a round"
        row = self.recorder.close_round(peer.node.ledger, self.network.sent_bytes, self.network.received_bytes)
        self._write_trace()
        self._record.close_round(row.round, self._trace, self.recorder.timeline)
        self.progress.last = row
        self.progress.not_taken = sum(known.not_taken for known in self.recorder.rows)
        self._on_round(row)

    def _measure_final_models(self) -> None:
        """Have every peer receive the last round's knowledge, and measure that model too."""
        rounds = self._genesis.rounds
        clients = self.peers[: len(self._genesis.participants)]
        running = [peer for peer in clients if peer.node is not None and peer.is_honest]
        known = {peer.number: peer.node.knowledge() for peer in running if peer.node is not None}
        jobs = {
            number: self._executor.evaluate_received(
                number, rounds + 1, knowledge, evaluate_test=self._scenario.test_every > 0
            )
            for number, knowledge in known.items()
            if knowledge is not None
        }
        for number, job in jobs.items():
            self.recorder.evaluations.add_received(number, rounds + 1, job.result())

    def _evaluates_test(self, round_number: int) -> bool:
        every = self._scenario.test_every
        return every > 0 and (round_number % every == 0 or round_number == self._scenario.rounds)

    def _outcome(self) -> Outcome:
        reference = next(peer.node for peer in self.peers if peer.node is not None and peer.is_honest)
        rows, head = self.recorder.rows, reference.head
        for row in rows:
            self.recorder.fill(row, reference.ledger)
        inclusion = self.checker.inclusion
        self._write_trace()
        return Outcome(
            rows=rows,
            timeline=self.recorder.timeline,
            seen=self.witness.blocks,
            tip=head.block_hash.hex(),
            knowledge_root=head.knowledge_root.hex(),
            trace_hash=self._trace.hex(),
            virtual_s=self.loop.time(),
            events=self._events,
            violations=self.checker.violations,
            not_posted=list(self._not_posted.values()),
            skipped=list(self._skipped.values()),
            knowledge=bytes(reference.knowledge() or b""),
            last_local=self.recorder.evaluations.last_local(),
            members=self.recorder.evaluations.members(),
            links=self.network.links(),
            totals={
                "blocks": sum(row.blocks for row in rows),
                "not_taken": sum(row.not_taken for row in rows),
                "attempts_max": max((row.attempts for row in rows), default=0),
                "height": head.height,
                "bytes_sent_per_peer": sum(self.network.sent_bytes) // len(self.peers),
                "posts_sent": inclusion.posts_due,
                "posts_lost": inclusion.posts_lost,
                "convicted": sorted(head.roster.seats[crime.culprit] for crime in head.convicted),
                "bans": sorted(self.network.bans),
            },
        )

    def _trace_delivery(self, receiver: int, sender: int, parcel: Parcel) -> None:
        lines = self._trace_lines
        lines.append(b"%d %d %d %b" % (self.loop.now_ms(), receiver, sender, parcel.identity))
        if len(lines) >= TRACE_LINES_MAX:
            self._write_trace()

    def _note(self, number: int, kind: str, detail: bytes) -> None:
        self._trace_lines.append(f"{self.loop.now_ms()} {number} {kind} ".encode() + detail)

    def _write_trace(self) -> None:
        """Hash the lines behind the hash of all before them, so that the lines need not be kept."""
        self._trace = sha256(self._trace + b"".join(self._trace_lines))
        self._trace_lines.clear()


@contextmanager
def _rare_collections(objects: int) -> Iterator[None]:
    """Have the garbage collector wait for at least so many new objects, unless it is off."""
    thresholds = gc.get_threshold()
    if thresholds[0]:
        gc.set_threshold(max(thresholds[0], objects), *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


def _conditions(scenario: Scenario) -> Conditions:
    return Conditions(
        delay_min_ms=scenario.delay_min_ms,
        delay_max_ms=scenario.delay_max_ms,
        loss=scenario.loss,
        replay=scenario.replay,
        bandwidth_mbit_s=scenario.bandwidth_mbit_s,
        degree=scenario.degree,
    )


def _pace(scenario: Scenario) -> Pace:
    """Speeds of a peer; all miners together need ``mining_s`` for ``mining_attempts`` hashes."""
    members = scenario.members
    awake = scenario.contributors_per_round + scenario.committee_size if scenario.idle_sleep else members
    miners = 1 if scenario.centralized else min(awake, members)
    return Pace(scenario.iteration_s, scenario.mining_attempts / (scenario.mining_s * miners))
