"""The command table. A command's own module is imported when that command is asked for, and no other's."""

if __name__ == "__main__":
    from fedchain.cli.entry import end_when_interrupted

    end_when_interrupted()  # before the other imports, which take a while

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import fedchain
from fedchain.cli.entry import EXIT_INTERRUPTED

if TYPE_CHECKING:
    from pathlib import Path

    from fedchain.chain.genesis import Genesis
    from fedchain.cli.explorer import RulesOf
    from fedchain.learning.application import Application


def _simulate() -> Callable[..., None]:
    from fedchain.cli.simulate import simulate_command

    return simulate_command()


def _reproduce() -> Callable[..., None]:
    from fedchain.cli.simulate import reproduce

    return reproduce


def _data() -> Callable[..., None]:
    from fedchain.cli.data import data

    return data


def _runs() -> Callable[..., None]:
    from fedchain.cli.folders import runs

    return runs


def _compare() -> Callable[..., None]:
    from fedchain.cli.compare import compare_command

    return compare_command()


def _methods() -> Callable[..., None]:
    from fedchain.cli.methods import methods

    return methods


def _plan() -> Callable[..., None]:
    from fedchain.cli.simulate import plan

    return plan


def _attack() -> typer.Typer:
    from fedchain.cli.attack import attack_app

    return attack_app


def _model() -> typer.Typer:
    from fedchain.cli.model import model_app

    return model_app


def _node() -> typer.Typer:
    from fedchain.cli.node import node_app

    return node_app


def _keys() -> typer.Typer:
    from fedchain.cli.keys import keys_app

    return keys_app


def _genesis() -> typer.Typer:
    from fedchain.cli.genesis import genesis_app

    return genesis_app


def _explorer() -> typer.Typer:
    from fedchain.cli.explorer import explorer_app

    return explorer_app(rules_with, serve_web, report_web)


COMMANDS: Mapping[str, Callable[[], typer.Typer | Callable[..., None]]] = MappingProxyType(
    {
        "simulate": _simulate,
        "compare": _compare,
        "reproduce": _reproduce,
        "runs": _runs,
        "model": _model,
        "methods": _methods,
        "data": _data,
        "plan": _plan,
        "attack": _attack,
        "node": _node,
        "keys": _keys,
        "genesis": _genesis,
        "explorer": _explorer,
    }
)
"""Name of each command, and what imports it; in the order in which help lists them."""

SUMMARIES: Mapping[str, str] = MappingProxyType(
    {
        "simulate": "Run a federation of many peers on this machine.",
        "compare": "Run methods side by side; print what each reached.",
        "reproduce": "Run a paper's experiment; print its table beside theirs.",
        "runs": "List the runs in a folder.",
        "model": "Take trained models out of a run or a node; measure them.",
        "methods": "List the learning methods, or show one.",
        "data": "Show the data sets, and fetch them.",
        "plan": "Divide a time budget between training and mining.",
        "attack": "Try what others could read in what members post.",
        "node": "Run peers on a real network.",
        "keys": "Make and show key files.",
        "genesis": "Found a federation.",
        "explorer": "Inspect a chain: a run folder's or a node's.",
    }
)
"""What ``fedchain --help`` says of each command, so that it imports none of them."""

READERS = frozenset({"explorer", "runs"})
"""Commands that read what strangers may have written: they import no module because it lies in the current folder."""

EXIT_BAD_INPUT = 2
"""The command line is wrong; standard error says why in one line."""

EXIT_CLOSED_PIPE = 141
"""Whoever read the output closed it, as shells count a program that SIGPIPE ended."""

_PLAIN: Mapping[str, Any] = {"rich_markup_mode": None, "pretty_exceptions_enable": False}


class CommandTable(TyperGroup):
    """The commands by name; each is built when it is asked for."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        # Names and summaries alone: see get_command.
        self.commands = {name: TyperCommand(name, help=SUMMARIES[name], rich_markup_mode=None) for name in COMMANDS}
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
        table, command = typer.Typer(add_completion=False, **_PLAIN), COMMANDS[cmd_name]()
        if isinstance(command, typer.Typer):
            table.add_typer(command, name=cmd_name)
        else:
            from fedchain.cli.command import GroupedCommand

            table.command(cmd_name, cls=GroupedCommand)(command)
        built = typer.main.get_group(table).commands[cmd_name]
        if ctx.resilient_parsing:  # nothing is run: the shell asks how a word goes on
            from fedchain.cli.completion import offer_names

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
        """Run the command; who reads its output may close it."""
        try:
            value = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # The interpreter flushes what is left when it ends, and would complain.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(EXIT_CLOSED_PIPE) from None
        return value

    def main(self, *arguments: Any, **given: Any) -> Any:
        """Run a command line, and exit; one that is wrong is answered with one line and exit code 2."""
        if not given.get("standalone_mode", True):
            return super().main(*arguments, **given)
        try:
            code = super().main(*arguments, **given | {"standalone_mode": False})
        except typer.TyperException as error:
            typer.echo(usage_line(error), err=True)
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


def usage_line(error: typer.TyperException) -> str:
    """What is wrong with a command line, in one line; the help of a command that needs more words is shown whole."""
    message = error.format_message()
    if message.startswith("Usage: "):
        return message
    text = " ".join(message.split()).rstrip(".")
    for pattern, words in _WORDS:
        text = pattern.sub(words, text)
    context = getattr(error, "ctx", None)
    begun = " ".join(["fedchain", *(word for word in sys.argv[1:2] if word in COMMANDS)])
    command = begun if context is None else context.command_path
    return f"fedchain: {text}{'' if text.endswith('?') else ';'} see {command} --help"


_WORDS = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (r"^Invalid value for '([^']+)': (.*)$", r"\1: \2"),
        (r"^(\S+): ('.*'|\S+) is not a valid int.*$", r"\1 is \2, it must be a whole number"),
        (r"^(\S+): ('.*'|\S+) is not a valid float.*$", r"\1 is \2, it must be a number"),
        (r"^(\S+): (\S+) is not in the range (.*)$", r"\1 is \2, it must be in the range \3"),
        (r"^No such (option|command):? '?([^' ]+)'?", r"there is no \1 \2"),
        (r"\. Did you mean ", "; did you mean "),
        (r"^Missing (\S+ .*)$", r"\1 is missing"),
        (r"^Got unexpected extra argument\(?s?\)? \((.*)\)", r"nothing is known of \1"),
    )
)
"""What the library's messages become, so that they read as all others do."""


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


def rules_with(methods: "Sequence[str]") -> "RulesOf":
    """What the explorer needs to know about learning; imports the method, so only when it is asked for.

    Files that are named are imported at once, so that a wrong name is told before anything is shown.
    """

    def rules_of(genesis: "Genesis") -> "Application":
        from fedchain.node.task import rules_with as read_with

        return read_with(())(genesis)

    if methods:
        from fedchain.node.task import rules_with as read_with

        return read_with(methods)
    return rules_of


def serve_web(folders: "Sequence[Path]", rules: "RulesOf", host: str, port: int, hosts: "Sequence[str]") -> None:
    """Show chains in a browser; imports a web server, so only when it is asked for."""
    from fedchain.node.web.serving import serve

    serve(folders, rules, host, port, hosts)


def report_web(folders: "Sequence[Path]", rules: "RulesOf", path: "Path") -> None:
    """Write a chain to an HTML file; imports templates, so only when it is asked for."""
    from fedchain.node.web.report import write_report

    write_report(folders, rules, path)


def main() -> None:
    """Run the ``fedchain`` command. A service manager's or a batch system's SIGTERM is taken as Ctrl-C."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    app()


if __name__ == "__main__":
    main()
