"""``fedchain node check``: check whether a node could start and take part, before it starts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from fedchain.cli.common.command import clear_errors
from fedchain.cli.common.exit_codes import EXIT_BAD_INPUT
from fedchain.cli.common.start_options import with_node_options
from fedchain.cli.keys import unlock_key

TIMEOUT_HELP = "Seconds that one bootstrap peer may take to answer."


@with_node_options
def check(
    file: Path | None,
    overrides: Mapping[str, Any],
    timeout_s: Annotated[float, typer.Option(min=0.1, max=60, help=TIMEOUT_HELP, rich_help_panel="Network")] = 3.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.", rich_help_panel="Output")] = False,
) -> None:
    """Try port, clock, key, genesis, membership, disk, bootstrap peers, task and data; start nothing.

    Takes the settings of `fedchain node start`. A line for each: ok, warn or fail; exit code 2 if anything fails.
    """
    with clear_errors():
        import json

        from fedchain.node.config import load_config
        from fedchain.node.operating.check import Outcome, check_node
        from fedchain.node.operating.console import set_up_logging

        config = load_config(file, overrides)
        set_up_logging(False, config.log_format)
        findings = []
        for finding in check_node(
            config,
            lambda: unlock_key(Path(config.key), passphrase_file=config.passphrase_file),
            timeout_s=timeout_s,
        ):
            findings.append(finding)
            if not as_json:
                typer.echo(f"{finding.outcome.value:5} {finding.name:10} {finding.text}")
        failed = [finding.name for finding in findings if finding.outcome is Outcome.FAIL]
        if as_json:
            checks = [{"outcome": item.outcome.value, "name": item.name, "text": item.text} for item in findings]
            typer.echo(json.dumps({"ok": not failed, "checks": checks}, indent=2))
        if failed:
            typer.echo(f"fedchain: the node cannot start: {', '.join(failed)}", err=True)
            raise typer.Exit(EXIT_BAD_INPUT)
