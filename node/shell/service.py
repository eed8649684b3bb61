"""The service: a node on a real network. It feeds the state machine, and carries out its effects in order.

The node decides at once and without I/O. Long work leaves the loop: disk access goes to a thread, training, mining and
signatures of replayed blocks go to processes, and large aggregates and slow checks go to a thread of their own.
"""

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, Protocol

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from fedchain.chain.block import Header
from fedchain.chain.exceptions import Refused
from fedchain.chain.genesis import Genesis
from fedchain.chain.membership.change import Change, ChangeKind
from fedchain.chain.state import State, phase_rule
from fedchain.chain.storage.store import Record, Storage
from fedchain.crypto.address import address
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PrivateKey, PublicKey
from fedchain.files.spool import path_of
from fedchain.learning.exceptions import NothingToPost
from fedchain.learning.executors.executor import Answer
from fedchain.learning.executors.executor import Question as TrainingQuestion
from fedchain.learning.payload.part_folder import PartFolder
from fedchain.network.messages import GossipMessage, Message, Question
from fedchain.network.network import Network
from fedchain.network.session import SESSION_SIZE
from fedchain.network.verdict import Verdict, verdict
from fedchain.node.config import NodeConfigError
from fedchain.node.core.checks import Checks
from fedchain.node.core.effects import Compute, Contribute, Effect, Refuse
from fedchain.node.core.events import (
    ChangeSubmitted,
    Computed,
    Contributed,
    Event,
    MessageReceived,
    Mined,
    Moment,
    NotContributed,
    PeersConnected,
    PeersDisconnected,
    Tick,
)
from fedchain.node.core.jobs import CheckPost, Job, KeepPart, Recompute, Result, VerifySignatures
from fedchain.node.core.node import Node
from fedchain.node.core.notices import Notice, Skipped
from fedchain.node.core.parts import Conduct
from fedchain.node.core.voting.journal import Journal
from fedchain.node.operating.member_numbers import number_members
from fedchain.node.operating.report import Links, log_notice, report
from fedchain.node.operating.standing import standstill
from fedchain.node.shell.activity import Activity
from fedchain.node.shell.outbox import EffectQueue
from fedchain.node.shell.parts import run_part
from fedchain.node.shell.sightings import Sightings, observe
from fedchain.node.shell.timeline import SeenBlock, TimelineFile, TrainingResult
from fedchain.node.shell.verbs import Verbs
from fedchain.node.workers.supervisor import MiningWorker, VerifyingWorker, WorkerFailed

log = logging.getLogger("fedchain.node")

GUESTS_MAX = 64
"""Most peers that are let in though they are no members at our head: members vouch for them, and some of these lie."""

TICK_S = 1.0
"""Seconds between a node's ticks."""

PROGRESS_S = 10.0
"""Seconds between log lines on the progress of a large post that is fetched."""

WAITING_MAX = 256
"""Waiting effects, mostly for the disk, from which on questions are left unanswered; each answer holds a chunk."""

SMALL_JOB_SIZE = 256 * 2**10
"""Most bytes of payloads that a job may read on the loop; a larger or slow job would keep others waiting."""


class Training(Protocol):
    """Computes this peer's contributions."""

    async def prepare(self) -> None:
        """Prepare for training; raises WorkerFailed."""

    async def ask(self, question: TrainingQuestion) -> Answer:
        """Answer what this member is asked; raises WorkerFailed."""

    async def foresee(self, question: TrainingQuestion) -> None:
        """This may be the next question: begin with it while there is no other. Nothing has to come of it."""


class SigningJournal(Protocol):
    """The record of signed statements, beside the key."""

    def content(self) -> bytes | None:
        """The content that was written last; None before the first write."""

    def write(self, content: bytes) -> None:
        """Replace the content; it is durable on return."""


class NodeStopped(NodeConfigError):
    """The node must not go on; the message states the reason and the remedy."""


@dataclass(frozen=True, slots=True)
class Disk:
    """The files of a node on its disk."""

    store: Storage
    """Records that survive a restart."""
    journal: SigningJournal
    """The statements that this key signed last."""
    parts: PartFolder | None = None
    """The folder of parts that posts list by reference; the trainer shares it."""
    timeline: TimelineFile | None = None
    """The file for observations of each block; None for no file."""


@dataclass(frozen=True, slots=True)
class Contact:
    """How a node reaches the others."""

    network: Network
    """Carries messages."""
    links: Links | None = None
    """The network's knowledge of its connections."""
    blame: Callable[[PublicKey, str], None] = lambda member, reason: None
    """Called with a member that signed something that breaks a rule, and the rule."""


class Service:
    """Drives one node until it is cancelled.

    Args:
        genesis: the rules that the federation agreed on.
        key: this peer's key.
        checks: the costly checks.
        disk: what the node keeps.
        contact: how it reaches the others.
        training: computes contributions.
        conduct: the operator's choices for the node; older blocks and missing contents are always fetched.
    """

    def __init__(
        self,
        genesis: Genesis,
        key: PrivateKey,
        checks: Checks,
        disk: Disk,
        contact: Contact,
        training: Training,
        conduct: Conduct = Conduct(),  # noqa: B008 - frozen
    ) -> None:
        self.activity = Activity()
        self.genesis, self.me = genesis, key.public_key
        self.peers: set[PublicKey] = set()
        written = disk.journal.content()
        said = Journal() if written is None else Journal.decode(written)
        self.node = Node(
            genesis,
            key,
            checks,
            disk.store,
            said,
            conduct=replace(conduct, parts=disk.parts, backfills=True, refills=True),
            session=os.urandom(SESSION_SIZE),
        )
        self._checks, self._disk, self._contact, self._training = checks, disk, contact, training
        self._miner = MiningWorker(genesis.proof_function, self._on_sealed)
        self._verifier = VerifyingWorker(lambda job, result: self.handle(Computed(job, result)))
        verbs = Verbs(
            store=self._commit,
            retain=lambda needed: to_thread.run_sync(disk.store.retain, needed),
            keep_parts=lambda needed: to_thread.run_sync(self._keep_parts, needed),
            publish=contact.network.publish,
            send=contact.network.send,
            train=self._ask_for,
            mine=self._mine,
            compute=self._compute,
            wake=partial(self._start, self._tick_at),
            blame=self._blame,
            tell=self._tell,
            stop=_stop,
        )
        self._queue = EffectQueue(self._commit, verbs.carry_out)
        self._jobs: deque[Job] = deque()
        self._job_arrived = anyio.Event()
        self._head_moved = anyio.Event()
        self.asks: Callable[[], str] = lambda: ""
        """How the request for a place stands, for a peer that has none yet."""
        self._tasks: TaskGroup | None = None
        self._guests: dict[str, tuple[PublicKey, ...]] = {}  # let in though no members at our head, by the reason
        self._joining: tuple[PublicKey, ...] = ()  # keys that ask for a place, for each of which a member vouches
        self._training_turn = anyio.Lock()
        self._asked_for: Contribute | None = None  # what waits for its turn: one holds a whole knowledge
        self._progress: dict[Hash, tuple[int, float]] = {}  # of posts on their way: bytes when logged last, and when
        self._foreseen: tuple[int, int, Hash] | None = None  # phase and knowledge that it was last trained ahead for
        self._sightings = Sightings(self.node.head.height + 1, now().ms)

    async def run(self) -> None:
        """Run until cancelled. Raises NodeStopped if going on would contradict statements of this key elsewhere."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            self._track()
            self._contact.network.attach(self._on_message)
            tasks.start_soon(self._miner.run)
            tasks.start_soon(self._queue.run)
            tasks.start_soon(self._compute_all)
            tasks.start_soon(self._verifier.run)
            while True:
                self.handle(Tick())
                self.activity.stand(stands=standstill(self) is not None)
                self._log_progress()
                await anyio.sleep(TICK_S)

    def on_peer(self, peer: PublicKey, connected: bool) -> None:
        """A peer was connected or disconnected."""
        (self.peers.add if connected else self.peers.discard)(peer)
        self.handle(PeersConnected((peer,)) if connected else PeersDisconnected((peer,)))

    def submit(self, change: Change, *, approves: bool) -> Refused | None:
        """Have the node take a change of the membership from its operator; returns why it was refused."""
        return self._take(ChangeSubmitted(change, approves))

    def admit(self, reason: str, peers: Sequence[PublicKey]) -> None:
        """Let these peers connect, though they are no members at our head, in place of others for the same reason."""
        self._guests[reason] = tuple(peers)
        self._track()

    def handle(self, event: Event) -> Verdict:
        """Pass an event to the node; returns the verdict on a received message."""
        return verdict(self._take(event))

    def _take(self, event: Event) -> Refused | None:
        """Pass an event to the node; returns why what it brought was refused."""
        begun, old = time.perf_counter(), self.node.head
        refused: Refused | None = None
        events = deque([event])
        while events:
            handled, moment = events.popleft(), now()
            effects = self.node.handle(handled, moment)
            number = self.node.head.roster.seats.get(self.me)
            observe(self._sightings_of, number, self.node, handled, effects, moment.ms)
            for effect in effects:
                if isinstance(effect, Refuse):
                    self.activity.refuse(effect.error)
                    refused = effect.error
                elif isinstance(effect, Compute) and not self._leaves_loop(effect.job):
                    events.append(Computed(effect.job, self._checks.run(effect.job)))
            self._queue.put(effect for effect in effects if not self._is_done(effect))
        self._foresee()
        self.activity.validation_s += time.perf_counter() - begun
        if self._miner.stop_unless(self.node.is_mining):
            self.activity.mine(False)
        kinds = (ChangeKind.JOIN, ChangeKind.RECOVER)
        joining = tuple(change.key_afterwards for change in self.node.open_changes() if change.kind in kinds)
        has_moved = self.node.head is not old
        if joining != self._joining or (has_moved and _reachable(self.node.head) != _reachable(old)):
            self._joining = joining
            self._track()
        if has_moved:
            self._log_head()
            self._end_sightings()
            self._head_moved.set()
            self._head_moved = anyio.Event()
        return refused

    def _track(self) -> None:
        """Tell the network, and the log, the members at the head."""
        roster = self.node.head.roster
        strangers = [*chain(*self._guests.values(), self._joining)][:GUESTS_MAX]
        number_members({address(member): number for member, number in roster.seats.items()})
        self._contact.network.track(self.node.head.height, (*_reachable(self.node.head), *strangers))

    def _is_done(self, effect: Effect) -> bool:
        """Whether an effect was carried out at once, since it changes nothing that others see."""
        return isinstance(effect, Refuse) or (isinstance(effect, Compute) and not self._leaves_loop(effect.job))

    def _leaves_loop(self, job: Job) -> bool:
        """Whether a job would keep the loop waiting, because of its bytes, the disk, or its method's check."""
        if isinstance(job, VerifySignatures):
            return (os.cpu_count() or 1) > 1
        return isinstance(job, KeepPart) or _size(job) > SMALL_JOB_SIZE or self._checks.is_slow(job)

    async def next_head(self) -> None:
        """Wait until the head moves."""
        await self._head_moved.wait()

    def status(self) -> dict[str, Any]:
        """State of this node; plain values."""
        return report(self, self._contact.links)

    def method_failure(self) -> str:
        """Why the learning method's own code failed at the open height; empty if it did not."""
        return self._checks.failures.after(self.node.head)

    def store_size_bytes(self) -> int:
        """Bytes of the chain on disk."""
        return self._disk.store.size_bytes()

    # effects

    def _on_message(self, peer: PublicKey, message: Message) -> Verdict:
        if len(self._queue) >= WAITING_MAX and isinstance(message, Question):
            return Verdict.IGNORE  # the answer would wait too; a peer that needs it asks again
        old, found = self.node.head, self.handle(MessageReceived(peer, message))
        brings_forward = found is Verdict.ACCEPT and self.node.head is not old
        return Verdict.PROGRESS if brings_forward and not isinstance(message, GossipMessage) else found

    def _on_sealed(self, header: Header) -> None:
        took_s = self.activity.current_mining_s()
        log.info("mined height=%(height)d seconds=%(seconds).3f", {"height": header.height, "seconds": took_s})
        self.activity.mine(False)
        self.handle(Mined(header))

    def _keep_parts(self, needed: frozenset[Hash]) -> None:
        if self._disk.parts is not None:
            self._disk.parts.keep_only(needed)

    async def _commit(self, records: Sequence[Record], journal: Journal | None) -> None:
        """Store records, and then write the journal, off the loop."""
        if records or journal is not None:
            await to_thread.run_sync(self._store_all, records, journal)

    def _store_all(self, records: Sequence[Record], journal: Journal | None) -> None:
        if records:
            self._disk.store.append(records)
        if journal is not None:
            self._disk.journal.write(journal.encode())

    def _mine(self, header: Header) -> None:
        if self.node.is_mining(header):  # the head may have moved while the effect waited
            log.info("mining height=%(height)d round=%(round)d", {"height": header.height, "round": header.round})
            self.activity.mine(True)
            self._miner.mine(header)

    def _compute(self, job: Job) -> None:
        if isinstance(job, VerifySignatures):
            self._verifier.verify(job)
        else:
            self._jobs.append(job)
            self._job_arrived.set()

    def _blame(self, member: PublicKey, error: Refused) -> None:
        self.activity.refuse(error)
        if member != self.me:
            self._contact.blame(member, f"{type(error).__name__}: {error}")

    def _tell(self, notice: Notice) -> None:
        """Tell the operator."""
        self.activity.notice(notice)
        log_notice(notice, self.node.head.roster.seats)

    def _start(self, task: Callable[..., object], argument: object) -> None:
        assert self._tasks is not None, "effects are carried out while the service runs"
        self._tasks.start_soon(task, argument)  # type: ignore[arg-type]

    async def _tick_at(self, at_ms: int) -> None:
        """A timeout ends before the next tick."""
        await anyio.sleep(max(0.0, at_ms / 1000 - time.monotonic()) + 0.001)
        self.handle(Tick())

    async def _compute_all(self) -> None:
        """Do long jobs one after the other, off the loop."""
        while True:
            while self._jobs:
                job = self._jobs.popleft()
                result = await to_thread.run_sync(self._run, job)
                self.handle(Computed(job, result))
            self._job_arrived = anyio.Event()
            await self._job_arrived.wait()

    def _run(self, job: Job) -> Result:
        """Do a job."""
        if isinstance(job, KeepPart):
            assert self._disk.parts is not None, "only a node with a folder for parts fetches any"
            return run_part(self._checks, self._disk.parts, job)
        return self._checks.run(job)

    def _ask_for(self, effect: Contribute) -> None:
        """Have a contribution computed in its turn. The newest one alone waits: the node has given up those before."""
        is_next, self._asked_for = self._asked_for is None, effect
        if is_next:
            assert self._tasks is not None, "effects are carried out while the service runs"
            self._tasks.start_soon(self._contribute)

    async def _contribute(self) -> None:
        async with self._training_turn:
            with suppress(WorkerFailed):  # training will fail for the same reason, and report it
                await self._training.prepare()
            effect, self._asked_for = self._asked_for, None
            assert effect is not None, "this task takes it"
            head = self.node.head  # the process took its time to start; meanwhile the head may have moved
            if (effect.round, effect.phase) == (head.round, head.phase) and not head.finished:
                await self._train(effect)
            else:  # a peer that catches up passes phases faster than it could train
                self.handle(NotContributed(effect.round, effect.phase, ""))

    def _foresee(self) -> None:
        """Train on what a candidate would leave behind while votes travel. Nothing is said of it until it is asked.

        Not on large knowledge: its file goes with the candidate, and what is set aside of a model takes another one.
        """
        state = self.node.foreseen()
        if state is None or self._tasks is None:
            return
        key = state.round, state.phase, state.knowledge_root
        knowledge = self.node.content(state.knowledge_root)
        if key != self._foreseen and knowledge is not None and path_of(knowledge) is None:
            self._foreseen = key
            name = phase_rule(self.genesis, state).name
            self._start(self._training.foresee, self._question(name, state.round, knowledge, state))

    def _question(self, phase_name: str, round_number: int, knowledge: bytes, state: State) -> TrainingQuestion:
        """The question to this member for a phase that is open at a state."""
        roster, amended = state.roster, state.amendments.hyperparameters
        return TrainingQuestion(
            roster.seats[self.me], phase_name, round_number, knowledge, clients=roster.clients, amended=amended
        )

    async def _train(self, effect: Contribute) -> None:
        begun = time.perf_counter()
        self.activity.training = True
        try:
            question = self._question(effect.phase_name, effect.round, effect.knowledge, self.node.head)
            trained = await self._training.ask(question)
            if isinstance(trained, NothingToPost):
                self._fail(effect, trained, is_fault=False)
                return
        except WorkerFailed as error:
            self._fail(effect, error, is_fault=True)
            return
        finally:
            took_s = time.perf_counter() - begun
            self.activity.training = False
            self.activity.training_s += took_s
        if (effect.round, effect.phase) == (self.node.head.round, self.node.head.phase):
            self._sightings.train(round(1000 * took_s))
        accuracy, epsilon = None if trained.local is None else trained.local.local_accuracy, trained.epsilon
        if accuracy is not None or epsilon is not None:
            self._sightings.measure(TrainingResult(effect.round, accuracy, epsilon))
        self.activity.failure, self.activity.is_failing = "", False
        self.activity.accuracy = self.activity.accuracy if accuracy is None else accuracy
        self.activity.epsilon = self.activity.epsilon if epsilon is None else epsilon
        self.activity.trained_round = effect.round
        pattern = "trained round=%(round)d steps=%(steps)d seconds=%(seconds).3f"
        named = {"round": effect.round, "steps": trained.steps, "seconds": took_s}
        for name, value in (("accuracy", self.activity.accuracy), ("epsilon", self.activity.epsilon)):
            if value is not None:  # None before the first phase that trains
                pattern, named[name] = f"{pattern} {name}=%({name}).4f", value
        log.info(pattern, named)
        for place, reason in trained.skipped:
            self._tell(Skipped(effect.round, self.node.head.roster.members[place], reason))
        self.handle(Contributed(effect.round, effect.phase, trained.payload))

    def _fail(self, effect: Contribute, reason: Exception, *, is_fault: bool) -> None:
        """This member posts nothing in the phase."""
        self.activity.fail(f"round {effect.round}: {reason}", is_fault=is_fault)
        self.handle(NotContributed(effect.round, effect.phase, str(reason)))

    def _sightings_of(self, height: int) -> Sightings | None:
        return self._sightings if height == self._sightings.height else None

    def _end_sightings(self) -> None:
        """The head has moved: note the observations of its block, and watch for the next one."""
        head, now_ms, sightings = self.node.head, now().ms, self._sightings
        seen = sightings.end(head.block_hash, now_ms) if head.height == sightings.height else None
        self._sightings = Sightings(head.height + 1, now_ms)
        if seen is not None and self._disk.timeline is not None:
            self._start(self._note_seen, seen)

    async def _note_seen(self, seen: SeenBlock) -> None:
        assert self._disk.timeline is not None
        await to_thread.run_sync(self._disk.timeline.add, seen)

    def _log_progress(self) -> None:
        """Log how much has come of posts that take long, now and then."""
        shown, self._progress = self._progress, {}
        for post, arrived in self.node.arriving():
            before, since_s = shown.get(post.payload_hash, (0, time.monotonic()))
            if time.monotonic() - since_s >= PROGRESS_S and arrived != before:
                named = {
                    "round": post.round,
                    "peer": self.node.head.roster.seats.get(post.sender, -1),
                    "arrived": arrived,
                    "size": post.payload_size,
                }
                log.info("fetching round=%(round)d peer=%(peer)d bytes=%(arrived)d of=%(size)d", named)
                before, since_s = arrived, time.monotonic()
            self._progress[post.payload_hash] = before, since_s

    def _log_head(self) -> None:
        head = self.node.head
        log.info(
            "head height=%(height)d hash=%(hash)s round=%(round)d posts=%(posts)d finished=%(finished)s",
            {
                "height": head.height,
                "hash": head.block_hash.hex()[:16],
                "round": head.rules.rounds if head.finished else head.round,
                "posts": head.posts,
                "finished": head.finished,
            },
        )


def _reachable(head: State) -> tuple[PublicKey, ...]:
    """Members that may be connected at a head, and keys that were replaced lately: their nodes learn of it."""
    return (*head.roster.reachable, *head.roster.successors)


def _stop(reason: str) -> None:
    raise NodeStopped(reason)


def now() -> Moment:
    """The current time, on both clocks."""
    return Moment(time.monotonic_ns() // 1_000_000, time.time_ns() // 1_000_000)


def _size(job: CheckPost | Recompute) -> int:
    """Bytes of payloads that a job reads."""
    return len(job.payload) if isinstance(job, CheckPost) else sum(map(len, job.contents.values()))
