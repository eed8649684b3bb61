"""The service: a node on a real network. It feeds the state machine, and carries out what it asks for, in order.

The node decides at once and without I/O. What it promises is stored before it is sent: effects wait in one queue, and
one task carries them out.
"""

import logging
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup

from fedchain.chain.block import Header
from fedchain.chain.exceptions import Refused
from fedchain.chain.genesis import Genesis
from fedchain.chain.state import phase_rule
from fedchain.chain.storage.store import Record, Storage
from fedchain.crypto.address import address
from fedchain.crypto.keys import PrivateKey, PublicKey
from fedchain.network.messages import GetContent, Message
from fedchain.network.network import Network
from fedchain.network.verdict import Verdict, verdict
from fedchain.node.core.answers import Request
from fedchain.node.core.checks import Verification
from fedchain.node.core.effects import Blame, Contribute, Effect, Mine, Persist, Publish, Refuse, Retain, Send
from fedchain.node.core.events import Contributed, Event, MessageReceived, Mined, PeerConnected, PeerDisconnected, Tick
from fedchain.node.core.node import Node
from fedchain.node.workers.supervisor import MiningWorker, Trained, WorkerFailed

log = logging.getLogger("fedchain.node")

TICK_S = 1.0
"""Seconds between a node's ticks."""

STORE_PAUSE_S = 0.1
"""How long a record that nothing waits for may wait for others, to share the one fsync that storing them costs."""

WAITING_MAX = 256
"""Effects that may wait, most often for the disk, before questions are left unanswered; each answer holds a chunk."""


class Training(Protocol):
    """Whatever computes this peer's contributions."""

    async def prepare(self) -> None:
        """Be ready to train; raises WorkerFailed."""

    async def contribute(self, phase: str, round_number: int, knowledge: bytes) -> Trained:
        """Compute one; raises WorkerFailed."""


@dataclass(slots=True)
class Activity:
    """What a running node is doing, for people and metrics."""

    training: bool = False
    """Whether a contribution is being computed."""
    mining_since_s: float | None = None
    """When the search for a nonce began, by the monotonic clock; None: nothing is being mined."""
    accuracy: float | None = None
    """Of the model after its last training, on the peer's own test set; a fraction."""
    training_s: float = 0.0
    """Seconds spent training, in all."""
    mined_s: float = 0.0
    """Seconds of the searches that ended, in all."""
    validation_s: float = 0.0
    """Seconds spent in the state machine, in all."""
    failure: str = ""
    """Why the last contribution failed; empty when it did not."""
    refused: dict[str, int] = field(default_factory=dict)
    """Messages that were not taken, by the name of the error."""

    def mining_s(self) -> float:
        """Seconds spent searching nonces, in all."""
        return self.mined_s + self.current_mining_s()

    def current_mining_s(self) -> float:
        """Seconds spent in the search that goes on now; 0 if none does."""
        return 0.0 if self.mining_since_s is None else time.monotonic() - self.mining_since_s

    def mine(self, is_mining: bool) -> None:
        """A search has begun or ended."""
        self.mined_s = self.mining_s()
        self.mining_since_s = time.monotonic() if is_mining else None


class Service:
    """Drives one node until it is cancelled.

    Args:
        genesis: what the federation agreed on.
        key: this peer's key.
        verification: the costly checks.
        store: what survives a restart.
        network: what carries messages.
        training: what computes contributions.
        on_head: told when the head has moved.
        blame: told who sent something that was held for later and turned out to break a rule, and which.
    """

    def __init__(
        self,
        genesis: Genesis,
        key: PrivateKey,
        verification: Verification,
        store: Storage,
        network: Network,
        training: Training,
        on_head: Callable[[], None] = lambda: None,
        blame: Callable[[PublicKey, str], None] = lambda peer, reason: None,
    ) -> None:
        self.activity = Activity()
        self.peers: set[PublicKey] = set()
        self.node = Node(genesis, key, verification, store.records(), store.content, store.content_part)
        self._genesis, self._me, self._store, self._network = genesis, key.public_key, store, network
        self._training, self._on_head, self._blame = training, on_head, blame
        self._miner = MiningWorker(genesis.proof_function, self._on_sealed)
        self._waiting: deque[Effect] = deque()
        self._unstored: list[Record] = []
        self._wake = anyio.Event()
        self._tasks: TaskGroup | None = None
        self._turn = anyio.Lock()

    async def run(self) -> None:
        """Run until cancelled."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            self._network.attach(self._on_message)
            tasks.start_soon(self._miner.run)
            tasks.start_soon(self._carry_out_all)
            while True:
                self.handle(Tick())
                await anyio.sleep(TICK_S)

    def on_peer(self, peer: PublicKey, connected: bool) -> None:
        """A peer came or went."""
        (self.peers.add if connected else self.peers.discard)(peer)
        self.handle(PeerConnected(peer) if connected else PeerDisconnected(peer))

    def handle(self, event: Event) -> Verdict:
        """Feed the node; the verdict is about a received message."""
        begun, old = time.perf_counter(), self.node.head
        effects = self.node.handle(event, now_ms())
        self.activity.validation_s += time.perf_counter() - begun
        refused: Refused | None = None
        for effect in effects:
            if isinstance(effect, Refuse | Blame):
                self._count(effect.error)
                refused = effect.error if isinstance(effect, Refuse) else refused
            if isinstance(effect, Blame) and effect.peer != self._me and verdict(effect.error) is Verdict.REJECT:
                self._blame(effect.peer, f"{type(effect.error).__name__}: {effect.error}")
        self._waiting.extend(effects)
        self._wake.set()
        if self._miner.stop_unless(self.node.is_mining):
            self.activity.mine(False)
        if self.node.head is not old:
            self._log_head()
            self._on_head()
        return verdict(refused)

    def status(self) -> dict[str, Any]:
        """Head, round, phase, peers, and what this node is waiting for and why; plain values."""
        head = self.node.head
        missing = sorted(address(member) for member in self.node.waiting_for())
        return {
            "chain_id": self._genesis.chain_id.hex(),
            "address": address(self._me),
            "height": head.height,
            "head": head.block_hash.hex(),
            "knowledge_root": head.knowledge_root.hex(),
            "round": min(head.round, self._genesis.rounds) if head.finished else head.round,
            "phase": phase_rule(self._genesis, head).name,
            "finished": head.finished,
            "peers": sorted(address(peer) for peer in self.peers),
            "members": len(self._genesis.members),
            "training": self.activity.training,
            "mining": self.activity.mining_since_s is not None,
            "accuracy": self.activity.accuracy,
            "waiting_for": self._waiting_for(missing),
            "missing_posts": missing,
            "refused": dict(self.activity.refused),
        }

    def _waiting_for(self, missing: list[str]) -> str:
        if self.node.head.finished:
            return "nothing, it is finished"
        if target := self.node.catching_up_to():
            return f"the blocks up to height {target}"
        if self.activity.failure:
            return f"the next phase: {self.activity.failure}"
        if self.activity.training:
            return "its own training"
        if missing:
            return f"{len(missing)} posts, or the phase's timeout"
        return "a nonce" if self.activity.mining_since_s is not None else "votes for a block"

    # effects

    def _on_message(self, peer: PublicKey, message: Message) -> Verdict:
        if len(self._waiting) >= WAITING_MAX and isinstance(message, Request | GetContent):
            return Verdict.IGNORE  # the answer would wait too; whoever needs it asks again
        return self.handle(MessageReceived(peer, message))

    def _on_sealed(self, header: Header) -> None:
        log.info("mined height=%d seconds=%.3f", header.height, self.activity.current_mining_s())
        self.activity.mine(False)
        self.handle(Mined(header))

    async def _carry_out_all(self) -> None:
        """Carry out effects in order; what is to be stored is stored together, off the loop, before what follows."""
        try:
            while True:
                await self._gather()
                await self._store_gathered()
                if self._waiting:
                    await self._carry_out(self._waiting.popleft())
        except anyio.get_cancelled_exc_class():
            for effect in self._waiting:
                self._unstored.extend(effect.records if isinstance(effect, Persist) else ())
            with anyio.CancelScope(shield=True):
                await self._store_gathered()
            raise

    async def _gather(self) -> None:
        """Take records off the queue until another effect follows them, or none does for a while.

        Every vote and block of a peer is a record. Twenty members' votes, one commit each, keep a disk busy for as
        long as the rest of a round takes.
        """
        with anyio.CancelScope() as patience:
            while True:
                while self._waiting and isinstance(self._waiting[0], Persist):
                    self._unstored.extend(self._waiting.popleft().records)  # type: ignore[union-attr]
                if self._waiting:
                    return
                if self._unstored:
                    patience.deadline = min(patience.deadline, anyio.current_time() + STORE_PAUSE_S)
                self._wake = anyio.Event()
                await self._wake.wait()

    async def _store_gathered(self) -> None:
        if self._unstored:
            records, self._unstored = self._unstored, []
            await to_thread.run_sync(self._store.append, records)

    async def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Retain(needed):
                await to_thread.run_sync(self._store.retain, needed)
            case Publish(message):
                self._network.publish(message)
            case Send(peer, message):
                self._network.send(peer, message)
            case Mine(header):
                if self.node.is_mining(header):  # while it waited here, the head may have moved
                    log.info("mining height=%d round=%d", header.height, header.round)
                    self.activity.mine(True)
                    self._miner.mine(header)
            case Contribute():
                assert self._tasks is not None, "effects are carried out while the service runs"
                self._tasks.start_soon(self._contribute, effect)

    async def _contribute(self, effect: Contribute) -> None:
        async with self._turn:
            with suppress(WorkerFailed):  # training will fail for the same reason, and say so
                await self._training.prepare()
            head = self.node.head  # the process took its time to start; meanwhile the others told how far they are
            if (effect.round, effect.phase) == (head.round, head.phase) and not head.finished:
                await self._train(effect)
            else:  # who catches up passes phases faster than anyone could train; the node hears that this one is done
                self.handle(Contributed(effect.round, effect.phase, b""))

    async def _train(self, effect: Contribute) -> None:
        begun = time.perf_counter()
        self.activity.training, self.activity.failure = True, ""
        try:
            trained = await self._training.contribute(effect.phase_name, effect.round, effect.knowledge)
        except WorkerFailed as error:
            self.activity.failure = f"round {effect.round}: {error}"
            log.error("nothing is contributed to round %d: %s", effect.round, error)
            return
        finally:
            took_s = time.perf_counter() - begun
            self.activity.training = False
            self.activity.training_s += took_s
        self.activity.accuracy = trained.measured["local_accuracy"]
        log.info(
            "trained round=%d steps=%d accuracy=%.4f seconds=%.3f",
            effect.round,
            trained.steps,
            self.activity.accuracy,
            took_s,
        )
        self.handle(Contributed(effect.round, effect.phase, trained.payload))

    def _count(self, error: Refused) -> None:
        name = type(error).__name__
        self.activity.refused[name] = self.activity.refused.get(name, 0) + 1
        log.debug("refused %s: %s", name, error)

    def _log_head(self) -> None:
        head = self.node.head
        log.info(
            "head height=%d hash=%s round=%d finished=%s",
            head.height,
            head.block_hash.hex()[:16],
            head.round,
            str(head.finished).lower(),
        )


def now_ms() -> int:
    """Milliseconds since the Unix epoch."""
    return time.time_ns() // 1_000_000
