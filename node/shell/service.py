"""The service: a node on a real network. It feeds the state machine, and carries out its effects in order.

The node decides at once and without I/O. Long work leaves the loop: disk access goes to a thread, training, mining and
signatures of replayed blocks go to processes, and large aggregates and slow checks go to a thread of their own.
"""

import logging
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ParamSpec

import anyio
from anyio.abc import TaskGroup

from fedchain.chain.block import Header
from fedchain.chain.exceptions import Refused
from fedchain.chain.genesis import Genesis
from fedchain.chain.membership.change import Change
from fedchain.crypto.keys import PrivateKey, PublicKey
from fedchain.network.messages import GossipMessage, Message, Question
from fedchain.network.network import Network
from fedchain.network.session import SESSION_SIZE
from fedchain.network.verdict import Verdict, verdict
from fedchain.node.config import NodeConfigError
from fedchain.node.core.checks import Checks
from fedchain.node.core.effects import Compute, Effect, Refuse
from fedchain.node.core.events import (
    ChangeSubmitted,
    Event,
    MessageReceived,
    Mined,
    Moment,
    PeersConnected,
    PeersDisconnected,
    Tick,
)
from fedchain.node.core.node import Node
from fedchain.node.core.notices import Notice
from fedchain.node.core.parts import Conduct
from fedchain.node.core.reception import TICK_MS
from fedchain.node.operating.report import Links, log_notice, report
from fedchain.node.operating.standing import standstill
from fedchain.node.shell.activity import Activity
from fedchain.node.shell.computing import Computing
from fedchain.node.shell.contributor import Contributor, Training
from fedchain.node.shell.disk import Disk
from fedchain.node.shell.guests import Guests
from fedchain.node.shell.lookout import Lookout
from fedchain.node.shell.outbox import EffectQueue
from fedchain.node.shell.progress import Arrivals, OwnStanding, Stalls, Standstills, log_head
from fedchain.node.shell.verbs import Verbs
from fedchain.node.workers.supervisor import MiningWorker

log = logging.getLogger("fedchain.node")

P = ParamSpec("P")

WAITING_MAX = 256
"""Waiting effects, mostly for the disk, from which on questions are left unanswered; each answer holds a chunk."""


class NodeStopped(NodeConfigError):
    """The node must not go on; the message states the reason and the remedy."""


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
        self.node = Node(
            genesis,
            key,
            checks,
            disk.store,
            disk.signed(),
            conduct=replace(conduct, parts=disk.parts, backfills=True, refills=True),
            session=os.urandom(SESSION_SIZE),
        )
        self._checks, self._disk, self._contact, self._training = checks, disk, contact, training
        self._guests = Guests(contact.network, self.node)
        self._lookout = Lookout(self.node, self.me, now().ms)
        self._standing = OwnStanding()
        self._miner = MiningWorker(genesis.proof_function, self._on_sealed)
        self._computing = Computing(checks, disk.parts, self.handle)
        self._contributor = Contributor(
            self.node, self.me, training, self.activity, self._lookout, self.handle, self._tell
        )
        commit = self._noted(disk.commit)
        verbs = Verbs(
            store=commit,
            retain=self._noted(disk.retain),
            keep_parts=self._noted(disk.keep_parts),
            publish=contact.network.publish,
            send=contact.network.send,
            train=partial(self._start, self._contributor.contribute),
            mine=self._mine,
            compute=self._computing.start,
            wake=partial(self._start, self._tick_at),
            blame=self._blame,
            tell=self._tell,
            stop=_stop,
        )
        self._queue = EffectQueue(commit, verbs.carry_out)
        self._head_moved = anyio.Event()
        self.asks: Callable[[], str] = lambda: ""
        """How the request for a place stands, for a peer that has none yet."""
        self._tasks: TaskGroup | None = None

    async def run(self) -> None:
        """Run until cancelled. Raises NodeStopped if going on would contradict statements of this key elsewhere."""
        arrivals, standstills, stalls = Arrivals(), Standstills(), Stalls()
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                self._guests.track()
                self._contact.network.attach(self._on_message)
                tasks.start_soon(self._miner.run)
                tasks.start_soon(self._queue.run)
                tasks.start_soon(self._computing.run)
                while True:
                    self.handle(Tick())
                    self.activity.stand(stands=(found := standstill(self)) is not None)
                    standstills.log(found, self.activity, self.node.head.roster.seats)
                    arrivals.log(self.node)
                    stalls.log(self.activity)
                    await anyio.sleep(TICK_MS / 1_000)
        finally:
            # Messages come until the network is closed, and nothing that they lead to would be carried out.
            self._contact.network.attach(lambda peer, message: Verdict.IGNORE)

    def on_peer(self, peer: PublicKey, connected: bool) -> None:
        """A peer was connected or disconnected."""
        (self.peers.add if connected else self.peers.discard)(peer)
        self.handle(PeersConnected((peer,)) if connected else PeersDisconnected((peer,)))

    def submit(self, change: Change, *, approves: bool) -> Refused | None:
        """Have the node take a change of the membership from its operator; returns why it was refused."""
        return self._take(ChangeSubmitted(change, approves))

    def admit(self, reason: str, peers: Sequence[PublicKey]) -> None:
        """Let these peers connect, though they are no members at our head, in place of others for the same reason."""
        self._guests.admit(reason, peers)

    def handle(self, event: Event) -> Verdict:
        """Pass an event to the node; returns the verdict on a received message."""
        return verdict(self._take(event))

    def _take(self, event: Event) -> Refused | None:
        """Pass an event to the node; returns why what it brought was refused."""
        begun, before = time.perf_counter(), self.node.head
        refused: Refused | None = None
        events = deque([event])
        while events:
            handled, moment = events.popleft(), now()
            effects = self.node.handle(handled, moment)
            self._lookout.on_event(handled, effects, moment.ms)
            later = list[Effect]()
            for effect in effects:
                if isinstance(effect, Refuse):
                    self.activity.refuse(effect.error)
                    refused = effect.error
                elif isinstance(effect, Compute) and not self._computing.leaves_loop(effect.job):
                    events.append(self._computing.run_at_once(effect.job))
                else:
                    later.append(effect)
            self._queue.put(later)
        if self._tasks is not None and (question := self._contributor.next_question()) is not None:
            self._start(self._training.foresee, question)
        self.activity.validation_s += time.perf_counter() - begun
        if self._miner.stop_unless(self.node.is_mining):
            self.activity.mine(False)
        self._guests.on_event(before)
        if self.node.head is not before:
            self._on_head()
        return refused

    def _on_head(self) -> None:
        log_head(self.node.head)
        self._standing.log(self.node.own_record())
        seen = self._lookout.on_head(now().ms)
        if seen is not None and self._disk.timeline is not None:
            self._start(self._disk.note_seen, seen)
        self._head_moved.set()
        self._head_moved = anyio.Event()

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

    # what comes in, and effects

    def _on_message(self, peer: PublicKey, message: Message) -> Verdict:
        if len(self._queue) >= WAITING_MAX and isinstance(message, Question):
            return Verdict.IGNORE  # the answer would wait too; a peer that needs it asks again
        before, found = self.node.head, self.handle(MessageReceived(peer, message))
        brings_forward = found is Verdict.ACCEPT and self.node.head is not before
        return Verdict.PROGRESS if brings_forward and not isinstance(message, GossipMessage) else found

    def _noted(self, write: Callable[P, Awaitable[None]]) -> Callable[P, Awaitable[None]]:
        """A write to the disk that is noted as long as it lasts."""

        async def noted(*arguments: P.args, **named: P.kwargs) -> None:
            with self.activity.writing():
                await write(*arguments, **named)

        return noted

    def _mine(self, header: Header) -> None:
        if self.node.is_mining(header):  # the head may have moved while the effect waited
            log.info("mining height=%(height)d round=%(round)d", {"height": header.height, "round": header.round})
            self.activity.mine(True)
            self._miner.mine(header)

    def _on_sealed(self, header: Header) -> None:
        took_s = self.activity.current_mining_s()
        log.info("mined height=%(height)d seconds=%(seconds).3f", {"height": header.height, "seconds": took_s})
        self.activity.mine(False)
        self.handle(Mined(header))

    def _blame(self, member: PublicKey, error: Refused) -> None:
        self.activity.refuse(error)
        if member != self.me:
            self._contact.blame(member, f"{type(error).__name__}: {error}")

    def _tell(self, notice: Notice) -> None:
        """Tell the operator."""
        self.activity.notice(notice)
        log_notice(notice, self.node.head.roster.seats)

    async def _tick_at(self, at_ms: int) -> None:
        """A timeout ends before the next tick."""
        await anyio.sleep(max(0.0, at_ms / 1000 - time.monotonic()) + 0.001)
        self.handle(Tick())

    def _start(self, task: Callable[..., object], argument: object) -> None:
        assert self._tasks is not None, "effects are carried out while the service runs"
        self._tasks.start_soon(task, argument)  # type: ignore[arg-type]


def _stop(reason: str) -> None:
    raise NodeStopped(reason)


def now() -> Moment:
    """The current time, on both clocks."""
    return Moment(time.monotonic_ns() // 1_000_000, time.time_ns() // 1_000_000)
