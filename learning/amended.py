"""Hyper-parameters that members change while a federation runs, as far as their method lets them."""

import json
from collections.abc import Iterable
from dataclasses import replace

from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.registry import build_method, load_method

Amended = tuple[tuple[str, str], ...]
"""(name, JSON text) pairs, sorted by name: values in place of those that were founded."""


def amended_config(config: LearningConfig, amended: Iterable[tuple[str, str]]) -> LearningConfig:
    """The task with other values of its method's hyper-parameters.

    Raises `ConfigurationError` for one that may not change while the method runs, or a value that it cannot have.
    """
    values, allowed = dict(config.hyperparameters), load_method(config.method).amendable
    for name, text in amended:
        if name not in allowed:
            which = ", ".join(sorted(allowed)) or "none"
            raise ConfigurationError(f"{name} of {config.method} cannot be amended, of its hyper-parameters: {which}")
        try:
            values[name] = json.loads(text)
        except (ValueError, RecursionError):
            raise ConfigurationError(f"{name} is {text!r}, which is no value") from None
    build_method(config.method, values)
    return replace(config, hyperparameters=tuple(values.items()))
