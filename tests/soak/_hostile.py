"""A hostile member over sockets: the core of a real node, and one of the simulator's behaviours before its wire."""

import json
import logging
import os
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, cast

import trio

from fedchain.chain.genesis import Genesis
from fedchain.chain.storage.store import MemoryStore
from fedchain.crypto.keys import PrivateKey, PublicKey
from fedchain.network.libp2p.network import Libp2pNetwork, open_network
from fedchain.network.messages import Message
from fedchain.network.session import SESSION_SIZE
from fedchain.network.verdict import Verdict, verdict
from fedchain.node.core.checks import Checks
from fedchain.node.core.effects import Compute, Contribute, Effect, Persist, Publish, Refuse, Retain, Send, Wake
from fedchain.node.core.events import (
    Computed,
    Contributed,
    Event,
    MessageReceived,
    Moment,
    PeersConnected,
    PeersDisconnected,
    Tick,
)
from fedchain.node.core.jobs import KeepPart
from fedchain.node.core.node import Node
from fedchain.node.core.parts import Conduct
from fedchain.node.core.reception import TICK_MS
from fedchain.node.founding.task import rules_of
from fedchain.simulator.adversaries.adversary import Adversary, Coalition
from fedchain.simulator.adversaries.part_liars import PartThief
from fedchain.simulator.adversaries.registry import build_adversary
from fedchain.simulator.engine.clock import VirtualTimeLoop
from fedchain.simulator.engine.peer import SimulatedPeer


class Clock:
    """As much of the simulator's loop as behaviours use, on the clock of the wall."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery, self._begun = nursery, trio.current_time()

    def time(self) -> float:
        return trio.current_time() - self._begun

    def now_ms(self) -> int:
        return round(1_000 * self.time())

    def call_later(self, seconds: float, action: Callable[..., object], *arguments: Any) -> None:
        self._nursery.start_soon(self._after, seconds, action, arguments)

    async def _after(self, seconds: float, action: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        await trio.sleep(seconds)
        action(*arguments)


@dataclass
class HostilePeer:
    """A peer as a behaviour knows it. It does not train, it posts what somebody else posted; it does not mine."""

    number: int
    key: PrivateKey
    node: Node
    checks: Checks
    storage: MemoryStore
    behaviour: Adversary
    network: Libp2pNetwork
    clock: Clock
    sent: int = 0
    """Messages that went out."""
    _events: deque[Event] = field(default_factory=deque)
    _is_busy: bool = False

    @property
    def public_key(self) -> PublicKey:
        return self.key.public_key

    @property
    def stolen(self) -> int:
        """Bytes of parts that it may not read."""
        return self.behaviour.stolen if isinstance(self.behaviour, PartThief) else 0

    def clock_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def receive(self, sender: PublicKey, message: Message) -> Verdict:
        """Take a message; what the core refuses is not passed on."""
        refused = self.handle(MessageReceived(sender, message))
        return Verdict.ACCEPT if refused is None else verdict(refused)

    def watch(self, peer: PublicKey, is_connected: bool) -> None:
        self.handle(PeersConnected((peer,)) if is_connected else PeersDisconnected((peer,)))

    def handle(self, event: Event) -> Any:
        """Let the core take an event, or what the behaviour makes of it."""
        self._events.append(event)
        if self._is_busy:
            return None
        self._is_busy, refused = True, None
        try:
            while self._events:
                for told in self.behaviour.hear(self._events.popleft()):
                    for effect in self.node.handle(told, Moment(self.clock.now_ms(), self.clock_ms())):
                        refused = effect.error if isinstance(effect, Refuse) else refused
                        for meant in self.behaviour.say(effect):
                            self.carry_out(meant)
        finally:
            self._is_busy = False
        return refused

    def carry_out(self, effect: Effect) -> None:
        """Do what the core or the behaviour asks for."""
        match effect:
            case Persist(records):
                self.storage.append(records)
            case Retain(needed):
                self.storage.retain(needed)
            case Publish(message):
                self.sent += 1
                self.network.publish(message)
            case Send(peer, message):
                self.sent += 1
                self.network.send(peer, message)
            case Compute(job) if not isinstance(job, KeepPart):
                self._events.append(Computed(job, self.checks.run(job)))
            case Contribute():
                self.clock.call_later(1.0, self._copy, effect)
            case Wake(at_ms):
                self.clock.call_later(max(0.0, at_ms / 1_000 - self.clock.time()), self.handle, Tick())
            case _:
                pass  # nobody is told, blamed or stopped here

    def _copy(self, asked: Contribute) -> None:
        posts = [post for post in self.node.open_posts() if (post.round, post.phase) == (asked.round, asked.phase)]
        payload = self.node.content(posts[0].payload_hash) if posts else None
        if payload is not None:
            self.handle(Contributed(asked.round, asked.phase, payload))

    async def run(self) -> None:
        """Tick until cancelled, and say each time how much was sent, how far the core follows, and what was stolen."""
        while True:
            print(json.dumps([self.sent, self.node.head.height, self.stolen]), flush=True)
            self.handle(Tick())
            self.behaviour.act()
            await trio.sleep(TICK_MS / 1_000)


async def main() -> None:
    """Attack as told by the argument, until killed."""
    logging.disable(logging.CRITICAL)
    told = json.loads(sys.argv[1])
    genesis, key = Genesis.decode(bytes.fromhex(told["genesis"])), PrivateKey(bytes.fromhex(told["seed"]))
    number, rules = genesis.index[key.public_key], rules_of(genesis)
    checks, storage = Checks(genesis, rules), MemoryStore()
    honest = tuple(other for other in range(len(genesis.members)) if other != number)
    async with (
        open_network(key, genesis.chain_id, genesis.members, bootstrap=told["places"]) as network,
        trio.open_nursery() as nursery,
    ):
        clock = Clock(nursery)
        coalition = Coalition(genesis, rules, cast(VirtualTimeLoop, clock), (key,), honest)
        behaviour = build_adversary(told["behaviour"], coalition, Random(told["draw"]), told["parameters"])
        node = Node(
            genesis, key, checks, storage, conduct=Conduct(guard=behaviour.guard), session=os.urandom(SESSION_SIZE)
        )
        peer = HostilePeer(number, key, node, checks, storage, behaviour, network, clock)
        behaviour.begin(cast(SimulatedPeer, peer))
        network.watch(peer.watch)
        network.attach(peer.receive)
        await peer.run()


if __name__ == "__main__":
    trio.run(main)
