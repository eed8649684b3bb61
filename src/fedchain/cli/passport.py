"""``fedchain passport``: check where a model in a file is from, without a chain and without a connection."""

from pathlib import Path
from typing import Annotated

import typer

from fedchain.cli.common.command import GroupedCommand, clear_errors
from fedchain.cli.common.exit_codes import EXIT_DIFFERENT

passport_app = typer.Typer(help="Check the passport of a model.", no_args_is_help=True)


@passport_app.callback()
def _group() -> None:
    """A group with one command: without this, the command's name would be left out."""


@passport_app.command(cls=GroupedCommand)
def verify(
    file: Annotated[
        Path,
        typer.Argument(help="The passport, or the model's file that it stands beside.", show_default=False),
    ],
) -> None:
    """Check a model's passport and the model beside it; say in five lines what was verified and what is believed.

    Exit code 1: a part of them is not what the others say.
    """
    with clear_errors():
        from fedchain.simulator.trained.passport import InvalidPassport, read_passport, tell

        try:
            report = read_passport(file)
        except InvalidPassport as error:
            typer.echo(f"NOT VERIFIED: {error}")
            raise typer.Exit(EXIT_DIFFERENT) from None
        typer.echo("\n".join(tell(report)))
