"""A simulation: builds the peers of a scenario, runs them in virtual time, and measures what happens.

The same scenario and seed give the same events, the same chain and the same models, whatever the number of worker
processes; ``Outcome.trace_hash`` is the proof.
"""

import asyncio
import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fedchain.chain.fork_choice import BlockTree

from fedchain.chain.block import Block
from fedchain.chain.difficulty import bits_from_attempts
from fedchain.chain.genesis import AggregatorRule, Genesis
from fedchain.chain.knowledge import Rules as ChainRules
from fedchain.chain.state import State, mining_time_ms
from fedchain.chain.storage.store import MemoryStore, Storage
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.keys import PrivateKey
from fedchain.learning.learner import Contribution
from fedchain.learning.rules import Rules
from fedchain.learning.seeding import derive
from fedchain.network.messages import PostMessage, VoteMessage
from fedchain.node import task
from fedchain.node.core.checks import Verification
from fedchain.node.core.effects import Contribute, Effect, Mine, Publish
from fedchain.node.core.events import Contributed, Event, Mined
from fedchain.simulator.engine.checker import Checker
from fedchain.simulator.engine.clock import VirtualTimeLoop
from fedchain.simulator.engine.content_pool import ContentPool
from fedchain.simulator.engine.measurement import EvaluationLog, RoundMetrics, Span
from fedchain.simulator.engine.network import Conditions, Parcel, SimulatedNetwork
from fedchain.simulator.engine.peer import Pace, SimulatedPeer
from fedchain.simulator.engine.sleeping import Shifts
from fedchain.simulator.engine.training_pool import Compute
from fedchain.simulator.scenario import Fault, Scenario, ScenarioError

SETTLE_S = 60.0
"""Virtual seconds that the peers get, after the last round, to agree on one head."""


@dataclass(slots=True)
class Progress:
    """Where a running simulation is; a display reads it from another thread."""

    virtual_s: float = 0.0
    """The clock."""
    round: int = 0
    """Round that is open."""
    phase: str = "start"
    """What most peers are doing: training, exchange, mining, voting."""
    height: int = 0
    """Height of the highest head."""
    head: str = ""
    """First bytes of its hash, in hexadecimal."""
    forks: int = 0
    """Valid blocks that the chain did not take, so far."""
    peers_up: int = 0
    """Peers that run."""
    last: RoundMetrics | None = None
    """The last closed round."""


@dataclass(slots=True)
class Outcome:
    """What a simulation found out."""

    rows: list[RoundMetrics]
    """One per round."""
    timeline: dict[tuple[int, int], Span]
    """By (peer number, round)."""
    tip: str
    """Hash of the head, in hexadecimal."""
    knowledge_root: str
    """Hash of the final knowledge, in hexadecimal."""
    trace_hash: str
    """SHA-256 over every delivery, contribution, seal, head and fault, in order, in hexadecimal."""
    virtual_s: float
    """How long it took, in virtual seconds."""
    events: int
    """How many events the nodes took."""
    violations: list[str]
    """What the checker found; empty when all is well."""
    totals: dict[str, Any] = field(default_factory=dict)
    """Blocks, forks, bytes and the like."""


def found_federation(scenario: Scenario, rules: Rules, keys: list[PrivateKey]) -> Genesis:
    """The genesis document of a scenario. Virtual time starts at 0, so the federation was founded then."""
    return task.found_federation(
        scenario.learning_config(),
        rules,
        [key.public_key for key in keys],
        name=scenario.name,
        created_ms=0,
        rounds=scenario.rounds,
        aggregator=AggregatorRule(scenario.aggregator),
        centralized=scenario.centralized,
        proof_function=scenario.proof_function,
        initial_bits=bits_from_attempts(scenario.mining_attempts),
        target_mining_time_ms=round(scenario.mining_s * 1000),
        vote_quorum_percent=scenario.vote_quorum_percent,
        contribution_quorum=scenario.contribution_quorum,
        phase_timeout_ms=round(scenario.phase_timeout_s * 1000),
        inactive_after=scenario.inactive_after,
        retention_blocks=scenario.retention_blocks,
        committee_size=scenario.committee_size,
        contributors_per_round=scenario.contributors_per_round,
    )


def simulation_keys(scenario: Scenario) -> list[PrivateKey]:
    """Keys of the simulated peers: drawn from the scenario's seed, and therefore worth nothing elsewhere."""
    return [
        PrivateKey(sha256(f"fedchain simulation {scenario.seed} peer {number}".encode()))
        for number in range(scenario.peers)
    ]


class Simulation:
    """One run of a scenario.

    Args:
        scenario: validated.
        genesis: of :func:`found_federation`.
        keys: of :func:`simulation_keys`.
        rules: the learning method's side of validity.
        compute: what trains.
        store: where peer 0 keeps its chain; the others keep theirs in memory.
        on_round: told about each round when it is closed.
    """

    def __init__(
        self,
        scenario: Scenario,
        genesis: Genesis,
        keys: list[PrivateKey],
        rules: ChainRules,
        compute: Compute,
        store: Storage | None = None,
        on_round: Callable[[RoundMetrics], None] = lambda row: None,
    ) -> None:
        self.progress = Progress()
        self.peers: list[SimulatedPeer] = []
        self._scenario, self._genesis, self._compute = scenario, genesis, compute
        self._on_round = on_round
        self._loop = VirtualTimeLoop()
        self._checker = Checker(genesis, rules)
        self._evaluations = EvaluationLog()
        self._rows: list[RoundMetrics] = []
        self._timeline: dict[tuple[int, int], Span] = {}
        self._trace = hashlib.sha256()
        self._events = 0
        self._bytes_counted = 0
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._network = SimulatedNetwork(
            self._loop, genesis.members, _conditions(scenario), derive(scenario.seed, "network"), self._trace_delivery
        )
        self._shifts = Shifts(genesis, self.peers, self._network) if scenario.idle_sleep else None
        shared = Verification(genesis, rules) if scenario.shared_verification else None
        pool: dict[Hash, Any] = {}
        contents = ContentPool()
        for number, key in enumerate(keys):
            storage = store if number == 0 and store is not None else MemoryStore(pool)
            self.peers.append(
                SimulatedPeer(
                    number,
                    key,
                    genesis,
                    shared or Verification(genesis, rules),
                    storage,
                    contents.intern,
                    loop=self._loop,
                    network=self._network,
                    compute=compute,
                    pace=_pace(scenario),
                    draw=random.Random(derive(scenario.seed, "peer", number)),
                    evaluates=self._evaluates_test,
                    observer=self,
                )
            )

    def run(self) -> Outcome:
        """Run to the end of the last round.

        Raises:
            ScenarioError: the federation did not get there within ``max_virtual_s``.
            TrainingDiverged: a peer's loss left the finite numbers.
        """
        asyncio.set_event_loop(self._loop)
        self._loop.set_exception_handler(self._on_exception)
        try:
            if self._shifts is None:
                for peer in self.peers:
                    peer.start()
            else:
                self._shifts.begin()
            for fault in self._scenario.faults:
                self._loop.call_at(fault.at_s, self._apply_fault, fault)
            self._loop.call_later(1.0, self._look)
            self._loop.run_until_complete(self._done)
            self._measure_final_models()
        finally:
            asyncio.set_event_loop(None)
            self._loop.close()
        self._checker.check_end(self.peers)
        return self._outcome()

    # what the peers report

    def on_event(self, peer: SimulatedPeer, event: Event, effects: list[Effect]) -> None:
        """A node took an event: note it in the trace and in the timeline."""
        self._events += 1
        if isinstance(event, Contributed):
            self._note(peer.number, "contributed", sha256(event.payload))
        elif isinstance(event, Mined):
            self._note(peer.number, "mined", event.header.hash)
        if not effects:
            return
        self._checker.on_effects(peer, effects)
        node = peer.node
        assert node is not None, "an event was just taken"
        for effect in effects:
            match effect:
                case Contribute():
                    self._span(peer, effect.round).started = self._loop.time()
                case Mine(header):
                    self._span(peer, header.round).mining = self._loop.time()
                case Publish(PostMessage(transaction, _)):
                    span = self._span(peer, transaction.round)
                    span.trained = self._loop.time() if span.trained is None else span.trained  # it may be sent again
                case Publish(VoteMessage(vote)):
                    self._span(peer, vote.round).voted = self._loop.time()

    def on_contribution(self, peer: SimulatedPeer, round_number: int, contribution: Contribution) -> None:
        """A peer finished training: keep what it measured."""
        self._evaluations.add(peer.number, round_number, contribution)

    def on_head(self, peer: SimulatedPeer, old: State) -> None:
        """A head moved: check it, and close the round for this peer if it was the round's last block."""
        assert peer.node is not None, "only a running peer's head moves"
        head = peer.node.head
        self._note(peer.number, "head", head.block_hash)
        self._checker.on_head(peer)
        if head.round > old.round:
            span = self._span(peer, old.round)
            span.closed, span.up_since = self._loop.time(), peer.up_since
        if head.height > self.progress.height:
            self.progress.height, self.progress.head = head.height, head.block_hash.hex()[:12]
            self.progress.round = min(head.round, self._genesis.rounds)
            if head.round > old.round and head.round - 1 > len(self._rows):
                self._close_round(peer.node.tree, head)
        if self._shifts is not None and head.height >= self.progress.height:
            self._loop.call_later(0.0, self._shifts.change, head)

    # how the run goes on

    def _look(self) -> None:
        """Once a virtual second: is it over, and what are the peers doing?"""
        now_s = self._loop.time()
        running = [peer.node for peer in self.peers if peer.node is not None]
        self.progress.virtual_s, self.progress.peers_up = now_s, len(running)
        self.progress.phase = self._phase()
        heads = {node.head.block_hash for node in running}
        finished = bool(running) and all(node.head.finished for node in running)
        last_closed_s = self._rows[-1].virtual_s if self._rows else 0.0
        if finished and not self._faults_ahead(now_s) and (len(heads) == 1 or now_s - last_closed_s > SETTLE_S):
            self._done.set_result(None)
        elif now_s > self._scenario.max_virtual_s:
            reached = max((node.head.round for node in running), default=0)
            self._done.set_exception(
                ScenarioError(f"round {reached} of {self._scenario.rounds} was still open after {now_s:.0f} virtual s")
            )
        else:
            self._loop.call_later(1.0, self._look)

    def _faults_ahead(self, now_s: float) -> bool:
        """Whether a peer is still to be brought back, or the network to be healed."""
        return any(fault.at_s >= now_s and fault.kind in ("restart", "heal") for fault in self._scenario.faults)

    def _phase(self) -> str:
        spans = [self._span(peer, self.progress.round) for peer in self.peers if peer.node is not None]
        if not spans or all(span.trained is None for span in spans):
            return "training"
        if any(span.voted is not None for span in spans):
            return "voting"
        return "mining" if any(span.mining is not None for span in spans) else "exchange"

    def _apply_fault(self, fault: Fault) -> None:
        self._note(0, fault.kind, repr(fault.peers).encode())
        if fault.kind == "partition":
            self._network.split([fault.peers])
        elif fault.kind == "heal":
            self._network.heal()
        for number in fault.peers:
            peer = self.peers[number]
            if fault.kind == "crash":
                peer.crash()
                self._timeline.pop((number, self.progress.round), None)
            elif fault.kind == "restart":
                peer.start()
            elif fault.kind == "slow":
                peer.slowness = fault.factor

    def _on_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception") or RuntimeError(context["message"])
        if not self._done.done():
            self._done.set_exception(error)

    # what is measured

    def _close_round(self, tree: BlockTree, head: State) -> None:
        """The first peer closed a round: write its row; what later peers add is filled in as it comes."""
        sent = sum(self._network.sent_bytes)
        row = RoundMetrics(round=head.round - 1, height=head.height, virtual_s=self._loop.time())
        row.bytes_sent_per_peer = (sent - self._bytes_counted) // len(self.peers)
        self._bytes_counted = sent
        for known in (*self._rows[-1:], row):  # received models are measured in the round after
            self._fill(known, tree)
        self._rows.append(row)
        self.progress.last, self.progress.forks = row, sum(known.forks for known in self._rows)
        self._on_round(row)

    def _fill(self, row: RoundMetrics, tree: BlockTree) -> None:
        """Put into a row what is known by now."""
        self._evaluations.of_round(row.round).fill(row)
        seconds, forks, blocks, sealed_s = 0.0, 0, 0, 0.0
        first = self._rows[row.round - 2].height if row.round > 1 else 1
        for height in range(first, row.height + 1):
            for block in _blocks_at(tree, height):
                if block.header.round != row.round:
                    continue
                blocks += 1
                parent = tree.state(block.header.parent_hash)
                if tree.canonical(height) != block.hash or parent is None:
                    forks += 1
                    continue
                seconds += mining_time_ms(parent, block) / 1000
                row.posts, row.height = len(block.transactions), height
                sealed_s = block.header.timestamp_ms / 1000
        row.mining_s, row.forks, row.blocks = seconds, forks, blocks
        spans = [self._timeline[key] for key in self._timeline if key[1] == row.round]
        trained = [s.trained - s.started for s in spans if s.trained is not None and s.started is not None]
        row.training_s = sum(trained) / len(trained) if trained else 0.0
        accepted = [max(0.0, s.closed - sealed_s) for s in spans if s.closed is not None and s.up_since <= sealed_s]
        row.voting_s = sum(accepted) / len(accepted) if accepted else 0.0

    def _measure_final_models(self) -> None:
        """Have every peer receive the last round's knowledge, and measure that model too."""
        rounds = self._genesis.rounds
        known = {peer.number: peer.node.knowledge() for peer in self.peers if peer.node is not None}
        jobs = {
            number: self._compute.evaluate_received(
                number, rounds + 1, knowledge, evaluate_test=self._scenario.test_every > 0
            )
            for number, knowledge in known.items()
            if knowledge is not None
        }
        for number, job in jobs.items():
            self._evaluations.add_received(number, rounds + 1, job.result())

    def _evaluates_test(self, round_number: int) -> bool:
        every = self._scenario.test_every
        return every > 0 and (round_number % every == 0 or round_number == self._scenario.rounds)

    def _outcome(self) -> Outcome:
        reference = next(peer.node for peer in self.peers if peer.node is not None)
        for row in self._rows:
            self._fill(row, reference.tree)
        head = reference.head
        return Outcome(
            rows=self._rows,
            timeline=self._timeline,
            tip=head.block_hash.hex(),
            knowledge_root=head.knowledge_root.hex(),
            trace_hash=self._trace.hexdigest(),
            virtual_s=self._loop.time(),
            events=self._events,
            violations=self._checker.violations,
            totals={
                "blocks": sum(row.blocks for row in self._rows),
                "forks": sum(row.forks for row in self._rows),
                "height": head.height,
                "bytes_sent_per_peer": sum(self._network.sent_bytes) // len(self.peers),
            },
        )

    def _span(self, peer: SimulatedPeer, round_number: int) -> Span:
        return self._timeline.setdefault((peer.number, round_number), Span())

    def _trace_delivery(self, receiver: int, sender: int, parcel: Parcel) -> None:
        self._trace.update(b"%d %d %d " % (self._loop.now_ms(), receiver, sender) + parcel.identity)

    def _note(self, number: int, kind: str, detail: bytes) -> None:
        self._trace.update(f"{self._loop.now_ms()} {number} {kind} ".encode() + detail)


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
    """Hash rates at which all miners together need ``mining_s`` for ``mining_attempts`` hashes."""
    awake = scenario.contributors_per_round + scenario.committee_size if scenario.idle_sleep else scenario.peers
    miners = 1 if scenario.centralized else min(awake, scenario.peers)
    return Pace(scenario.iteration_s, scenario.mining_attempts / (scenario.mining_s * miners))


def _blocks_at(tree: BlockTree, height: int) -> list[Block]:
    """Valid blocks on top of the canonical block below ``height``, canonical or not."""
    below = tree.canonical(height - 1)
    found = (tree.block(child) for child in tree.children(below or b""))
    return [block for block in found if block is not None]
