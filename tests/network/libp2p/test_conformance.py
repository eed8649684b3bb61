"""The real network keeps the promises of the interface: eight peers with four neighbours each, on loopback."""

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from fedchain.crypto.keys import PublicKey
from fedchain.network.libp2p.network import Libp2pNetwork
from fedchain.network.limits import Limits
from fedchain.network.messages import GossipMessage, Message
from fedchain.network.network import NONE_REPLACED, Network, Receiver
from fedchain.testing.networks import NetworkConformance, Wire
from tests.support.network.real import MEMBERS, TIMEOUT_S, meshed, peer, until

COUNT = 8
STEPS = (1, 3)
"""Peers that far apart, on a ring, are neighbours."""


LIMITS = Limits(peers_wanted=0, gossip_degree=6)
"""No neighbours but those, and gossip with each of them."""


class Proxy:
    """A network used from another thread than its own, or from its own."""

    def __init__(self, network: Libp2pNetwork, call: Callable[..., Any]) -> None:
        self._network, self._call = network, call

    def attach(self, receiver: Receiver) -> None:
        self._call(self._network.attach, receiver)

    def track(
        self, height: int, members: Collection[PublicKey], replaced: Mapping[PublicKey, PublicKey] = NONE_REPLACED
    ) -> None:
        self._call(self._network.track, height, members, replaced)

    def publish(self, message: GossipMessage) -> None:
        self._call(self._network.publish, message)

    def send(self, peer: PublicKey, message: Message) -> None:
        self._call(self._network.send, peer, message)


class Libp2pWire:
    """Peers under trio, in a thread of their own, because the suite is not asynchronous."""

    def __init__(self) -> None:
        self.members: list[PublicKey] = MEMBERS[:COUNT]
        self.is_whole = True
        self._networks: list[Libp2pNetwork] = []
        self._ready = threading.Event()
        self._thread = threading.Thread(target=trio.run, args=(self._main,), daemon=True)
        self._thread.start()
        assert self._ready.wait(3 * TIMEOUT_S)

    def network(self, number: int) -> Network:
        return Proxy(self._networks[number], self._call)

    def neighbours(self, number: int) -> set[int]:
        return {(number + step * sign) % COUNT for step in STEPS for sign in (1, -1)}

    def take_down(self, number: int) -> None:
        self.is_whole = False
        trio.from_thread.run(self._stop_peer, number, trio_token=self._token)

    def settle(self) -> None:
        # Bytes sent to a socket of this process can be read from the other one at once, so when all tasks wait
        # and nothing wakes one, nothing is on its way.
        trio.from_thread.run(trio.testing.wait_all_tasks_blocked, 0.01, trio_token=self._token)

    def close(self) -> None:
        self._call(self._stopped.set)
        self._thread.join(TIMEOUT_S)

    def _call(self, function: Callable[..., Any], *args: Any) -> Any:
        if threading.current_thread() is self._thread:
            return function(*args)
        return trio.from_thread.run_sync(partial(function, *args), trio_token=self._token)

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._stopped = trio.Event()
        self._stops = [trio.Event() for _ in range(COUNT)]
        async with trio.open_nursery() as nursery:
            for number in range(COUNT):
                await nursery.start(self._run_peer, number)
            for number in range(COUNT):
                for other in self.neighbours(number):
                    await meshed(self._networks[number], self._networks[other])
            self._ready.set()
            await self._stopped.wait()
            for stop in self._stops:
                stop.set()

    async def _run_peer(self, number: int, task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
        earlier = [self._networks[other] for other in self.neighbours(number) if other < number]
        async with peer(number, *earlier, members=self.members, limits=LIMITS) as network:
            self._networks.append(network)
            task_status.started()
            await self._stops[number].wait()

    async def _stop_peer(self, number: int) -> None:
        self._stops[number].set()
        await until(lambda: not any(self.members[number] in network.peers() for network in self._networks))


@pytest.fixture(scope="module")
def wires() -> Iterator[list[Libp2pWire]]:
    started: list[Libp2pWire] = []
    yield started
    for wire in started:
        wire.close()


class TestLibp2p(NetworkConformance):
    @pytest.fixture
    def wire(self, wires: list[Libp2pWire]) -> Wire:
        """The peers of the last test, if they are all there."""
        if not wires or not wires[-1].is_whole:
            wires.append(Libp2pWire())
        return wires[-1]
