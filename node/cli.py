"""``fedchain keys``, ``genesis`` and ``node``. Nothing heavy is imported before a command runs."""

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from fedchain.node.command import EXIT_DIFFERENT, clear_errors, free_folder

PASSPHRASE_VARIABLE = "FEDCHAIN_PASSPHRASE"

TASK_HELP = "Members train on own data: MODULE:FUNCTION that returns (model, train set, test set)."

keys_app = typer.Typer(help="Make and show key files.", no_args_is_help=True)
genesis_app = typer.Typer(help="Found a federation.", no_args_is_help=True)
node_app = typer.Typer(help="Run peers on a real network.", no_args_is_help=True)


@keys_app.command("new")
def new_key(
    path: Annotated[Path, typer.Argument(help="File to write; it must not exist.")],
    plain: Annotated[
        bool, typer.Option("--plain", help="Do not encrypt it; for machines without an operator.")
    ] = False,
) -> None:
    """Make a key and write it, encrypted with a passphrase that is asked for (or taken from FEDCHAIN_PASSPHRASE)."""
    from fedchain.crypto.address import address
    from fedchain.crypto.keys import PrivateKey

    with clear_errors():
        passphrase = None if plain else _new_passphrase()
        key = PrivateKey.generate()
        key.save(path, passphrase)
        typer.echo(address(key.public_key))


@keys_app.command("show")
def show_key(path: Annotated[Path, typer.Argument(help="Key file.")]) -> None:
    """Show the address of a key, which is also its libp2p peer id."""
    from fedchain.crypto.address import address

    with clear_errors():
        typer.echo(address(load_key(path).public_key))


@genesis_app.command("new")
def new_genesis(
    path: Annotated[Path, typer.Argument(help="File to write; it must not exist.")],
    member: Annotated[list[str], typer.Option(help="Address of a member; repeat it. The order is the partition's.")],
    name: Annotated[str, typer.Option(help="What people call the federation.")] = "federation",
    method: Annotated[str, typer.Option(help="Learning method.")] = "dfpl",
    dataset: Annotated[str, typer.Option(help="Data set [default: digits].")] = "",
    task: Annotated[str, typer.Option(help=TASK_HELP)] = "",
    setting: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Hyper-parameter of the method.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Root of the randomness of learning.")] = 0,
    rounds: Annotated[int, typer.Option(help="The federation ends after this many rounds; 0: never.")] = 0,
    mining_s: Annotated[float, typer.Option(help="Seconds that mining shall take.")] = 4.0,
    attempts: Annotated[int, typer.Option(help="Hashes behind the first block; later ones follow mining_s.")] = 8_000,
    phase_timeout_s: Annotated[float, typer.Option(help="Seconds that a phase waits for expected posts.")] = 60.0,
    fault_model: Annotated[
        str, typer.Option(help="What members may do wrong: byzantine (up to a third, anything) or crash (up to half).")
    ] = "byzantine",
    contribution_quorum: Annotated[
        int, typer.Option(help="Fewest posts that close a phase; 0: a quorum of its contributors.")
    ] = 0,
    retention_blocks: Annotated[
        int, typer.Option(help="Blocks whose payloads are kept; older ones are dropped. 0: keep all.")
    ] = 1_000,
) -> None:
    """Write the founding document of a federation, and print its chain id."""
    with clear_errors():
        import time

        from fedchain.chain.difficulty import bits_from_attempts
        from fedchain.crypto.address import public_key_from_address
        from fedchain.learning.config import OWN, LearningConfig
        from fedchain.learning.rules import Rules
        from fedchain.node.config import NodeConfigError
        from fedchain.node.task import found_federation, milliseconds, read_settings, with_shapes

        if path.exists():
            raise NodeConfigError(f"{path} exists already; a genesis document is never overwritten")
        if attempts < 1:
            raise NodeConfigError(f"attempts is {attempts}, must be at least 1")
        config = LearningConfig(
            method=method,
            hyperparameters=read_settings(setting or []),
            dataset=dataset or (OWN if task else "digits"),
            task=task,
            clients=len(member),
            seed=seed,
        )
        config = with_shapes(config)
        config.validate()
        genesis = found_federation(
            config,
            Rules(config),
            [public_key_from_address(text) for text in member],
            name=name,
            created_ms=time.time_ns() // 1_000_000,
            rounds=rounds,
            initial_bits=bits_from_attempts(attempts),
            target_mining_time_ms=milliseconds("mining_s", mining_s),
            phase_timeout_ms=milliseconds("phase_timeout_s", phase_timeout_s),
            fault_model=_choose_fault_model(fault_model),
            contribution_quorum=contribution_quorum,
            retention_blocks=retention_blocks,
        )
        try:
            with path.open("xb") as file:
                file.write(genesis.encode())
        except OSError as error:
            raise NodeConfigError(f"{path} cannot be written: {error.strerror}") from None
        typer.echo(genesis.chain_id.hex())


@genesis_app.command("show")
def show_genesis(path: Annotated[Path, typer.Argument(help="Genesis document.")]) -> None:
    """Show a genesis document."""
    with clear_errors():
        from dataclasses import fields

        from fedchain.crypto.address import address
        from fedchain.node.run import read_genesis

        genesis = read_genesis(path)
        typer.echo(f"{'chain id':28}{genesis.chain_id.hex()}")
        for item in fields(genesis):
            value: Any = getattr(genesis, item.name)
            if item.name == "members":
                for member in value:
                    typer.echo(f"{'member':28}{address(member)}")
            elif item.name == "learning":
                for field_name, text in value:
                    typer.echo(f"{'learning ' + field_name:28}{text}")
            elif item.name in ("setup", "phases"):
                typer.echo(f"{item.name:28}{', '.join(f'{phase.name} ({phase.by.value})' for phase in value) or '-'}")
            elif item.init:
                typer.echo(f"{item.name:28}{getattr(value, 'value', value)}")


@node_app.command("start")
def start(
    config: Annotated[Path | None, typer.Argument(metavar="[NODE.toml]", help="Settings file.")] = None,
    genesis: Annotated[str | None, typer.Option(help="Genesis document.")] = None,
    key: Annotated[str | None, typer.Option(help="Key file.")] = None,
    data: Annotated[str | None, typer.Option(help="Folder for the chain and everything else the node keeps.")] = None,
    data_dir: Annotated[str | None, typer.Option(help="Folder of the data set; default: FEDCHAIN_DATA.")] = None,
    task: Annotated[
        str | None, typer.Option(help="MODULE:FUNCTION that loads this peer's own data, where the members have them.")
    ] = None,
    listen: Annotated[str | None, typer.Option(help="Address to listen on [default: /ip4/0.0.0.0/tcp/4001].")] = None,
    bootstrap: Annotated[list[str] | None, typer.Option(help="Member to connect to first; repeat it.")] = None,
    announce: Annotated[list[str] | None, typer.Option(help="Address to tell others; repeat it.")] = None,
    metrics: Annotated[
        str | None, typer.Option(help="HOST:PORT to serve Prometheus metrics on [default: none].")
    ] = None,
    replay: Annotated[
        bool, typer.Option("--replay", help="Recompute every missed aggregate instead of joining at the head.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log what was refused, and why.")] = False,
) -> None:
    """Run a peer until Ctrl-C. Started again, it continues where it was."""
    given = {"genesis": genesis, "key": key, "data": data, "data_dir": data_dir, "task": task, "listen": listen}
    given |= {"metrics": metrics, "replay": replay}
    lists = {"bootstrap": bootstrap, "announce": announce}
    with clear_errors():
        from fedchain.node.config import load_config
        from fedchain.node.console import set_up_logging, show_service
        from fedchain.node.run import run_node

        overrides = {name: value for name, value in (given | lists).items() if value}
        settings = load_config(config, overrides)
        set_up_logging(verbose)
        run_node(settings, load_key(Path(settings.key)), show_service if sys.stdout.isatty() else None)


@node_app.command("status")
def status(
    folder: Annotated[Path, typer.Argument(help="Data folder of the node.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Ask a running node for head, round, phase, peers, and what it is waiting for."""
    with clear_errors():
        import json

        from fedchain.node.config import NodeConfigError
        from fedchain.node.console import status_lines
        from fedchain.node.status import ask_status

        answer = ask_status(folder)
        if answer is None:
            raise NodeConfigError(f"no node answers in {folder}; is it running?")
        if as_json:
            typer.echo(json.dumps(answer, indent=2))
            return
        for line in status_lines(answer):
            typer.echo(line)


@node_app.command("testnet")
def run_local(
    peers: Annotated[int, typer.Option(min=1, help="Node processes.")] = 5,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds.")] = 5,
    method: Annotated[str, typer.Option(help="Learning method.")] = "dfpl",
    dataset: Annotated[str, typer.Option(help="Data set [default: digits].")] = "",
    task: Annotated[str, typer.Option(help=TASK_HELP)] = "",
    data_dir: Annotated[str, typer.Option(help="Folder of the data set; default: FEDCHAIN_DATA.")] = "",
    setting: Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Hyper-parameter.")] = None,
    seed: Annotated[int, typer.Option(help="Root of the randomness of learning.")] = 0,
    mining_s: Annotated[float, typer.Option(help="Seconds that mining shall take.")] = 2.0,
    timeout_s: Annotated[float, typer.Option(help="The run fails if it has not ended by then.")] = 600.0,
    out: Annotated[Path | None, typer.Option(help="Folder to create; default: runs/testnet.")] = None,
) -> None:
    """Run real node processes on this machine's loopback interface until the last round is closed."""
    with clear_errors():
        from fedchain.learning.config import OWN, LearningConfig
        from fedchain.node.task import read_settings, with_shapes
        from fedchain.node.testnet import run_testnet

        config = LearningConfig(
            method=method,
            hyperparameters=read_settings(setting or []),
            dataset=dataset or (OWN if task else "digits"),
            task=task,
            data_dir=data_dir,
            clients=peers,
            seed=seed,
        )
        config = with_shapes(config)
        config.validate()
        folder = out or free_folder("testnet")
        if not run_testnet(folder, config, rounds, mining_s=mining_s, attempts=4_000, timeout_s=timeout_s):
            raise typer.Exit(EXIT_DIFFERENT)


def load_key(path: Path) -> Any:
    """Read a key file; the passphrase comes from FEDCHAIN_PASSPHRASE or, on a terminal, from the operator."""
    from fedchain.crypto.keys import PrivateKey
    from fedchain.node.config import NodeConfigError

    try:
        encrypted = path.exists() and b"ENCRYPTED" in path.read_bytes()[:64]
    except OSError as error:
        raise NodeConfigError(f"{path} cannot be read: {error.strerror}") from None
    passphrase = os.environ.get(PASSPHRASE_VARIABLE)
    if encrypted and passphrase is None and sys.stdin.isatty():
        passphrase = typer.prompt("Passphrase", hide_input=True, err=True)
    return PrivateKey.load(path, passphrase if encrypted else None)


def _choose_fault_model(text: str) -> Any:
    from fedchain.chain.genesis import FaultModel
    from fedchain.node.config import NodeConfigError

    names = [model.value for model in FaultModel]
    if text not in names:
        raise NodeConfigError(f"fault_model is {text!r}, it must be one of {', '.join(names)}")
    return FaultModel(text)


def _new_passphrase() -> str:
    given = os.environ.get(PASSPHRASE_VARIABLE)
    passphrase: str = given or typer.prompt("Passphrase", hide_input=True, confirmation_prompt=True, err=True)
    return passphrase
