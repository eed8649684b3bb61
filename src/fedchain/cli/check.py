"""``fedchain node check``: check whether a node could start and take part, before it starts."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import typer

from fedchain.cli.common.command import clear_errors
from fedchain.cli.common.exit_codes import EXIT_BAD_INPUT
from fedchain.cli.common.start_options import with_node_options
from fedchain.cli.keys import unlock_key
from fedchain.wording import printable

TIMEOUT_S = 3.0
"""Seconds that one bootstrap peer may take to answer."""


@with_node_options
def check(
    file: Path | None,
    overrides: Callable[[], Mapping[str, Any]],
    as_json: bool,
) -> None:
    """Try port, clock, key, genesis, membership, disk, bootstrap peers, task and data; start nothing.

    Takes the settings of `fedchain node start`. A line for each: ok, warn or fail; exit code 2 if anything fails.
    """
    with clear_errors():
        import json

        from fedchain.node.config import load_config
        from fedchain.node.operating.check import Outcome, check_node
        from fedchain.node.operating.console import set_up_logging

        config = load_config(file, overrides())
        set_up_logging(False, config.log_format)
        findings = []
        for finding in check_node(
            config,
            lambda: unlock_key(Path(config.key), passphrase_file=config.passphrase_file),
            timeout_s=TIMEOUT_S,
        ):
            findings.append(finding)
            if not as_json:
                typer.echo(f"{finding.outcome.value:5} {finding.name:10} {printable(finding.text)}")
        failed = [finding.name for finding in findings if finding.outcome is Outcome.FAIL]
        if as_json:
            checks = [{"outcome": item.outcome.value, "name": item.name, "text": item.text} for item in findings]
            typer.echo(json.dumps({"ok": not failed, "checks": checks}, indent=2))
        if failed:
            typer.echo(f"fedchain: the node cannot start: {', '.join(failed)}", err=True)
            raise typer.Exit(EXIT_BAD_INPUT)
