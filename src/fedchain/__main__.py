"""The command table. Each command's own module is imported when the command runs."""

import signal
from typing import TYPE_CHECKING, Annotated

import typer

import fedchain
from fedchain.chain.explorer.cli import explorer_app
from fedchain.node.bans_cli import bans, unban
from fedchain.node.cli import node_app
from fedchain.node.data_cli import data
from fedchain.node.genesis_cli import genesis_app
from fedchain.node.keys_cli import keys_app
from fedchain.simulator.cli import plan, reproduce, simulate_command

if TYPE_CHECKING:
    from fedchain.chain.genesis import Genesis
    from fedchain.learning.application import Application

app = typer.Typer(
    name="fedchain",
    help="Decentralized federated learning: peers train, mine and verify the global state together.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False) -> None:
    if version:
        typer.echo(f"fedchain {fedchain.__version__}")
        raise typer.Exit()


def rules_of(genesis: "Genesis") -> "Application":
    """What the explorer needs to know about learning; imports torch, so only when it is asked for."""
    from fedchain.node.task import rules_of as read_rules

    return read_rules(genesis)


app.command("simulate")(simulate_command())
app.command("reproduce")(reproduce)
app.command("data")(data)
app.command("plan")(plan)
node_app.command("bans")(bans)
node_app.command("unban")(unban)
app.add_typer(node_app, name="node")
app.add_typer(keys_app, name="keys")
app.add_typer(genesis_app, name="genesis")
app.add_typer(explorer_app(rules_of), name="explorer", help="Inspect a chain: a run folder's or a node's.")


@app.command("vectors")
def vectors() -> None:
    """Print bytes and hashes of one of everything, for whoever writes a peer in another language."""
    from fedchain.node.vectors import print_vectors as print_all

    print_all()


def main() -> None:
    """Run the ``fedchain`` command. A service manager's or a batch system's SIGTERM is taken as Ctrl-C."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    app()


if __name__ == "__main__":
    main()
