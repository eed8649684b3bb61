"""The simulator's network as the conformance suite wants it."""

import asyncio
from collections.abc import Iterator

import pytest

from fedchain.crypto.keys import PublicKey
from fedchain.network.network import Network
from fedchain.simulator.engine.clock import VirtualTimeLoop
from fedchain.simulator.engine.network import Conditions, NetworkWatch, SimulatedNetwork
from tests.support.chain.builders import keys


class SimulatedWire:
    """Ten peers in virtual time."""

    def __init__(self, loop: VirtualTimeLoop, conditions: Conditions) -> None:
        self.members: list[PublicKey] = [key.public_key for key in keys(10)]
        self._loop = loop
        self._network = SimulatedNetwork(loop, self.members, conditions, 1, NetworkWatch(lambda *delivered: None))

    def network(self, number: int) -> Network:
        return self._network.endpoint(number)

    def neighbours(self, number: int) -> set[int]:
        return set(self._network.neighbours(number))

    def take_down(self, number: int) -> None:
        self._network.attach(number, None)

    def settle(self) -> None:
        self._loop.run_until_complete(asyncio.sleep(60))  # virtual seconds


@pytest.fixture
def loop() -> Iterator[VirtualTimeLoop]:
    loop = VirtualTimeLoop()
    yield loop
    loop.close()
