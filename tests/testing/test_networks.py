"""The suite of networks notices one that breaks a promise."""

import pytest

from fedchain.simulator.engine.clock import VirtualTimeLoop
from fedchain.simulator.engine.network import Conditions, Parcel
from fedchain.testing.networks import Listener, NetworkConformance, gossip
from tests.support.network.simulated import SimulatedWire
from tests.support.network.simulated import loop as loop


def test_the_suite_notices_a_network_that_passes_everything_on(loop: VirtualTimeLoop) -> None:
    wire = SimulatedWire(loop, Conditions(degree=3))
    original = wire._network._deliver

    def careless(number: int, sender: int, parcel: Parcel, now_s: float) -> None:
        original(number, sender, parcel, now_s)
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
