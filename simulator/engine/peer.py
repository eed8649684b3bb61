"""One simulated peer: the shell that feeds a node from virtual time and carries out its effects.

The node is the one that runs on a real network. Training takes α·E and a hash 1 ⁄ hash rate virtual seconds; their
results are real: trained models, and nonces that meet the target.
"""

import asyncio
import math
import random
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from fedchain.chain.block import Header
from fedchain.chain.difficulty import target_from_bits
from fedchain.chain.exceptions import Refused
from fedchain.chain.genesis import Genesis
from fedchain.chain.proof_of_work import NONCE_MAX
from fedchain.chain.state import State, phase_rule
from fedchain.chain.storage.store import Contents, Final, Record, Storage
from fedchain.crypto.hashing import Hash, sha256
from fedchain.crypto.keys import PrivateKey, PublicKey
from fedchain.learning.exceptions import NothingToPost
from fedchain.learning.executors.executor import Answer, Executor, Job, Question
from fedchain.learning.payload.part_folder import LinkedPartFolder
from fedchain.learning.worker.contribution import Contribution
from fedchain.network.messages import Message, PostMessage
from fedchain.network.session import SESSION_SIZE
from fedchain.network.verdict import Verdict, verdict
from fedchain.node.core import jobs
from fedchain.node.core.checks import Checks
from fedchain.node.core.contents.content_cache import Copies
from fedchain.node.core.effects import Contribute, Effect, Refuse
from fedchain.node.core.events import (
    Computed,
    Contributed,
    Event,
    MessageReceived,
    Mined,
    Moment,
    NotContributed,
    PeersConnected,
    Tick,
)
from fedchain.node.core.node import Node
from fedchain.node.core.notices import Notice
from fedchain.node.core.parts import Conduct
from fedchain.node.core.posts import Arrival, GoodPosts, taken_in_lulls
from fedchain.node.core.reception import TICK_MS
from fedchain.node.core.voting.journal import Journal
from fedchain.node.core.voting.twins import KeyGuard
from fedchain.node.shell.parts import run_part
from fedchain.node.shell.verbs import Verbs
from fedchain.simulator.engine.clock import VirtualTimeLoop, WallClock
from fedchain.simulator.engine.network import SimulatedNetwork
from fedchain.simulator.engine.sealing import Seal

NOTICES_MAX = 64
"""Number of a peer's newest notices that are kept."""


class Observer(Protocol):
    """Watches the peers."""

    def on_event(self, peer: "SimulatedPeer", event: Event, effects: Sequence[Effect]) -> None:
        """A node has handled an event; its ``effects`` are not carried out yet."""

    def on_post(self, numbers: Sequence[int], arrival: Arrival) -> None:
        """Nodes of honest peers have taken a post, from which nothing else followed."""

    def on_head(self, peer: "SimulatedPeer", old: State) -> None:
        """A node's head moved from ``old``."""

    def on_stop(self, peer: "SimulatedPeer", head: State) -> None:
        """A node has ended itself at this head."""

    def on_expected(self, peer: "SimulatedPeer", state: State) -> None:
        """A node expects the vote to lead to another state than before."""

    def on_contribution(self, peer: "SimulatedPeer", effect: Contribute, made: Contribution | NothingToPost) -> None:
        """A peer finished its contribution to a phase, or has nothing to post in it."""

    def on_trained(self, peer: "SimulatedPeer", round_number: int, made: Contribution | NothingToPost) -> None:
        """A peer's client has done what it was asked, whether or not the peer is still up to post it."""


class Behaviour(Protocol):
    """Behaviour of a peer that does not follow the protocol: it stands between a node and its shell."""

    guard: KeyGuard
    """Replaces the node's watch for other processes with its key."""

    def begin(self, peer: "SimulatedPeer") -> None:
        """The peer has started, or started again."""

    def hear(self, event: Event) -> Sequence[Event]:
        """Events that the node receives in place of ``event``."""

    def say(self, effect: Effect) -> Sequence[Effect]:
        """Effects that are carried out in place of ``effect``."""

    def act(self) -> None:
        """Act on a tick: called once a second."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Speed of a peer's computation, in virtual time."""

    iteration_s: float
    """Seconds of one local step (DFPL: α)."""
    hashes_per_s: float
    """Hashes per second of a peer whose hash rate is 1."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Objects and settings that all peers of a simulation share."""

    loop: VirtualTimeLoop
    network: SimulatedNetwork
    genesis: Genesis
    executor: Executor
    seal: Seal
    pace: Pace
    good_posts: GoodPosts
    """Posts that peers found good."""
    copies: Copies
    """Contents that peers hold, as one object each."""
    evaluates: Callable[[int], bool]
    """Whether models are measured on the whole test set in a round."""
    observer: Observer
    trains_ahead: bool
    """Whether peers train on a candidate's knowledge while it is voted on."""
    restart: Callable[["SimulatedPeer"], None]
    """Starts a peer that is down."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine of one peer: its clock, its storage and its luck."""

    storage: Storage
    """Survives a crash, as the journal does."""
    clock: WallClock
    draw: random.Random
    """Source of randomness."""
    parts: LinkedPartFolder | None = None
    """Parts that posts list by reference, as far as they are here; None if posts have no parts."""
    hash_rate: float = 1.0
    """Its hash rate, as a multiple of the usual one."""


class SimulatedPeer:
    """A node, its storage, its journal, its clock and its computing power. It can crash and come back.

    Args:
        number: place among the members.
        key: its private key.
        checks: its costly checks, which others may share.
        machine: what its node runs on.
        around: objects and settings that all peers share.
        behaviour: its deviation from the protocol; None if it follows the protocol.
    """

    def __init__(
        self,
        number: int,
        key: PrivateKey,
        checks: Checks,
        machine: Machine,
        around: Surroundings,
        behaviour: Behaviour | None = None,
    ) -> None:
        self.number, self.key, self.storage, self.behaviour = number, key, machine.storage, behaviour
        self.is_honest = behaviour is None
        """Whether it follows the protocol."""
        self.public_key = key.public_key
        """Public key by which the others know it."""
        self._first_key = key.public_key
        self.node: Node | None = None
        self.journal = Journal()
        self.notices: deque[Notice] = deque(maxlen=NOTICES_MAX)
        self.stopped = ""
        """Reason for which the node stopped itself; empty if it did not."""
        self.is_down = False
        """Whether it has crashed: nobody wakes it before it is restarted."""
        self.up_since = 0.0
        self.slowness = 1.0
        self.kill_pending = False
        """Whether the peer crashes between two effects of the next event that has several."""
        self.checks, self._clock, self._draw, self._around = checks, machine.clock, machine.draw, around
        self._hashes_per_s = around.pace.hashes_per_s * machine.hash_rate
        self._parts, self._parts_needed = machine.parts, frozenset[Hash]()
        self._foreseen: tuple[int, int, Hash] | None = None  # phase and knowledge that it was last trained ahead for
        self._expected = b""  # root of the state that the vote is expected to lead to
        self.under_way: list[tuple[int, Job[Answer]]] = []
        """Contributions that are being computed, which may still read parts: their rounds and jobs, as asked for."""
        self._endpoint = around.network.endpoint(number)
        self._events: deque[Event] = deque()
        self._is_busy = False
        self._life = 0  # results of work begun before a crash belong to an earlier life and are dropped
        self._mining_job = 0
        self._next_keys: tuple[PublicKey, ...] = ()  # that members are going to take, as the network was told
        self._invited_at: State | None = None  # head of the member that invited it
        self._alarm: asyncio.TimerHandle | None = None
        self._verbs = Verbs(
            store=self._store,
            retain=self._retain,
            keep_parts=self._keep_parts,
            publish=self._endpoint.publish,
            send=self._endpoint.send,
            train=self._contribute,
            mine=self._mine,
            compute=self._compute,
            wake=self._set_alarm,
            blame=self._blame,
            tell=self.notices.append,
            stop=self._stop,
        )

    def clock_ms(self) -> int:
        """Reading of its wall clock, in milliseconds since the Unix epoch."""
        return self._clock.read_ms(self._around.loop.now_ms())

    def start(self, *, has_listened: bool = False) -> None:
        """Start or restart the node from its storage and journal; ``has_listened``: see ``Conduct``."""
        if self.node is not None or self.stopped:
            return
        around, self.is_down = self._around, False
        self.up_since = around.loop.time()
        self.node = Node(
            around.genesis,
            self.key,
            self.checks,
            self.storage,
            self.journal,
            conduct=Conduct(
                copies=around.copies,
                good_posts=around.good_posts,
                parts=self._parts,
                has_listened=has_listened,
                neighbours=len(around.network.neighbours(self.number)),
                foresees=around.trains_ahead,
                guard=None if self.behaviour is None else self.behaviour.guard,
            ),
            session=sha256(b"session %d of %d" % (self._life, self.number))[:SESSION_SIZE],
        )
        self._track(self.node)
        self._endpoint.attach(self._receive, self.node.notes if self.is_honest else None)
        if self.behaviour is not None:
            self.behaviour.begin(self)
        neighbours = tuple(map(around.network.key_of, around.network.neighbours(self.number)))
        for peers in (neighbours[:1], neighbours[1:]):  # a node begins its work with the first one
            if peers:
                self.handle(PeersConnected(peers))
        around.loop.call_later(TICK_MS / 1_000 * self._draw.random(), self._tick, self._life)

    def restart(self) -> None:
        """Come back from a crash."""
        self._around.restart(self)

    def come(self, head: State) -> None:
        """Start as a newcomer that a member at ``head`` has invited: an invitation says where the members are."""
        self._invited_at = head
        self.start()

    def take_key(self, key: PrivateKey) -> None:
        """Go on with another key, and a journal of its own, as an operator restarts a node; storage and place stay."""
        was_up = self.node is not None or bool(self.stopped)
        self.crash()
        network = self._around.network
        network.leave(self.number)
        self.key, self.public_key = key, key.public_key
        self.journal, self.stopped = Journal(), ""
        network.rename(self.number, key.public_key)
        if was_up:
            self.start()

    def wake_beside(self, other: "SimulatedPeer") -> None:
        """Start where another peer stands, as if this one had followed the chain.

        If the other one still lacks its head's knowledge, this one catches up as after any absence.
        """
        has_followed = not self.stopped and self.copy_head(other)
        self.start(has_listened=has_followed)

    def copy_head(self, other: "SimulatedPeer") -> bool:
        """Have the head of another peer in the storage, with its knowledge. False: the other one lacks some of it."""
        assert other.node is not None, "only a running peer stands anywhere"
        settled = other.node.ledger.settled
        if settled is None or other.node.knowledge() is None:
            return False
        roots = sorted(other.node.head.knowledge_roots)  # what late posts are made from, too
        known = {root: data for root in roots if (data := other.node.content(root)) is not None}
        self.storage.append((Contents(known), Final(settled.block, settled.certificate, settled.state)))
        return True

    def sleep(self) -> None:
        """Stop, and drop payloads and knowledge, which can be fetched again."""
        self._end()
        self.storage.retain(())

    def crash(self) -> None:
        """Lose everything but storage and journal, at once, and be down until it is started again."""
        self.is_down = True
        self._end()

    def kill(self) -> None:
        """Crash between two effects of the next event that has several. One that sleeps handles none: it is down."""
        if self.node is None:
            self.is_down = True
        else:
            self.kill_pending = True

    def _end(self) -> None:
        self._life += 1
        self.node = None
        self.kill_pending = False
        self._events.clear()
        self._set_alarm(None)
        self._endpoint.attach(None)

    def handle(self, event: Event) -> Verdict:
        """Feed the node an event and carry out its effects; the verdict is about a received message.

        An immediate consequence, such as a finished check, is an event of its own and queues behind waiting ones.
        """
        if self._is_busy:
            self._events.append(event)
            return Verdict.ACCEPT
        node = self.node
        if node is None or not self.is_honest:
            return self._handle(partial(self._tell, event))
        old, effects = node.head, node.handle(event, self._now())
        if not effects:  # most events have none
            self._around.observer.on_event(self, event, effects)
            return Verdict.ACCEPT
        return self._handle(partial(self._follow, event, old, effects))

    def _handle(self, begin: Callable[[], Refused | None]) -> Verdict:
        """Call ``begin``, then handle the events that follow from it."""
        self._is_busy = True
        try:
            refused = begin()
            while self._events:
                self._tell(self._events.popleft())
        finally:
            self._is_busy = False
        return Verdict.ACCEPT if refused is None else verdict(refused)

    def _tell(self, event: Event) -> Refused | None:
        """Feed the node an event, or those that its behaviour makes of it; return its refusal of the event itself."""
        if self.behaviour is None:
            return self._feed(event)
        refused: Refused | None = None
        for told in self.behaviour.hear(event):
            error = self._feed(told)
            refused = error if told is event else refused
        return refused

    def _feed(self, event: Event) -> Refused | None:
        """Feed the node one event; return its refusal."""
        node = self.node
        if node is None:
            return None  # it crashed on an event before this one
        old, effects = node.head, node.handle(event, self._now())
        if not effects:
            self._around.observer.on_event(self, event, effects)
            return None
        return self._follow(event, old, effects)

    def _now(self) -> Moment:
        return self._clock.moment(self._around.loop.now_ms())

    def _follow(self, event: Event, old: State, effects: Sequence[Effect]) -> Refused | None:
        """Carry out a node's effects and return its refusal of the event. ``old`` was its head."""
        node = self.node
        assert node is not None, "it has just taken the event"
        is_killed = self.kill_pending and len(effects) > 1
        if is_killed:
            effects = effects[: self._draw.randrange(len(effects))]
        self._around.observer.on_event(self, event, effects)
        refused: Refused | None = None
        for effect in effects:
            if isinstance(effect, Refuse):
                refused = effect.error
            for meant in (effect,) if self.behaviour is None else self.behaviour.say(effect):
                self.carry_out(meant)
            if self.node is None:
                if self.stopped:
                    self._around.observer.on_stop(self, node.head)
                return None
        if is_killed:
            self.crash()
        elif node.head is not old:
            if node.head.roster.reachable != old.roster.reachable:
                self._track(node)
            self._around.observer.on_head(self, old)
        self._foresee()
        return refused

    def _track(self, node: Node) -> None:
        """Tell the network the members at the head, and the keys that some of them are going to take."""
        self._next_keys = others = _next_keys(node)
        if self._invited_at is not None and node.head.height < self._invited_at.height:
            others = *others, *self._invited_at.roster.reachable
        reachable = node.head.roster.reachable
        self._endpoint.track(node.head.height, (*reachable, *others) if others else reachable)

    def carry_out(self, effect: Effect) -> None:
        """Carry out an effect of the node or its behaviour."""
        self._verbs.carry_out(effect)

    def _store(self, records: Sequence[Record], journal: Journal | None) -> None:
        if records:
            self.storage.append(records)
        if journal is not None:
            self.journal = journal

    def _retain(self, needed: Collection[Hash]) -> None:
        self.storage.retain(needed)

    def _keep_parts(self, needed: frozenset[Hash]) -> None:
        self._parts_needed = needed
        self._drop_parts()

    def _blame(self, member: PublicKey, error: Refused) -> None:
        if member != self.public_key:
            self._endpoint.blame(member, error)

    def _stop(self, reason: str) -> None:
        self.stopped = reason
        self.crash()

    def _receive(self, sender: PublicKey, message: Message) -> Verdict:
        """Take a message as :meth:`handle` does. A post in a lull takes one step, as do those that come behind it."""
        node = self.node if self.is_honest else None
        if type(message) is PostMessage and node is not None:
            lull = node.lull()
            arrival = Arrival(message.post, message.payload, self._around.loop.now_ms())
            if taken_in_lulls(arrival, (0,), 0, (lull,)):
                self._around.observer.on_post((self.number,), arrival)
                self._endpoint.rest(lull)
                return Verdict.ACCEPT
        return self.handle(MessageReceived(sender, message))

    def _compute(self, job: jobs.Job) -> None:
        if isinstance(job, jobs.KeepPart):
            assert self._parts is not None, "only a peer with a folder for parts fetches any"
            self._events.append(Computed(job, run_part(self.checks, self._parts, job)))
        else:
            self._events.append(Computed(job, self.checks.run(job)))

    def _drop_parts(self) -> None:
        """Drop parts that nothing lists any more, unless training, which runs ahead of virtual time, may read them."""
        if self._parts is not None and not self.under_way:
            self._parts.keep_only(self._parts_needed)

    def _tick(self, life: int) -> None:
        if life == self._life:
            if self.node is not None and _next_keys(self.node) != self._next_keys:
                self._track(self.node)
            self.handle(Tick())
            if self.behaviour is not None and life == self._life:
                self.behaviour.act()
            self._around.loop.call_later(TICK_MS / 1_000, self._tick, life)

    def _set_alarm(self, at_ms: int | None) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        loop = self._around.loop
        self._alarm = None if at_ms is None else loop.call_at(at_ms / 1000, self._wake)

    def _wake(self) -> None:
        self._alarm = None
        if self.node is not None:
            self.handle(Tick())

    def _contribute(self, effect: Contribute) -> None:
        """Have a worker process train at once, and take the result when its virtual time has come."""
        around, node = self._around, self.node
        assert node is not None, "it asks for this"
        question = self._question(effect.phase_name, effect.round, effect.knowledge, node.head)
        job = around.executor.ask(question)
        self.under_way.append((effect.round, job))
        steps = around.executor.planned_steps(self.number, effect.phase_name, effect.round, question.amended)
        duration_s = around.pace.iteration_s * steps * self.slowness
        around.loop.call_later(duration_s, self._contributed, self._life, effect, job)

    def _foresee(self) -> None:
        """Look ahead of the votes, for those that sleep, too."""
        node = self.node
        state = None if node is None else node.expected()
        if node is None or state is None:
            return
        if state.root != self._expected:
            self._expected = state.root
            self._around.observer.on_expected(self, state)
        if self.public_key not in state.roster.contributors or _task(state) == self._foreseen:
            return
        if node.foreseen() is not None and (knowledge := node.content(state.knowledge_root)) is not None:
            self.foresee(state, knowledge)

    def foresee(self, state: State, knowledge: bytes) -> None:
        """Have a worker process train for the phase that a state opens, if there is time. Nothing depends on it."""
        if _task(state) != self._foreseen:
            self._foreseen = _task(state)
            name = phase_rule(self._around.genesis, state).name
            self._around.executor.foresee(self._question(name, state.round, knowledge, state))

    def _question(self, phase_name: str, round_number: int, knowledge: bytes, state: State) -> Question:
        """The question to this peer's client for a phase that is open at a state."""
        evaluate_test = self._around.evaluates(round_number)
        clients, amended = state.roster.clients, state.amendments.hyperparameters
        key = b"" if self.public_key == self._first_key else self.public_key
        return Question(self.number, phase_name, round_number, knowledge, evaluate_test, clients, amended, key)

    def _contributed(self, life: int, effect: Contribute, job: Job[Answer]) -> None:
        """Take the result of training: wait for it in real time, never in virtual time, even if it is dropped then."""
        observer = self._around.observer
        answer = job.result()
        self.under_way.remove((effect.round, job))
        observer.on_trained(self, effect.round, answer)
        if self._parts is not None and isinstance(answer, Contribution) and answer.parts:
            self._parts.adopt(answer.parts)
        if life != self._life:
            return
        observer.on_contribution(self, effect, answer)
        if isinstance(answer, Contribution):
            self.handle(Contributed(effect.round, effect.phase, answer.payload))
        else:
            self.handle(NotContributed(effect.round, effect.phase, str(answer)))

    def _mine(self, header: Header) -> None:
        self._mining_job += 1
        job = self._mining_job
        self.mine(header, self._on_sealed, partial(self._wants, job, header))

    def _on_sealed(self, header: Header) -> None:
        self.handle(Mined(header))

    def _wants(self, job: int, header: Header) -> bool:
        return job == self._mining_job and self.node is not None and self.node.is_mining(header)

    def mine(self, header: Header, on_sealed: Callable[[Header], object], is_wanted: Callable[[], bool]) -> None:
        """Draw the time that a block takes, and search a real nonce when it has passed, if the block is still wanted.

        The time is drawn from an exponential law. A whole number of hashes would put all peers on one clock: with
        many peers and few hashes per block, several would find blocks at the same moment.
        """
        success = (target_from_bits(header.bits) + 1) / 2**256
        attempts = -math.log(1.0 - self._draw.random()) / success
        duration_s = attempts / self._hashes_per_s * self.slowness
        self._around.loop.call_later(duration_s, self._seal, self._life, header, on_sealed, is_wanted)

    def _seal(
        self, life: int, header: Header, on_sealed: Callable[[Header], object], is_wanted: Callable[[], bool]
    ) -> None:
        """Search the nonce, unless the block comes too late to be of use."""
        if life == self._life and is_wanted():
            on_sealed(self.search(header))

    def search(self, header: Header) -> Header:
        """Seal a header at once, in no virtual time."""
        return self._around.seal(header, self._draw.randrange(NONCE_MAX))


def _next_keys(node: Node) -> tuple[PublicKey, ...]:
    """Keys that members are going to take, or to get: their nodes are let in, as a real node lets them in."""
    return tuple(change.key for change in node.open_changes() if change.kind.gives_key)


def _task(state: State) -> tuple[int, int, Hash]:
    """The phase that a state opens, and the knowledge from which contributions to it are made."""
    return state.round, state.phase, state.knowledge_root
