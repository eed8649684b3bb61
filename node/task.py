"""The task of a federation: where the genesis document, which the chain reads, meets the learning method.

A genesis document carries the learning configuration as text; this is the one place that writes and reads it.
"""

import json
from dataclasses import fields

from fedchain.chain.exceptions import InvalidGenesis
from fedchain.chain.genesis import Contributor, Genesis, PhaseRule
from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.registry import build_method
from fedchain.learning.rules import Rules

LOCAL_FIELDS = frozenset({"data_dir"})
"""What every peer chooses for itself; all else is agreed on."""


def learning_to_genesis(config: LearningConfig) -> tuple[tuple[str, str], ...]:
    """Write the agreed part of ``config`` as the genesis document's (name, JSON) pairs.

    Hyper-parameters are written in full: two versions of the program may have different defaults.
    """
    method = build_method(config.method, dict(config.hyperparameters))
    values = {item.name: getattr(config, item.name) for item in fields(config) if item.name not in LOCAL_FIELDS}
    values["hyperparameters"] = sorted((item.name, getattr(method, item.name)) for item in fields(method))
    return tuple((name, json.dumps(values[name], sort_keys=True)) for name in sorted(values))


def learning_from_genesis(genesis: Genesis, data_dir: str = "") -> LearningConfig:
    """Read the learning configuration of a federation.

    Raises:
        InvalidGenesis: the document's learning part is not one that this program knows.
    """
    try:
        values = {name: json.loads(text) for name, text in genesis.learning}
        values["hyperparameters"] = tuple((name, value) for name, value in values.get("hyperparameters", ()))
        config = LearningConfig(data_dir=data_dir, **values)
        config.validate()
    except (TypeError, ValueError, OverflowError, RecursionError, ConfigurationError) as error:
        raise InvalidGenesis(f"learning cannot be read: {error}") from None
    return config


def rules_of(genesis: Genesis) -> Rules:
    """The learning method's side of validity, as the genesis document has it; raises InvalidGenesis."""
    return Rules(learning_from_genesis(genesis))


def setup_phases(rules: Rules) -> tuple[PhaseRule, ...]:
    """Phases that run once, as the genesis document writes them."""
    return tuple(PhaseRule(name, Contributor(by)) for name, by in rules.setup_phases)


def round_phases(rules: Rules) -> tuple[PhaseRule, ...]:
    """Phases of every round, as the genesis document writes them."""
    return tuple(PhaseRule(name, Contributor(by)) for name, by in rules.phases)
