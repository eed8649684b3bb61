"""The simulated network keeps the promises of the interface, as a full mesh and with three neighbours each."""

import pytest

from fedchain.simulator.engine.clock import VirtualTimeLoop
from fedchain.simulator.engine.network import Conditions
from fedchain.testing.networks import NetworkConformance, Wire
from tests.support.network.simulated import SimulatedWire
from tests.support.network.simulated import loop as loop


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
