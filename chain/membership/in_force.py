"""The rules in force: the founding document with the values of all amendments that have begun."""

from dataclasses import replace
from typing import Any

from fedchain.chain.exceptions import InvalidGenesis
from fedchain.chain.genesis import Admission, Genesis, read_admission
from fedchain.chain.membership.amendment import (
    ADMISSION,
    AGGREGATOR,
    LEARNING,
    VERSION,
    Amendment,
    Amendments,
    Values,
)


def rules_of(genesis: Genesis, values: Values) -> Genesis:
    """The founding document with other values, and with its own chain id. Raises InvalidGenesis.

    A method's hyper-parameters stand in ``learning`` beside what was founded, under their names here. The aggregator's
    place is no rule but a role, which the roster has: the document says by which rule it is given.
    """
    if not values:
        return genesis
    parameters: dict[str, Any] = {name: value for name, value in values if not name.startswith(LEARNING)}
    version = parameters.pop(VERSION, genesis.version)
    if parameters.pop(AGGREGATOR, None) is not None and not genesis.aggregator.is_role:
        raise InvalidGenesis(f"aggregator is {genesis.aggregator.value}, which is no member's role")
    if ADMISSION in parameters:
        parameters[ADMISSION] = read_admission(parameters[ADMISSION])
    learning = dict(genesis.learning) | {name: str(value) for name, value in values if name.startswith(LEARNING)}
    rules = replace(genesis, learning=tuple(sorted(learning.items())), **parameters)
    object.__setattr__(rules, "chain_id", genesis.chain_id)
    object.__setattr__(rules, "version", version)
    return rules


def validate_amendment(genesis: Genesis, known: Amendments, amendment: Amendment) -> None:
    """Check an amendment with those that are counted: rules have to make sense in every round. Raises InvalidGenesis.

    Args:
        genesis: the founding document.
        known: those that the chain counts.
        amendment: one more, whose round is known.
    """
    before = (known.in_force, *(item.values for item in known.coming))
    version = max(genesis.version, *(_version_of(values) for values in before))
    if 0 < (asked := _version_of(amendment.values)) <= version or (VERSION, 0) in amendment.values:
        raise InvalidGenesis(f"version is {asked}, after {version} comes a later one")
    following = known.with_one(amendment)
    for item in following.coming:
        rules = rules_of(genesis, following.at(item.round).in_force)
        # In a closed federation nobody is added or removed by others: its members joined on that.
        if (rules.admission is Admission.CLOSED) is not (genesis.admission is Admission.CLOSED):
            raise InvalidGenesis(f"admission is {rules.admission.value}, it was founded as {genesis.admission.value}")
        if 0 < rules.rounds < item.round:  # the last round would be over
            raise InvalidGenesis(f"rounds is {rules.rounds}, an amendment begins with round {item.round}")


def _version_of(values: Values) -> int:
    """The protocol's version among values; 0 if it is not."""
    found = dict(values).get(VERSION, 0)
    return found if isinstance(found, int) else 0
