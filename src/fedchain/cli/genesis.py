"""``fedchain genesis``: founding a federation. Nothing heavy is imported before a command runs."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from fedchain.cli.common.command import GroupedCommand, clear_errors
from fedchain.cli.common.learning_options import Chosen, with_learning_options
from fedchain.cli.keys import leave_no_core_file
from fedchain.node.founding.aggregator import choose_aggregator
from fedchain.node.founding.consensus import Founding
from fedchain.node.founding.effects import validate_effects

MEMBER_HELP = "Address of a member; repeat it. The order is the partition's, and a dedicated aggregator is the last."

NAME_SIZE_MAX = 200
"""Characters of a federation's name."""

genesis_app = typer.Typer(help="Found a federation.", no_args_is_help=True)


@genesis_app.command("new", cls=GroupedCommand)
@with_learning_options(Founding)
def new_genesis(
    path: Annotated[Path, typer.Argument(help="File to write; it must not exist.")],
    *,
    member: Annotated[list[str], typer.Option(help=MEMBER_HELP, rich_help_panel="Federation")],
    name: Annotated[
        str, typer.Option(help="Name of the federation, for people.", rich_help_panel="Federation")
    ] = "federation",
    rounds: Annotated[
        int, typer.Option(help="The federation ends after this many rounds; 0: never.", rich_help_panel="Federation")
    ] = 0,
    chosen: Chosen[Founding],
) -> None:
    """Write the founding document of a federation, and print its chain id.

    For a federation that encrypts, this is the dealer: it makes the keys, writes each member's share beside the
    document, sealed, and forgets them. Run it on a machine that is trusted.
    """
    with clear_errors():
        import os
        import time
        from dataclasses import replace

        from fedchain.chain.genesis import AggregatorRule
        from fedchain.crypto.address import public_key_from_address
        from fedchain.learning.application import Application
        from fedchain.learning.config import LearningConfig
        from fedchain.learning.exceptions import asking
        from fedchain.learning.registry import build_method, importable_name, is_file_path, use_current_folder
        from fedchain.node.config import NodeConfigError
        from fedchain.node.custody.dealing import deal_keys, dealing_path
        from fedchain.node.founding.task import found_federation, with_shapes

        if path.exists():
            raise NodeConfigError(f"{path} exists already; a genesis document is never overwritten")
        if not name.isprintable() or not name.strip() or len(name) > NAME_SIZE_MAX:
            raise NodeConfigError(f"name must have 1 to {NAME_SIZE_MAX} printable characters, not blanks alone")
        words, consensus = chosen()
        consensus = replace(consensus, rounds=rounds)
        if (floor_s := consensus.phase_floor_s) > (timeout_s := consensus.phase_timeout_s):
            waits = f"at least {floor_s:g} s (phase_floor_s) and at most {timeout_s:g} s (phase_timeout_s)"
            raise NodeConfigError(f"a phase would wait {waits}")
        config = LearningConfig(clients=len(member), **{**words, "method": importable_name(words["method"])})
        if config.task:
            use_current_folder()
        rule = choose_aggregator(config, consensus)
        validate_effects(config, consensus)
        if rule is AggregatorRule.DEDICATED and len(member) == 1:
            raise NodeConfigError(
                f"{config.method} has a dedicated aggregator, the last member: name those with data, too"
            )
        parts = consensus.count_parts(len(member) - (rule is AggregatorRule.DEDICATED))
        config = with_shapes(replace(config, clients=parts))
        config.validate()
        members = [public_key_from_address(text) for text in member]
        leave_no_core_file()
        config, dealing = deal_keys(config, members, os.urandom)
        sealed = dealing_path(path)
        genesis = found_federation(
            config,
            Application(config, members),
            members,
            name=name,
            created_ms=time.time_ns() // 1_000_000,
            aggregator=rule,
            **consensus.to_genesis(),
        )
        method = build_method(config.method, dict(config.hyperparameters))
        with asking("cautions", type(method)):
            cautions = tuple(method.cautions(None if genesis.contributors_per_round else genesis.rounds))
        if dealing is not None:  # first: shares without a document are of no harm
            left = "a founding that was interrupted left it, or its document lies elsewhere"
            _write_new(sealed, dealing.encode(), left)
        try:
            _write_new(path, genesis.encode())
        except NodeConfigError:
            if dealing is not None:
                sealed.unlink()
            raise
        typer.echo(genesis.chain_id.hex())
        for caution in cautions:
            typer.echo(caution, err=True)
        if is_file_path(words["method"]):
            module = config.method.partition(":")[0]
            typer.echo(
                f"the method is {config.method}: each member needs the same {module}.py, in the folder where its node "
                "is started or on PYTHONPATH",
                err=True,
            )
        if dealing is not None:
            files = f"{shlex.quote(str(sealed))} --genesis {shlex.quote(str(path))}"
            typer.echo(f"each member runs: fedchain keys install-share KEY {files}", err=True)


@genesis_app.command("show", cls=GroupedCommand)
def show_genesis(
    path: Annotated[Path, typer.Argument(help="Genesis document.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print every field as JSON.")] = False,
) -> None:
    """Show a genesis document: the members, the learning task, and the rules."""
    with clear_errors():
        import json

        from fedchain.chain.explorer.founding import plain_genesis
        from fedchain.node.founding.genesis_file import read_genesis
        from fedchain.node.founding.genesis_text import genesis_lines

        genesis = read_genesis(path)
        if as_json:
            typer.echo(json.dumps(plain_genesis(genesis), indent=2))
            return
        for line in genesis_lines(genesis):
            typer.echo(line)


def _write_new(path: Path, data: bytes, why_there: str = "") -> None:
    """Write a file that does not exist. ``why_there`` is why it may exist although nobody knows of it."""
    from fedchain.crypto.durable import create_file
    from fedchain.node.config import NodeConfigError

    try:
        create_file(path, data, is_public=True)
    except OSError as error:
        why = f": {why_there}" if why_there and isinstance(error, FileExistsError) else ""
        raise NodeConfigError(f"{path} cannot be written: {error.strerror}{why}") from None
