"""Founding a simulated federation: its keys, and the genesis document that a scenario determines."""

from functools import lru_cache
from typing import Any

from fedchain.chain.exceptions import InvalidGenesis
from fedchain.chain.genesis import Genesis
from fedchain.crypto.hashing import sha256
from fedchain.crypto.keys import PrivateKey
from fedchain.learning.application import Application
from fedchain.learning.config import LearningConfig
from fedchain.node.founding import task
from fedchain.simulator.engine.clock import EPOCH_MS
from fedchain.simulator.scenario import Scenario, ScenarioError


def found_federation(
    scenario: Scenario, rules: Application, keys: list[PrivateKey], config: LearningConfig | None = None
) -> Genesis:
    """The genesis document of a scenario. Its date of creation is the beginning of virtual time.

    Args:
        scenario: validated.
        rules: the same task's rules.
        keys: the keys of all that ever take part, founders first.
        config: the scenario's task with the keys that were dealt for it; None if none were.

    Raises:
        ScenarioError: the scenario's values contradict each other.
        ConfigurationError: as of :func:`fedchain.node.founding.task.found_federation`.
    """
    try:
        return task.found_federation(
            config or scenario.learning_config(),
            rules,
            [key.public_key for key in keys[: scenario.members]],
            **consensus_of(scenario),
        )
    except InvalidGenesis as error:
        raise ScenarioError(str(error)) from None


def consensus_of(scenario: Scenario) -> dict[str, Any]:
    """Fields of the genesis document that a scenario determines, apart from the task and its members."""
    named = {"name": scenario.name, "created_ms": EPOCH_MS, "aggregator": scenario.aggregator_rule}
    return scenario.to_genesis() | named


def simulation_keys(scenario: Scenario) -> list[PrivateKey]:
    """Keys of the simulated peers: they follow from the scenario's seed, so they protect nothing."""
    return [*_keys(scenario.seed, scenario.everybody)]


@lru_cache(maxsize=2)
def _keys(seed: int, count: int) -> tuple[PrivateKey, ...]:
    """A run asks for them three times, and a public key takes 20 µs."""
    return tuple(PrivateKey(sha256(f"fedchain simulation {seed} peer {number}".encode())) for number in range(count))
