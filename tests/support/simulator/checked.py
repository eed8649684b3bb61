"""A federation that ran, and what its checker finds when it is damaged on purpose."""

import pytest

from fedchain.simulator.engine.checker import Checker
from fedchain.simulator.engine.simulation import Simulation
from tests.support.simulator.trivial import TrivialRules, trivial_scenario, trivial_simulation

SCENARIO = trivial_scenario(peers=3, rounds=4)


@pytest.fixture
def simulation() -> Simulation:
    simulation = trivial_simulation(SCENARIO)
    assert simulation.run().violations == []
    return simulation


def violations(simulation: Simulation) -> list[str]:
    """Violations found at the end, without their moments."""
    simulation.checker.check_end()
    return [found.rpartition(" (at ")[0] for found in simulation.checker.violations]


def watch(simulation: Simulation, rules: TrivialRules | None = None) -> Checker:
    """A checker that has not seen anything yet."""
    return Checker(simulation._genesis, rules or TrivialRules(), simulation.loop, simulation.peers)
