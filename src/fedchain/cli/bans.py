"""``fedchain node bans`` and ``fedchain node unban``: list the peers that may not connect to a node, and lift a ban.

A running node is asked, since it would not notice that its list was edited; otherwise the list itself is read.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from fedchain.cli.common.command import clear_errors


def bans(folder: Path, as_json: bool) -> None:
    """Show who may not connect to a node, since when, until when, and why."""
    with clear_errors():
        import json

        held = _bans_of(folder)
        if as_json:
            typer.echo(json.dumps(held, indent=2))
            return
        for ban in held:
            since, until = (_date(ban[name]) for name in ("since", "until"))
            typer.echo(f"{ban['address']}  since {since}  until {until}  {ban['reason'] or 'for a forgotten reason'}")
        if not held:
            typer.echo("nobody is banned")


def unban(folder: Path, address: Annotated[str, typer.Argument(help="Address of the banned member.")]) -> None:
    """Let a banned member connect again. A running node dials it at once."""
    with clear_errors():
        import time

        from fedchain.crypto.address import public_key_from_address
        from fedchain.network.bans import read_bans, write_bans
        from fedchain.node.config import NodeConfigError
        from fedchain.node.operating.status import ask

        peer = public_key_from_address(address)
        if (answer := ask(_existing(folder), {"ask": "unban", "address": address})) is not None:
            was_banned = bool(answer.get("unbanned"))
        else:
            kept, now_s = read_bans(folder), time.time()
            was_banned = any(ban.peer == peer and ban.until_s > now_s for ban in kept)
            if was_banned:
                write_bans(folder, (ban for ban in kept if ban.peer != peer))
        if not was_banned:
            raise NodeConfigError(f"{address} is not banned in {folder}")
        typer.echo(f"{address} may connect again")


def _bans_of(folder: Path) -> list[dict[str, Any]]:
    """The bans in force now, from the running node or else from the list."""
    import time

    from fedchain.network.bans import read_bans
    from fedchain.node.operating.status import ask, shown

    if (answer := ask(_existing(folder), {"ask": "bans"})) is not None:
        held: list[dict[str, Any]] = answer["bans"]
        return held
    now_s = time.time()
    return [shown(ban) for ban in read_bans(folder) if ban.until_s > now_s]


def _existing(folder: Path) -> Path:
    from fedchain.node.config import NodeConfigError
    from fedchain.node.operating.preflight import OWN_NAMES

    if not folder.is_dir():
        raise NodeConfigError(f"{folder} is no folder; name the data folder of a node")
    if not any((folder / name).exists() for name in OWN_NAMES):
        raise NodeConfigError(f"{folder} holds nothing of a node; name the data folder of one")
    return folder


def _date(unix_s: float) -> str:
    from datetime import UTC, datetime

    try:
        return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):  # no calendar goes that far
        return "the end of time"
