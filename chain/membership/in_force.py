"""The rules in force: the founding document with the values of all amendments that have begun."""

from dataclasses import replace

from fedchain.chain.exceptions import InvalidGenesis
from fedchain.chain.genesis import Genesis
from fedchain.chain.membership.amendment import VERSION, Amendment, Amendments, Values


def rules_of(genesis: Genesis, values: Values) -> Genesis:
    """The founding document with other values, and with its own chain id. Raises InvalidGenesis."""
    if not values:
        return genesis
    parameters = dict(values)
    version = parameters.pop(VERSION, genesis.version)
    rules = replace(genesis, **parameters)  # type: ignore[arg-type]
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
    now, values = dict(known.in_force), dict(amendment.values)
    version = max([now.get(VERSION, genesis.version), *(dict(item.values).get(VERSION, 0) for item in known.coming)])
    if values.get(VERSION, version + 1) <= version:
        raise InvalidGenesis(f"version is {values[VERSION]}, after {version} comes a later one")
    following = known.with_one(amendment)
    for item in following.coming:
        rules = rules_of(genesis, following.at(item.round).in_force)
        if 0 < rules.rounds < item.round:  # the last round would be over
            raise InvalidGenesis(f"rounds is {rules.rounds}, an amendment begins with round {item.round}")
