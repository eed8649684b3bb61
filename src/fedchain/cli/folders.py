"""``fedchain runs`` and ``fedchain node list``: the runs and nodes in a folder. Nothing heavy is imported."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from fedchain.cli.common.command import clear_errors
from fedchain.files.layout import RUNS_FOLDER


def runs(
    folder: Annotated[Path, typer.Argument(help="Folder to look into, and below.")] = RUNS_FOLDER,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the runs in a folder: method, data, rounds, accuracy, and when; the newest first."""
    with clear_errors():
        from fedchain.node.folders import find_runs
        from fedchain.node.operating.console import percent

        rows = find_runs(_existing(folder))
        _print(
            rows,
            as_json,
            f"no run in {folder}",
            ("kind", "method", "data", "peers", "rounds", "accuracy", "changed", "state", "folder"),
            lambda row: (
                row.kind,
                row.method,
                row.data,
                str(row.peers),
                f"{row.rounds} of {row.of}" if row.of else str(row.rounds),
                percent(row.accuracy),
                _date(row.modified_s),
                row.state,
                row.folder,
            ),
        )


def list_nodes(
    folder: Annotated[Path, typer.Argument(help="Folder to look into, and below.")] = Path(), *, as_json: bool
) -> None:
    """List the nodes whose data folders lie here: whether they run, process, height, peers, and what they wait for."""
    with clear_errors():
        from fedchain.node.folders import find_nodes, short_address

        rows = find_nodes(_existing(folder))
        _print(
            rows,
            as_json,
            f"no node's data folder in {folder}",
            ("state", "pid", "chain", "address", "height", "round", "peers", "waiting for", "folder"),
            lambda row: (
                row.state,
                _shown(row.pid),
                row.chain_id[:8],
                short_address(row.address),
                str(row.height),
                str(row.round),
                _shown(row.peers),
                row.waiting_for or "-",
                row.folder,
            ),
        )


def _print(
    rows: Sequence[Any],
    as_json: bool,
    nothing: str,
    names: Iterable[str],
    cells: Callable[[Any], tuple[str, ...]],
) -> None:
    """Print rows as a table, or as a list of objects; one line if there are none."""
    import json
    from dataclasses import asdict

    if as_json:
        typer.echo(json.dumps([asdict(row) for row in rows], indent=2))
        return
    if not rows:
        typer.echo(nothing)
        return
    lines = [tuple(names), *(cells(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:  # the last column, a path, is never cut, so that it can be copied
        typer.echo("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def _existing(folder: Path) -> Path:
    from fedchain.node.config import NodeConfigError

    if not folder.is_dir():
        raise NodeConfigError(f"{folder} is no folder; name one that holds runs or nodes")
    return folder


def _shown(number: int | None) -> str:
    return "-" if number is None else str(number)


def _date(unix_s: float) -> str:
    from datetime import datetime

    return datetime.fromtimestamp(unix_s).astimezone().strftime("%Y-%m-%d %H:%M")
