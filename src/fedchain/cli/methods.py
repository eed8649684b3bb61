"""``fedchain methods``: list the learning methods, as their own classes describe them."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from fedchain.cli.common.command import clear_errors

if TYPE_CHECKING:
    from fedchain.node.founding.method_card import MethodCard


def methods(
    name: Annotated[
        str,
        typer.Argument(metavar="[NAME]", help="Method, FILE.py:Class or module:Class; without one, all are listed."),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the learning methods, or show one: its source, what it exchanges, and every hyper-parameter.

    They are set with --set NAME=VALUE.
    """
    with clear_errors():
        from fedchain.learning.registry import agreed_name, use_current_folder
        from fedchain.node.founding.method_card import card_of, method_names

        use_current_folder()
        if name:
            card = card_of(agreed_name(name))
            typer.echo(json.dumps(asdict(card), indent=2) if as_json else "\n".join(_lines(card)))
            return
        cards = [card_of(known) for known in method_names()]
        if as_json:
            typer.echo(json.dumps([asdict(card) for card in cards], indent=2))
            return
        width = max(len(card.name) for card in cards)
        for card in cards:
            typer.echo(f"{card.name:{width}}  {card.summary}")


def _lines(card: "MethodCard") -> Sequence[str]:
    """A method in full, for people."""
    lines = [f"{card.name}: {card.summary}" if card.summary else card.name, "", *card.citation, ""]
    lines += [f"class        {card.place}", f"aggregator   {card.aggregator}"]
    for phase in card.phases:
        when = "once" if phase.is_setup else "every round"
        lines.append(f"phase        {phase.name}, {when}, by each {phase.by}")
        lines.append(f"  posts      {', '.join(phase.posts) or 'nothing'}")
        lines.append(f"  leaves     {', '.join(phase.leaves) or 'nothing'}")
    lines += ["", "hyper-parameters:"]
    for item in card.hyperparameters:
        choices = f", one of {', '.join(item.choices)}" if item.choices else ""
        lines.append(f"  {item.name} = {json.dumps(item.default)}  ({item.type}{choices})")
        lines += [f"      {line}" for line in item.help.splitlines()]
    return lines
