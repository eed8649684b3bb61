"""The command table. A command's own module is imported when that command is asked for, and no other's."""

import signal
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import fedchain

if TYPE_CHECKING:
    from fedchain.chain.genesis import Genesis
    from fedchain.learning.application import Application


def _simulate() -> Callable[..., None]:
    from fedchain.simulator.cli import simulate_command

    return simulate_command()


def _reproduce() -> Callable[..., None]:
    from fedchain.simulator.cli import reproduce

    return reproduce


def _data() -> Callable[..., None]:
    from fedchain.node.data_cli import data

    return data


def _plan() -> Callable[..., None]:
    from fedchain.simulator.cli import plan

    return plan


def _attack() -> typer.Typer:
    from fedchain.simulator.attack_cli import attack_app

    return attack_app


def _vectors() -> Callable[..., None]:
    return vectors


def _node() -> typer.Typer:
    from fedchain.node.cli import node_app

    return node_app


def _keys() -> typer.Typer:
    from fedchain.node.keys_cli import keys_app

    return keys_app


def _genesis() -> typer.Typer:
    from fedchain.node.genesis_cli import genesis_app

    return genesis_app


def _explorer() -> typer.Typer:
    from fedchain.chain.explorer.cli import explorer_app

    return explorer_app(rules_of)


COMMANDS: Mapping[str, Callable[[], typer.Typer | Callable[..., None]]] = MappingProxyType(
    {
        "simulate": _simulate,
        "reproduce": _reproduce,
        "data": _data,
        "plan": _plan,
        "attack": _attack,
        "vectors": _vectors,
        "node": _node,
        "keys": _keys,
        "genesis": _genesis,
        "explorer": _explorer,
    }
)
"""Name of each command, and what imports it; in the order in which help lists them."""

_PLAIN: Mapping[str, Any] = {"add_completion": False, "rich_markup_mode": None, "pretty_exceptions_enable": False}


class CommandTable(TyperGroup):
    """The commands by name; each is built when it is asked for."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = {name: TyperCommand(name) for name in COMMANDS}  # names alone: see get_command

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import and build the command; None if there is none of that name."""
        if cmd_name not in COMMANDS:
            return None
        table, command = typer.Typer(**_PLAIN), COMMANDS[cmd_name]()
        if isinstance(command, typer.Typer):
            table.add_typer(command, name=cmd_name)
        else:
            table.command(cmd_name)(command)
        return typer.main.get_group(table).commands[cmd_name]


app = typer.Typer(
    name="fedchain",
    cls=CommandTable,
    help="Decentralized federated learning: peers train, mine and verify the global state together.",
    no_args_is_help=True,
    **_PLAIN,
)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False) -> None:
    if version:
        typer.echo(f"fedchain {fedchain.__version__}")
        raise typer.Exit()


def rules_of(genesis: "Genesis") -> "Application":
    """What the explorer needs to know about learning; imports the method, so only when it is asked for."""
    from fedchain.node.task import rules_of as read_rules

    return read_rules(genesis)


def vectors() -> None:
    """Print bytes and hashes of one of everything, for whoever writes a peer in another language."""
    from fedchain.node.vectors import print_vectors

    print_vectors()


def main() -> None:
    """Run the ``fedchain`` command. A service manager's or a batch system's SIGTERM is taken as Ctrl-C."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    app()


if __name__ == "__main__":
    main()
