"""A simulation: builds the peers of a scenario, runs them in virtual time, and measures the run.

The same scenario and seed give the same events, the same chain and the same models for any number of worker
processes; ``Outcome.trace_hash`` proves it.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from fedchain.allocator import HugePages
from fedchain.chain.exceptions import Invalid
from fedchain.chain.genesis import Genesis
from fedchain.chain.knowledge import Rules as ChainRules
from fedchain.chain.post import Post
from fedchain.chain.state import State, genesis_state
from fedchain.chain.storage.store import Storage
from fedchain.collector import collecting_rarely
from fedchain.crypto.hashing import sha256
from fedchain.crypto.keys import PrivateKey
from fedchain.learning.application import Application
from fedchain.learning.exceptions import LearningError, NothingToPost, OwnCodeFailed
from fedchain.learning.executors.executor import Executor, Interrupted
from fedchain.learning.worker.contribution import Contribution
from fedchain.network.messages import CandidateMessage, PostMessage
from fedchain.node.core.checks import Checks
from fedchain.node.core.effects import Compute, Contribute, Effect
from fedchain.node.core.events import (
    Computed,
    Contributed,
    Event,
    MessageReceived,
    Mined,
    PeersConnected,
    PeersDisconnected,
)
from fedchain.node.core.jobs import CheckPost
from fedchain.node.core.node import Node
from fedchain.node.core.posts import Arrival
from fedchain.simulator.disturbances import Fault
from fedchain.simulator.engine.checker import Checker
from fedchain.simulator.engine.clock import VirtualTimeLoop
from fedchain.simulator.engine.construction import Construction
from fedchain.simulator.engine.faults import Faults
from fedchain.simulator.engine.measurement import RoundMetrics
from fedchain.simulator.engine.membership import MembershipChanges
from fedchain.simulator.engine.network import NetworkWatch, Parcel
from fedchain.simulator.engine.outcome import Outcome
from fedchain.simulator.engine.peer import SimulatedPeer
from fedchain.simulator.engine.recorder import Recorder
from fedchain.simulator.engine.sealing import sealing
from fedchain.simulator.engine.shared.content_pool import ContentPool
from fedchain.simulator.engine.shared.next_phase import NextPhase
from fedchain.simulator.engine.shortfalls import Shortfalls
from fedchain.simulator.engine.sleeping import Shifts
from fedchain.simulator.engine.trace import Trace
from fedchain.simulator.engine.witness import Witness
from fedchain.simulator.resuming.no_record import NO_RECORD, NoRecord
from fedchain.simulator.resuming.record import Record
from fedchain.simulator.scenario import CHAIN_KEEPER, Scenario, ScenarioError

EVENTS_PER_LOOK = 10_000
"""Events of nodes after which it is looked whether the process has grown."""

OBJECTS_PER_PEER = 20
"""New objects per peer after which Python collects garbage; with few peers, its own threshold is higher. Many peers
make many objects and keep most of them: with 150 peers, a twelfth of the time was spent on scanning those."""

SETTLE_S = 60.0
"""Virtual seconds that the peers have, after the last round, to agree on one head."""

OnRound = Callable[[RoundMetrics, Witness], None]
"""Called when a round is closed, with its row and with what the peers have seen so far."""


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
    """Valid candidates that were not finalized, so far."""
    peers_up: int = 0
    """Peers that run."""
    last: RoundMetrics | None = None
    """The last closed round."""


@dataclass(frozen=True, slots=True)
class Supervision:
    """How the caller of a run follows it, ends it, and goes on with it."""

    on_round: OnRound = lambda row, witness: None
    """Follows the rounds."""
    stop: threading.Event | None = None
    """Ends the run with Interrupted when another thread sets it."""
    record: Record | NoRecord = NO_RECORD
    """This run's record, which holds its results up to an interruption."""
    shares_checks: bool = True
    """Whether a check is computed once for all peers, each of which decides for itself; False: by each of them."""


class Simulation:
    """One run of a scenario.

    Args:
        scenario: validated.
        genesis: the result of :func:`fedchain.simulator.founding.found_federation`.
        keys: the result of :func:`fedchain.simulator.founding.simulation_keys`.
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
        self._founders = len(genesis_state(genesis).roster)
        newcomers = [key.public_key for key in keys[self._founders :]]
        self.checker = Checker(genesis, rules, self.loop, self.peers, self.traitors, newcomers)
        self._membership = MembershipChanges(
            genesis,
            scenario.all_changes,
            self.peers,
            self.checker.on_key,
            deals_by_place=isinstance(rules, Application),
            is_troubled=bool(scenario.loss or scenario.faults or scenario.adversaries),
        )
        self.witness = Witness()
        self.recorder = Recorder(genesis, self.loop, self.witness, len(keys))
        self._scenario, self._genesis, self._executor = scenario, genesis, executor
        self._on_round, self._stop, self._record = supervision.on_round, supervision.stop, supervision.record
        self._trace, self._shortfalls = Trace(self.loop), Shortfalls(genesis)
        self._events, self._next_look, self._pages = 0, EVENTS_PER_LOOK, HugePages()
        self._is_stopped = False
        self._done: asyncio.Future[None] = self.loop.create_future()
        self._contents = ContentPool(hashes_once=supervision.shares_checks)
        shared = Checks(genesis, rules, self._contents.intern) if supervision.shares_checks else None
        construction = Construction(scenario, genesis, keys, rules, self.loop, self._contents, shared)
        self.network = construction.network(
            NetworkWatch(self._trace.deliver, self._on_link, self.checker.on_ban, self._on_taken, self._on_noted)
        )
        self._shifts = Shifts(genesis, self.peers, self.network) if scenario.idle_sleep else None
        self._faults = Faults(scenario.faults, self.peers, self.network, self._on_fault)
        self._next_phase: NextPhase | None = None
        if scenario.train_ahead and not self.traitors:
            checks = shared or Checks(genesis, rules, self._contents.intern)
            self._next_phase = NextPhase(genesis, self.peers, checks)
        seal = self._record.remembering(sealing(genesis.proof_function))
        restart = SimulatedPeer.start if self._shifts is None else self._shifts.restart
        around = construction.surroundings(self.network, executor, seal, self, restart)
        self.peers.extend(construction.peers(around, parts))

    def keep_chain(self, store: Storage) -> None:
        """Keep the chain of one peer in a store; the others keep theirs in memory. Call it before the run begins."""
        self.peers[CHAIN_KEEPER].storage = store

    def run(self) -> Outcome:
        """Run to the end of the last round. Afterwards, the peers' storages lack large contents.

        Raises:
            ScenarioError: the federation did not reach it within ``max_virtual_s``.
            NothingToPost: so many peers have nothing to post that a phase can never have its posts.
            OwnCodeFailed: the same, since all others refuse what the user's own method posts.
            Interrupted: another thread has set ``Supervision.stop``.
        """
        try:
            with collecting_rarely(OBJECTS_PER_PEER * len(self.peers)):
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
            for peer in self.peers[: self._founders]:
                peer.start()
        else:
            self._shifts.begin()
        self._faults.begin(self.loop)
        self.loop.call_later(1.0, self._look)

    def note_under_way(self) -> None:
        """Note what was trained for contributions that the run did not last long enough for."""
        for peer in self.peers:
            for round_number, job in peer.under_way:
                with suppress(LearningError):  # the client is as it was before
                    self.on_trained(peer, round_number, job.result())

    def stop(self) -> None:
        """End the run at once; peers may then have different heads."""
        self._is_stopped = True
        if not self._done.done():
            self._done.set_result(None)

    # reports of the peers

    def on_event(self, peer: SimulatedPeer, event: Event, effects: Sequence[Effect]) -> None:
        """A node handled an event: note it in the trace and in the timeline."""
        self._count_events(1)
        if not effects and isinstance(event, MessageReceived):
            if peer.is_honest and isinstance(event.message, (PostMessage, CandidateMessage)):
                if peer.node is not None and isinstance(event.message, CandidateMessage):
                    self.witness.look(peer.number, peer.node, event, effects, self.loop.now_ms())
                self.checker.inclusion.on_message(peer, event.message, effects, self.loop.now_ms())
            return
        if not effects and isinstance(event, (PeersConnected, PeersDisconnected)):
            return
        if peer.is_honest and peer.node is not None and effects:
            self.witness.look(peer.number, peer.node, event, effects, self.loop.now_ms())
            if isinstance(event, Computed) and isinstance(event.job, CheckPost) and isinstance(event.result, Invalid):
                self._on_refusal(peer, peer.node, event.job.post, event.result)
        if isinstance(event, Contributed):
            check = _check_of(event, effects)
            made = sha256(event.payload) if check is None else check.post.payload_hash
            self._trace.note(peer.number, "contributed", made)
            if check is not None and self._next_phase is not None:
                self._next_phase.on_post(check)
        elif isinstance(event, Mined):
            self._trace.note(peer.number, "mined", event.header.hash)
        if peer.is_honest:
            self.checker.on_event(peer, event, effects)
            if effects:
                self.recorder.on_effects(peer, effects)

    def on_post(self, numbers: Sequence[int], arrival: Arrival) -> None:
        """Nodes of honest peers took a post, and did nothing else."""
        self._count_events(len(numbers))
        self.checker.inclusion.on_post(numbers, arrival.post, arrival.now_ms)

    def _on_taken(self, numbers: Sequence[int], sender: int, parcel: Parcel, arrival: Arrival) -> None:
        """The network gave a post to nodes in a lull."""
        self._trace.deliver_to_all(numbers, sender, parcel)
        self.on_post(numbers, arrival)

    def _on_noted(self, numbers: Sequence[int], sender: int, parcel: Parcel) -> None:
        """Nodes of honest peers noted a statement of a process, and did nothing else."""
        self._trace.deliver_to_all(numbers, sender, parcel)
        self._count_events(len(numbers))

    def on_contribution(self, peer: SimulatedPeer, effect: Contribute, made: Contribution | NothingToPost) -> None:
        """A peer finished training: keep its measurements, or end the run if too few peers are left that can post."""
        if isinstance(made, Contribution):
            if peer.is_honest:  # results of traitors are not reported
                self.recorder.on_trained(peer, effect.round)
                self.recorder.evaluations.add(peer.number, effect.round, effect.phase, made)
            self._shortfalls.on_contribution(peer.number, effect.round, made)
            return
        assert peer.node is not None, "only a running peer trains"
        head = peer.node.head
        is_over = self._shortfalls.on_nothing(peer.number, head, effect, made)
        # A liar that aggregates may have thrown away what it was to work on; others close its phase empty.
        if is_over and (peer.is_honest or len(head.roster.contributors) > 1) and not self._done.done():
            self._done.set_exception(made)

    def _on_refusal(self, peer: SimulatedPeer, node: Node, post: Post, error: Invalid) -> None:
        """A peer refused a post. Its own one, which its user's method does not take, is as none."""
        if post.sender != peer.public_key:
            return
        reason = OwnCodeFailed(f"peer {peer.number}, round {post.round}: all others would refuse its post: {error}")
        if self._shortfalls.on_nothing(peer.number, node.head, post, reason) and not self._done.done():
            self._done.set_exception(reason)

    def on_trained(self, peer: SimulatedPeer, round_number: int, made: Contribution | NothingToPost) -> None:
        """A peer's client has done what it was asked, whether or not the peer is still up to post it."""
        if peer.is_honest and isinstance(made, Contribution):
            self.recorder.evaluations.note_model(peer.number, round_number, made)

    def on_stop(self, peer: SimulatedPeer, head: State) -> None:
        """A peer's node has ended itself: a member whose key was replaced goes on with its next one."""
        if peer.is_honest and head.records:
            self.loop.call_later(0.0, self._membership.take_keys, head)

    def on_expected(self, peer: SimulatedPeer, state: State) -> None:
        """A peer sees where the vote will lead: those that will be drawn there may train meanwhile."""
        if self._shifts is not None:
            self._shifts.foresee(peer, state)

    def on_head(self, peer: SimulatedPeer, old: State) -> None:
        """A peer's head moved: check it, and close the round if this peer is the first to close it."""
        assert peer.node is not None, "only a running peer's head moves"
        head = peer.node.head
        self._trace.note(peer.number, "head", head.block_hash)
        if not peer.is_honest:
            return
        self.checker.on_head(peer)
        self.recorder.on_head(peer, old, head)
        if head.height > self.progress.height:
            self.progress.height, self.progress.head = head.height, head.block_hash.hex()[:12]
            self.progress.round = min(head.round, head.rules.rounds)
            if head.round > old.round and head.round - 1 > len(self.recorder.rows):
                self._close_round(peer)
        if head.records:
            self.loop.call_later(0.0, self._membership.on_head, peer, head)
        if self._shifts is not None and head.height >= self.progress.height:
            self.loop.call_later(0.0, self._shifts.change, peer)

    def _count_events(self, number: int) -> None:
        """Count events of nodes, and end the run if that was asked for meanwhile."""
        self._events += number
        if self._events >= self._next_look:
            self._next_look = self._events + EVENTS_PER_LOOK
            self._pages.look()
        if self._stop is not None and self._stop.is_set() and not self._done.done():
            self._done.set_exception(Interrupted())

    def _on_link(self, number: int, neighbour: int, connected: bool) -> None:
        """A connection was cut or made: a ban began or ended, or another link replaced the cut one."""
        peer, member = self.peers[number], self.peers[neighbour].public_key
        if peer.node is not None:
            peer.handle(PeersConnected((member,)) if connected else PeersDisconnected((member,)))

    # course of the run

    def _look(self) -> None:
        """Once a virtual second, and when the last one is over, note the progress, and end the run if it is over."""
        now_s, rows = self.loop.time(), self.recorder.rows
        up = [self.peers[number] for number in sorted(self.network.attached)]
        running = [peer.node for peer in up if peer.node is not None and peer.is_honest]
        self.progress.virtual_s, self.progress.peers_up = now_s, len(running)
        self.progress.phase = self._phase()
        heads = {node.head.block_hash for node in running}
        finished = bool(running) and all(node.head.finished for node in running)
        last_closed_s = rows[-1].virtual_s if rows else 0.0
        if not finished and self.checker.finals.state.finished and now_s - last_closed_s > SETTLE_S:
            self._leave_behind(up)
        if finished and not self._faults.leave_repairs(now_s) and (len(heads) == 1 or now_s - last_closed_s > SETTLE_S):
            self._done.set_result(None)
        elif now_s >= self._scenario.max_virtual_s:
            self._done.set_exception(ScenarioError(self._why_late(running)))
        else:
            self.loop.call_at(min(now_s + 1.0, self._scenario.max_virtual_s), self._look)

    def _why_late(self, running: Sequence[Node]) -> str:
        final, scenario = self.checker.finals.state, self._scenario
        reached = max((node.head.round for node in running), default=final.round)
        late = f"round {reached} of {scenario.last_round} was still open"
        if not running:
            late += ", and no peer up,"
        if final.finished:
            late = f"some peers had not closed the last round, {final.rules.rounds},"
        return f"{late} after {self.loop.time():.0f} virtual s; max_virtual_s allows {scenario.max_virtual_s:g}"

    def _leave_behind(self, peers: Sequence[SimulatedPeer]) -> None:
        """Stop members that were taken out while they were cut off: nobody tells them that the last round is closed. A
        newcomer that has no place by then ends the run."""
        head = self.checker.finals.state
        for peer in [peer for peer in peers if peer.is_honest and head.records]:
            seat = head.roster.seats.get(peer.public_key)
            if seat is None and not self._done.done():
                late = f"peer {peer.number} has no place yet: no block of this run has counted its join"
                self._done.set_exception(ScenarioError(late))
            elif seat is not None and head.records[seat].standing.is_for_good:
                peer.crash()

    def _phase(self) -> str:
        round_number = self.progress.round
        spans = [self.recorder.span(number, round_number) for number in sorted(self.network.attached)]
        if not spans or all(span.trained is None for span in spans):
            return "training"
        if any(span.voted is not None for span in spans):
            return "voting"
        return "mining" if any(span.mining is not None for span in spans) else "exchange"

    def _on_fault(self, fault: Fault) -> None:
        self._trace.note(0, fault.kind, repr(fault.peers).encode())
        if fault.kind == "restart":
            for number in fault.peers:
                self.checker.on_crash(number)

    def _on_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception") or RuntimeError(context["message"])
        if not self._done.done():
            self._done.set_exception(error)

    # measurements

    def _close_round(self, peer: SimulatedPeer) -> None:
        assert peer.node is not None, "only a running peer closes a round"
        row = self.recorder.close_round(peer.node.ledger, self.network.sent_bytes, self.network.received_bytes)
        self._record.close_round(row.round, self._trace.write(), self.recorder.times_of(row.round - 1, row.round))
        self.progress.last = row
        self.progress.not_taken = sum(known.not_taken for known in self.recorder.rows)
        self._on_round(row, self.witness)

    def _measure_final_models(self) -> None:
        """Have every peer that counts receive the last round's knowledge, and measure that model, too, if any is."""
        if not (self._scenario.evaluate_every or self._scenario.test_every):
            return
        state, with_test = self.checker.finals.state, self._scenario.test_every > 0
        rounds, roster, amended = state.rules.rounds, state.roster, state.amendments.hyperparameters
        dedicated = range(len(self._genesis.participants), self._founders)  # its place, if there is one
        clients = [peer for peer in self.peers if peer.number not in dedicated]
        counting = [peer for peer in clients if roster.is_active(peer.public_key)]
        running = [peer for peer in counting if peer.node is not None and peer.is_honest]
        known = {peer.number: peer.node.knowledge() for peer in running if peer.node is not None}
        jobs = {
            number: self._executor.evaluate_received(
                number, rounds + 1, knowledge, evaluate_test=with_test, amended=amended
            )
            for number, knowledge in known.items()
            if knowledge is not None
        }
        for number, job in jobs.items():
            self.recorder.evaluations.add_received(number, rounds + 1, job.result())

    def _outcome(self) -> Outcome:
        reference = next(peer.node for peer in self.peers if peer.node is not None and peer.is_honest)
        rows, head = self.recorder.rows, reference.head
        for row in rows:
            self.recorder.fill(row, reference.ledger)
        inclusion, mined = self.checker.inclusion, Counter(chain.from_iterable(self.recorder.mined.values()))
        return Outcome(
            rows=rows,
            timeline=self.recorder.timeline,
            seen=self.witness.blocks(),
            tip=head.block_hash.hex(),
            knowledge_root=head.knowledge_root.hex(),
            trace_hash=self._trace.write().hex(),
            virtual_s=self.loop.time(),
            events=self._events,
            violations=self.checker.violations,
            not_posted=self._shortfalls.not_posted,
            skipped=self._shortfalls.skipped,
            knowledge=bytes(reference.knowledge() or b""),
            last_local=self.recorder.evaluations.last_local,
            members=self.recorder.evaluations.members(),
            links=self.network.links(),
            totals={
                "blocks": sum(row.blocks for row in rows),
                "not_taken": sum(row.not_taken for row in rows),
                "refused": sum(row.refused for row in rows),
                "attempts_max": max((row.attempts for row in rows), default=0),
                "mined": [mined[number] for number in range(len(self.peers))],
                "height": head.height,
                "bytes_sent_per_peer": sum(self.network.sent_bytes) // len(self.peers),
                "messages_sent": {kind.__name__: counts for kind, counts in self.network.sent_kinds.items()},
                "posts_sent": inclusion.posts_due,
                "posts_lost": inclusion.posts_lost,
                "convicted": sorted(head.roster.seats[crime.culprit] for crime in head.convicted),
                "bans": sorted(self.network.bans),
            },
        )


def _check_of(event: Contributed, effects: Sequence[Effect]) -> CheckPost | None:
    """The check of the post that a node makes of a contribution. The post has its hash, and some are large."""
    checks = [effect.job for effect in effects if isinstance(effect, Compute) and isinstance(effect.job, CheckPost)]
    return next((check for check in checks if check.payload is event.payload), None)
