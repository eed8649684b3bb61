"""``fedchain runs``: the runs and nodes in a folder. Nothing heavy is imported."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fedchain.cli.common.command import clear_errors
from fedchain.files.layout import RUNS_FOLDER
from fedchain.wording import printable

HEADINGS = ("kind", "method", "data", "peers", "rounds", "accuracy", "changed", "state", "folder")


def runs(
    folder: Annotated[Path, typer.Argument(help="Folder to look into, and below.")] = RUNS_FOLDER,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the runs in a folder, the newest first, and the nodes: method, data, rounds, accuracy, and their state.

    The nodes of a test network are listed if the folder is the network's own.
    """
    with clear_errors():
        import json
        from dataclasses import asdict

        from fedchain.node.config import NodeConfigError
        from fedchain.node.folders import find_rows

        if not folder.is_dir():
            raise NodeConfigError(f"{folder} is no folder; name one that holds runs or nodes")
        rows = find_rows(folder)
        if as_json:
            typer.echo(json.dumps([asdict(row) for row in rows], indent=2))
        elif not rows:
            typer.echo(f"no run or node in {folder}")
        else:
            lines = [HEADINGS, *map(_cells, rows)]
            widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
            for line in lines:  # the last column, a path, is never cut, so that it can be copied
                typer.echo("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def _cells(row: Any) -> tuple[str, ...]:
    from datetime import datetime

    from fedchain.node.operating.console import percent

    process = "" if row.pid is None else f", process {row.pid}, waits for {row.waiting_for}"
    cells = (
        row.kind,
        row.method,
        row.data,
        str(row.peers),
        f"{row.rounds} of {row.of}" if row.of else str(row.rounds),
        percent(row.accuracy),
        datetime.fromtimestamp(row.modified_s).astimezone().strftime("%Y-%m-%d %H:%M"),
        f"{row.state}{process}",
        row.folder,
    )
    return tuple(map(printable, cells))
