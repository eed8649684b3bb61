"""The simulated network keeps the promises of the interface, as a full mesh and with three neighbours each."""

import asyncio
from collections.abc import Iterator

import pytest

from fedchain.crypto.keys import PublicKey
from fedchain.network.network import Network
from fedchain.simulator.engine.clock import VirtualTimeLoop
from fedchain.simulator.engine.network import Conditions, SimulatedNetwork
from fedchain.testing.networks import Listener, NetworkConformance, Wire, gossip
from tests.support.chain.builders import keys


class SimulatedWire:
    """Ten peers in virtual time."""

    def __init__(self, loop: VirtualTimeLoop, conditions: Conditions) -> None:
        self.members: list[PublicKey] = [key.public_key for key in keys(10)]
        self._loop = loop
        self._network = SimulatedNetwork(loop, self.members, conditions, 1, lambda number, sender, parcel: None)

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


class TestFullMesh(NetworkConformance):
    @pytest.fixture
    def wire(self, loop: VirtualTimeLoop) -> Wire:
        return SimulatedWire(loop, Conditions())


class TestThreeNeighbours(NetworkConformance):
    @pytest.fixture
    def wire(self, loop: VirtualTimeLoop) -> Wire:
        wire = SimulatedWire(loop, Conditions(degree=3))
        assert any(len(wire.neighbours(number)) < 9 for number in range(10))
        return wire


class TestReplaysAndLimitedBandwidth(NetworkConformance):
    @pytest.fixture
    def wire(self, loop: VirtualTimeLoop) -> Wire:
        return SimulatedWire(loop, Conditions(degree=3, replay=0.5, bandwidth_mbit_s=10.0))


def test_the_suite_notices_a_network_that_passes_everything_on(loop: VirtualTimeLoop) -> None:
    wire = SimulatedWire(loop, Conditions(degree=3))
    original = wire._network._deliver

    def careless(number: int, sender: int, parcel: object) -> None:
        original(number, sender, parcel)  # type: ignore[arg-type]
        if number == min(wire.neighbours(0)):
            wire.network(number).publish(gossip(5))

    wire._network._deliver = careless  # type: ignore[method-assign]
    with pytest.raises(AssertionError):
        NetworkConformance().test_what_is_not_accepted_is_not_passed_on(wire)


def test_a_listener_hears_nothing_before_messages_travel(loop: VirtualTimeLoop) -> None:
    wire = SimulatedWire(loop, Conditions())
    listener = Listener(wire)
    wire.network(0).publish(gossip())
    assert not any(listener.heard)
