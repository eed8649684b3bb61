"""The command table. The module of a command is imported only when that command is called."""

import importlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import TextIOWrapper
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

import fedchain
from fedchain.cli.common.exit_codes import EXIT_BAD_INPUT, EXIT_CLOSED_PIPE, EXIT_INTERRUPTED
from fedchain.cli.common.usage import usage_line


class Command(NamedTuple):
    """A command that is not imported yet."""

    place: str
    """``module:object``: a function, or a table of commands."""

    summary: str
    """Summary in ``fedchain --help``, kept here so that the command need not be imported for it."""

    def load(self) -> Any:
        """Import the command's module; return the function or the table."""
        module, name = self.place.split(":")
        return getattr(importlib.import_module(f"fedchain.cli.{module}"), name)


COMMANDS: Mapping[str, Command] = MappingProxyType(
    {
        "simulate": Command("simulate:simulate", "Run a federation of many peers on this machine."),
        "compare": Command("compare:compare", "Run methods side by side; print what each reached."),
        "reproduce": Command("simulate:reproduce", "Run a paper's experiment; print its table beside theirs."),
        "runs": Command("folders:runs", "List the runs and nodes in a folder."),
        "model": Command("model:model_app", "Take trained models out of a run or a node; measure them."),
        "passport": Command("passport:passport_app", "Check the passport of a model."),
        "methods": Command("methods:methods", "List the learning methods, or show one."),
        "data": Command("data:data", "Show the data sets, and fetch them."),
        "plan": Command("simulate:plan", "Divide a time budget between training and mining."),
        "attack": Command("attack:attack_app", "Try what others could read in what members post."),
        "node": Command("node:node_app", "Run peers on a real network."),
        "keys": Command("keys:keys_app", "Make and show key files."),
        "genesis": Command("genesis:genesis_app", "Found a federation."),
        "explorer": Command("explorer:explorer", "Inspect a chain: a run folder's or a node's."),
    }
)
"""The commands by their names, in the order in which help lists them."""

READERS = frozenset({"explorer", "passport", "runs"})
"""Commands that read files which strangers may have written: they import no module from the current folder."""

_PLAIN: Mapping[str, Any] = {"rich_markup_mode": None, "pretty_exceptions_enable": False}


class CommandTable(TyperGroup):
    """The commands by name; each is built when it is called."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        # Names and summaries alone: see get_command.
        self.commands = {
            name: TyperCommand(name, help=command.summary, rich_markup_mode=None) for name, command in COMMANDS.items()
        }
        self._is_listing = False

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import and build the command; None if there is none of that name."""
        if cmd_name not in COMMANDS:
            return None
        if self._is_listing:
            return self.commands[cmd_name]
        if cmd_name not in READERS:
            from fedchain.learning.registry import use_current_folder

            use_current_folder()
        table, command = typer.Typer(add_completion=False, **_PLAIN), COMMANDS[cmd_name].load()
        if isinstance(command, typer.Typer):
            table.add_typer(command, name=cmd_name)
        else:
            from fedchain.cli.common.command import GroupedCommand

            table.command(cmd_name, cls=GroupedCommand)(command)
        built = typer.main.get_group(table).commands[cmd_name]
        if ctx.resilient_parsing:  # nothing is run: the shell asks for completions
            from fedchain.cli.common.completion import offer_names

            offer_names(built)
        return built

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands with their summaries."""
        with self._listing():
            super().format_commands(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Complete the name of a command."""
        with self._listing():
            return super().shell_complete(ctx, incomplete)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with _writing():
            value = super().invoke(ctx)
            sys.stdout.flush()
        return value

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Read the command line; ``--help`` is answered here."""
        with _writing():
            return super().make_context(info_name, args, parent, **extra)

    def main(self, *arguments: Any, **given: Any) -> Any:
        """Run a command line, and exit; a wrong one is answered with one line and exit code 2."""
        if not given.get("standalone_mode", True):
            return super().main(*arguments, **given)
        try:
            code = super().main(*arguments, **given | {"standalone_mode": False})
        except typer.TyperException as error:
            typer.echo(usage_line(error, COMMANDS), err=True)
            sys.exit(EXIT_BAD_INPUT)
        except typer.Abort:
            sys.exit(EXIT_INTERRUPTED)
        sys.exit(code if isinstance(code, int) else 0)

    @contextmanager
    def _listing(self) -> Iterator[None]:
        self._is_listing = True
        try:
            yield
        finally:
            self._is_listing = False


app = typer.Typer(
    name="fedchain",
    cls=CommandTable,
    help="Decentralized federated learning: peers train, mine and verify the global state together.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    **_PLAIN,
)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False) -> None:
    if version:
        typer.echo(f"fedchain {fedchain.__version__}")
        raise typer.Exit()


@contextmanager
def _writing() -> Iterator[None]:
    """End the command if its output cannot be written: quietly where its reader closed it, else with one line."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        from fedchain.cli.common.hangup import is_hung_up

        hung_up = is_hung_up(error)
        # The interpreter would flush the rest at its end, and report an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise typer.Exit(EXIT_CLOSED_PIPE) from None
        if hung_up:
            raise typer.Exit(EXIT_INTERRUPTED) from None
        typer.echo(f"fedchain: input or output: {error.strerror or error}", err=True)
        raise typer.Exit(EXIT_BAD_INPUT) from None


def main() -> None:
    """Run the ``fedchain`` command. A service manager's or a batch system's SIGTERM is taken as Ctrl-C, and so is a
    terminal that closes, unless the command was started to outlive it, or by a service manager, which has none.

    Characters that the output's encoding lacks are escaped, as Python does on standard error.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if os.environ.get("NOTIFY_SOCKET") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)  # a node that runs says that it is ignored
        closing = [signal.SIGINT]
    else:
        closing = [signal.SIGINT, signal.SIGHUP]
    taken = [number for number in closing if signal.getsignal(number) is not signal.SIG_IGN]
    for number in taken:
        signal.signal(number, signal.default_int_handler)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app()
    finally:
        for number in (signal.SIGTERM, *taken):  # what Python does at its end is broken off without a traceback
            signal.signal(number, signal.SIG_DFL)
        _let_go_of_terminal()


def _let_go_of_terminal() -> None:
    """Drop what a terminal that has closed did not take: at Python's end it would be an error of its own."""
    if not isinstance(sys.stdout, TextIOWrapper) or sys.stdout.closed:
        return
    try:
        sys.stdout.flush()
    except OSError as error:
        from fedchain.cli.common.hangup import drop_output, is_hung_up

        if is_hung_up(error):
            drop_output()
