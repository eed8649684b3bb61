"""One simulated peer: the shell that feeds a node from virtual time and carries out its effects.

The node is the one that runs on a real network. Training takes α·E and a hash 1 ⁄ hash rate virtual seconds; what
they yield is real: trained models, and nonces that meet the target.
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from fedchain.chain.fork_choice import BlockTree

from fedchain.chain.block import Header
from fedchain.chain.difficulty import target_from_bits
from fedchain.chain.exceptions import Refused
from fedchain.chain.genesis import Genesis
from fedchain.chain.proof_of_work import NONCE_MAX, search_nonce
from fedchain.chain.state import State
from fedchain.chain.storage.store import Storage
from fedchain.crypto.keys import PrivateKey, PublicKey
from fedchain.learning.learner import Contribution
from fedchain.network.messages import Message
from fedchain.network.verdict import Verdict, verdict
from fedchain.node.core.checks import Verification
from fedchain.node.core.content_cache import Intern
from fedchain.node.core.effects import Contribute, Effect, Mine, Persist, Publish, Refuse, Retain, Send
from fedchain.node.core.events import Contributed, Event, MessageReceived, Mined, PeerConnected, Tick
from fedchain.node.core.node import Node
from fedchain.simulator.engine.clock import VirtualTimeLoop
from fedchain.simulator.engine.network import SimulatedNetwork
from fedchain.simulator.engine.training_pool import Compute, Job

TICK_S = 1.0
"""Virtual seconds between a node's ticks."""

SEARCH_SLICE = 65_536
"""Nonces tried per call while a real nonce is searched."""


class Observer(Protocol):
    """Whoever watches the peers."""

    def on_event(self, peer: "SimulatedPeer", event: Event, effects: list[Effect]) -> None:
        """A node took an event; ``effects`` were not carried out yet."""

    def on_head(self, peer: "SimulatedPeer", old: State) -> None:
        """A node's head moved from ``old``."""

    def on_contribution(self, peer: "SimulatedPeer", round_number: int, contribution: Contribution) -> None:
        """A peer finished its part of a phase."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a peer computes, in virtual time."""

    iteration_s: float
    """Seconds of one local step (DFPL: α)."""
    hashes_per_s: float
    """Hashes per second."""


class SimulatedPeer:
    """A node, its storage, its clock and its computing power. It can crash and come back."""

    def __init__(
        self,
        number: int,
        key: PrivateKey,
        genesis: Genesis,
        verification: Verification,
        storage: Storage,
        intern: Intern,
        *,
        loop: VirtualTimeLoop,
        network: SimulatedNetwork,
        compute: Compute,
        pace: Pace,
        draw: random.Random,
        evaluates: Callable[[int], bool],
        observer: Observer,
    ) -> None:
        self.number = number
        self.node: Node | None = None
        self.up_since = 0.0
        self.storage = storage
        self._intern = intern
        self.slowness = 1.0
        self._key, self._genesis, self._verification = key, genesis, verification
        self._loop, self._network, self._compute = loop, network, compute
        self._endpoint = network.endpoint(number)
        self._pace, self._draw, self._evaluates, self._observer = pace, draw, evaluates, observer
        self._life = 0  # results of work begun before a crash belong to an earlier life and are dropped
        self._mining_job = 0

    @property
    def public_key(self) -> PublicKey:
        """Who the peer is."""
        return self._key.public_key

    def start(self) -> None:
        """Start or restart the node from what it had persisted."""
        if self.node is not None:
            return
        self.up_since = self._loop.time()
        storage = self.storage
        self.node = Node(
            self._genesis,
            self._key,
            self._verification,
            storage.records(),
            storage.content,
            storage.content_part,
            self._intern,
        )
        self._endpoint.attach(self._receive)
        for neighbour in self._network.neighbours(self.number):
            self.handle(PeerConnected(self._genesis.members[neighbour]))
        self._loop.call_later(TICK_S * self._draw.random(), self._tick, self._life)

    def sleep(self) -> None:
        """Stop, and keep only what must not be lost: payloads and knowledge can be fetched again."""
        self.crash()
        self.storage.retain(())

    def crash(self) -> None:
        """Lose everything but the storage, in the middle of whatever is going on."""
        self._life += 1
        self.node = None
        self._endpoint.attach(None)

    def handle(self, event: Event) -> Verdict:
        """Feed the node and carry out what it asks for; the verdict is about a received message."""
        node = self.node
        assert node is not None, "a crashed peer receives nothing"
        old = node.head
        effects = node.handle(event, self._loop.now_ms())
        self._observer.on_event(self, event, effects)
        refused: Refused | None = None
        for effect in effects:
            if isinstance(effect, Refuse):
                refused = effect.error
            else:
                self._carry_out(effect)
        if node.head is not old:
            self._observer.on_head(self, old)
        return verdict(refused)

    def _receive(self, sender: PublicKey, message: Message) -> Verdict:
        return self.handle(MessageReceived(sender, message))

    def _tick(self, life: int) -> None:
        if life == self._life:
            self.handle(Tick())
            self._loop.call_later(TICK_S, self._tick, life)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Persist(records):
                self.storage.append(records)
            case Retain(needed):
                self.storage.retain(needed)
            case Publish(message):
                self._endpoint.publish(message)
            case Send(peer, message):
                self._endpoint.send(peer, message)
            case Contribute():
                self._contribute(effect)
            case Mine(header):
                self._mine(header)

    def _contribute(self, effect: Contribute) -> None:
        """Let a worker process train at once, and take the result when its virtual time has come."""
        job = self._compute.contribute(
            self.number,
            effect.phase_name,
            effect.round,
            effect.knowledge,
            evaluate_test=self._evaluates(effect.round),
        )
        steps = self._compute.planned_steps(self.number)
        duration_s = self._pace.iteration_s * steps * self.slowness
        self._loop.call_later(duration_s, self._contributed, self._life, effect, job)

    def _contributed(self, life: int, effect: Contribute, job: Job[Contribution]) -> None:
        contribution = job.result()  # waits in real time, never in virtual time; what is dropped is still waited for
        if life == self._life:
            self._observer.on_contribution(self, effect.round, contribution)
            self.handle(Contributed(effect.round, effect.phase, contribution.payload))

    def _mine(self, header: Header) -> None:
        """Draw how long the block will take, and search a real nonce when its time has come.

        The law is exponential: whole attempts would be a clock that all peers share, on which they find their blocks
        at once when the peers are many and the attempts behind a block few.
        """
        self._mining_job += 1
        success = (target_from_bits(header.bits) + 1) / 2**256
        attempts = -math.log(1.0 - self._draw.random()) / success
        duration_s = attempts / self._pace.hashes_per_s * self.slowness
        self._loop.call_later(duration_s, self._mined, self._life, self._mining_job, header)

    def _mined(self, life: int, job: int, header: Header) -> None:
        """Seal the header, if it is still wanted: nobody needs the nonces of blocks that came too late."""
        if life != self._life or job != self._mining_job or self.node is None or not self.node.is_mining(header):
            return
        header = replace(header, timestamp_ms=max(header.timestamp_ms, self._loop.now_ms()))
        start, sealed = self._draw.randrange(NONCE_MAX), None
        while sealed is None:
            sealed = search_nonce(self._genesis.proof_function, header, start, SEARCH_SLICE)
            start += SEARCH_SLICE
        self.handle(Mined(sealed))

    @property
    def tree(self) -> BlockTree | None:
        """The running node's view of the chain."""
        return None if self.node is None else self.node.tree
