"""The genesis document as an answer: the founding document of a federation, height 0 of its chain; and what amendments
put in its place."""

import json
from collections.abc import Iterator
from dataclasses import fields
from enum import Enum
from typing import Any

from fedchain.chain.explorer.member_views import AmendmentView, ParameterView, RulesView
from fedchain.chain.genesis import Genesis
from fedchain.chain.membership.amendment import AGGREGATOR, LEARNING, Values
from fedchain.chain.state import State
from fedchain.crypto.address import address
from fedchain.wording import printable


def describe_genesis(genesis: Genesis) -> Iterator[tuple[str, str]]:
    """A label and a text for each entry of the document; members come with their numbers."""
    yield "chain id", genesis.chain_id.hex()
    for name, value in _settings(genesis):
        if name == "members":
            for number, member in enumerate(value):
                yield f"member {number}", address(member)
        elif name == "learning":
            for field_name, text in value:
                yield f"learning {field_name}", _describe_material(text) if field_name == "material" else text
        elif name in ("setup", "phases"):
            yield name, ", ".join(f"{phase.name} ({phase.by.value})" for phase in value) or "-"
        else:
            yield name, printable(str(value.value if isinstance(value, Enum) else value))


def plain_genesis(genesis: Genesis) -> dict[str, Any]:
    """The same for programs: plain values by the document's own names."""
    found: dict[str, Any] = {"chain_id": genesis.chain_id.hex(), "height": 0}
    for name, value in _settings(genesis):
        if name == "members":
            found[name] = [{"number": number, "address": address(member)} for number, member in enumerate(value)]
        elif name == "learning":
            found[name] = {field_name: _parse(text) for field_name, text in value}
        elif name in ("setup", "phases"):
            found[name] = [{"name": phase.name, "by": phase.by.value, "quorum": phase.quorum} for phase in value]
        else:
            found[name] = value.value if isinstance(value, Enum) else value
    return found


def view_rules(genesis: Genesis, state: State) -> RulesView:
    """The parameters that have another value behind a state than in the founding document."""
    in_force = state.amendments.in_force
    found = [
        ParameterView(short, founded(genesis, name), value)
        for (name, _), (short, value) in zip(in_force, plain_values(in_force), strict=True)
    ]
    coming = tuple(AmendmentView(item.round, plain_values(item.values)) for item in state.amendments.coming)
    return RulesView(state.height + 1, state.round, tuple(found), coming)


def plain_values(values: Values) -> tuple[tuple[str, Any], ...]:
    """An amendment's values by the names that people use."""
    return tuple(
        (name.removeprefix(LEARNING), _parse(str(value)) if name.startswith(LEARNING) else value)
        for name, value in values
    )


def founded(genesis: Genesis, name: str) -> Any:
    """The founding document's value for a name of an amendment; None if it says none."""
    if name == AGGREGATOR:
        return genesis.founded_aggregator
    if not name.startswith(LEARNING):
        value = getattr(genesis, name)
        return value.value if isinstance(value, Enum) else value
    pairs = _parse(dict(genesis.learning).get("hyperparameters", ""))
    known = [pair for pair in pairs if isinstance(pair, list) and len(pair) == 2] if isinstance(pairs, list) else []
    return next((value for own, value in known if own == name.removeprefix(LEARNING)), None)


def _settings(genesis: Genesis) -> list[tuple[str, Any]]:
    return [(item.name, getattr(genesis, item.name)) for item in fields(genesis) if item.init]


def _describe_material(text: str) -> str:
    """Public material by name and size: its bytes are of no use to a reader."""
    parts = _parse(text)
    try:
        return ", ".join(f"{part} ({len(data) // 2} bytes)" for part, data in parts)
    except (TypeError, ValueError):
        return text


def _parse(text: str) -> Any:
    """A value of the learning task; the chain carries any text, even if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
