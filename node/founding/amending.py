"""Values of amendments: from the names that people use to those of the chain, and whether the method can take them."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from fedchain.chain.genesis import Genesis
from fedchain.chain.membership.amendment import ADMISSION, AMENDABLE, LEARNING, TEXT_SIZE_MAX, Amendments
from fedchain.learning.amended import amended_config
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.registry import build_method, load_method
from fedchain.node.founding.task import expect_contributors, learning_from_genesis

NUMBER_MAX = 2**64 - 1
"""Largest number that the chain writes."""


def amended_values(genesis: Genesis, named: Mapping[str, Any]) -> dict[str, int | str]:
    """The values of an amendment. Parameters of the chain are whole numbers but for the rule of admission; all others
    are the method's.

    Raises ConfigurationError for a name or a value that cannot be amended.
    """
    values: dict[str, int | str] = {}
    asks = named.keys() - set(AMENDABLE)
    allowed = load_method(learning_from_genesis(genesis).method).amendable if asks else frozenset[str]()
    for name, value in named.items():
        if name in allowed:
            try:
                values[LEARNING + name] = json.dumps(value)
            except TypeError:  # TOML has dates and times, too
                raise ConfigurationError(f"{name} is {value}, which is no value of a parameter") from None
        elif name not in AMENDABLE:
            known = ", ".join((*AMENDABLE, *sorted(allowed)))
            raise ConfigurationError(f"{name} cannot be amended, these can: {known}")
        elif name == ADMISSION:
            values[name] = str(value)  # the rules of the federation know the names
        elif type(value) is int and value > NUMBER_MAX:
            raise ConfigurationError(f"{name} is {value}, it must be at most {NUMBER_MAX}")
        elif type(value) is not int or value < 0:
            raise ConfigurationError(f"{name} is {value!r}, it must be a whole number of 0 or more")
        else:
            values[name] = value
    if long := [name for name, value in values.items() if isinstance(value, str) and len(value) > TEXT_SIZE_MAX]:
        raise ConfigurationError(f"{long[0].removeprefix(LEARNING)} has more than {TEXT_SIZE_MAX} characters")
    return values


def expect_of_use(genesis: Genesis, known: Amendments, values: Iterable[tuple[str, int | str]]) -> None:
    """Raise ConfigurationError if the method cannot take these values of its hyper-parameters, where there are any, or
    needs more contributors than would be drawn.

    A quorum approves, so that an honest member's program has looked: the chain itself does not know the method.
    """
    values = tuple(values)
    if drawn := dict(values).get("contributors_per_round"):
        config = learning_from_genesis(genesis)
        expect_contributors(build_method(config.method, dict(config.hyperparameters)), int(drawn))
    own = Amendments(values).hyperparameters
    if own:
        amended_config(learning_from_genesis(genesis), (dict(known.hyperparameters) | dict(own)).items())
