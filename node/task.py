"""The task of a federation: where the genesis document, which the chain reads, meets the learning method.

A genesis document carries the learning configuration as text; this is the one place that writes and reads it.
"""

import json
import tomllib
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from fedchain.chain.exceptions import InvalidGenesis
from fedchain.chain.genesis import Contributor, Genesis, PhaseRule
from fedchain.crypto.keys import PublicKey
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


def found_federation(
    config: LearningConfig, rules: Rules, members: Sequence[PublicKey], *, name: str, created_ms: int, **consensus: Any
) -> Genesis:
    """The genesis document of a federation that learns ``config``.

    Args:
        config: the learning task.
        rules: of the same task.
        members: public keys, in the order of the partition.
        name: what people call the federation.
        created_ms: when it was founded, in milliseconds since the Unix epoch.
        consensus: further fields of :class:`Genesis`.

    Raises:
        InvalidGenesis: the values contradict each other.
    """
    return Genesis(
        name=name,
        created_ms=created_ms,
        members=tuple(members),
        learning=learning_to_genesis(config),
        setup=setup_phases(rules),
        phases=round_phases(rules),
        **consensus,
    )


def read_settings(settings: Sequence[str]) -> dict[str, Any]:
    """Read ``NAME=VALUE`` settings: the value as TOML, or as text where it is not; raises ConfigurationError."""
    values = {}
    for setting in settings:
        name, separator, text = setting.partition("=")
        if not separator or not name.strip():
            raise ConfigurationError(f"--set {setting!r} is not of the form NAME=VALUE")
        try:
            values[name.strip()] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            values[name.strip()] = text.strip()
    return values
