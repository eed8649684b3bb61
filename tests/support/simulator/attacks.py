"""Federations under one attack."""

from typing import Any

from fedchain.simulator.disturbances import Traitors
from fedchain.simulator.engine.simulation import Simulation
from fedchain.simulator.scenario import Scenario
from tests.support.simulator.trivial import trivial_scenario


def attacked(behaviour: str, traitors: tuple[int, ...], **values: Any) -> Scenario:
    """A scenario with traitors."""
    liars = Traitors(behaviour=behaviour, peers=traitors)
    return trivial_scenario(adversaries=(liars,), **values)


def miners(simulation: Simulation) -> list[int]:
    """Number of the peer that mined each final block."""
    storage = simulation.peers[0].storage
    head = storage.head()
    assert head is not None
    numbers = {peer.public_key: peer.number for peer in simulation.peers}
    finals = (storage.final(height) for height in range(1, head.block.header.height + 1))
    return [numbers[final[0].header.miner] for final in finals if final is not None]
