"""``fedchain node members`` and its neighbours: who belongs to the federation, who comes, and who goes.

A running node is asked, since it alone hears of changes that are open, and signs in the member's name.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from fedchain.cli.common.command import clear_errors


def members(folder: Path, as_json: bool) -> None:
    """Show the members, the changes on their way, and who approves of them and who has not yet."""
    with clear_errors():
        import json

        from fedchain.node.membership.account import account_lines

        found = _ask(folder, {"ask": "members"})
        if as_json:
            typer.echo(json.dumps(found, indent=2))
            return
        for line in account_lines(found):
            typer.echo(line)


def approve(
    folder: Path,
    which: Annotated[str, typer.Argument(help="Hash of the change, or its beginning; or the newcomer's name.")],
) -> None:
    """Approve of a change: a peer joins, a member is removed or gets another key, or parameters have other values."""
    with clear_errors():
        typer.echo(_ask(folder, {"ask": "approve", "which": which})["said"])


def amend(
    folder: Path,
    values: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=VALUE...", help="Parameters of the founding document, in its units; or learning_rate."
        ),
    ],
) -> None:
    """Propose other values of what was founded, and approve of them; a quorum decides."""
    with clear_errors():
        typer.echo(_ask(folder, {"ask": "amend", "values": values})["said"])


def leave(folder: Path) -> None:
    """Have this member leave the federation, for good."""
    with clear_errors():
        typer.echo(_ask(folder, {"ask": "leave"})["said"])


def away(folder: Path) -> None:
    """Have this member count no more until it is back, so that the others do not wait for it."""
    with clear_errors():
        typer.echo(_ask(folder, {"ask": "away"})["said"])


def rekey(folder: Path) -> None:
    """Give this member another key, which the node makes and goes on with by itself."""
    with clear_errors():
        typer.echo(_ask(folder, {"ask": "rekey"})["said"])


def back(folder: Path) -> None:
    """Have this member count again, after it was away."""
    with clear_errors():
        typer.echo(_ask(folder, {"ask": "back"})["said"])


def remove(
    folder: Path,
    member: Annotated[str, typer.Argument(help="Number or address of the member.")],
    reason: Annotated[str, typer.Argument(help="Reason, which all members and readers of the chain see.")],
) -> None:
    """Propose that a member is removed, for good, and approve of it."""
    with clear_errors():
        typer.echo(_ask(folder, {"ask": "remove", "member": member, "reason": reason})["said"])


def _ask(folder: Path, question: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of the node that runs in a folder; raises NodeConfigError."""
    from fedchain.node.config import NodeConfigError
    from fedchain.node.operating.status import ask

    if (answer := ask(folder, question)) is None:
        raise NodeConfigError(f"no node answers in {folder}; is it running?")
    return answer
