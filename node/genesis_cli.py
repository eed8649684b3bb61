"""``fedchain genesis``: founding a federation. Nothing heavy is imported before a command runs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from fedchain.node.aggregator import AGGREGATOR_HELP, AUTO, CENTRALIZED_HELP, choose_aggregator
from fedchain.node.command import ENCRYPTION_HELP, TASK_HELP, clear_errors
from fedchain.node.learning_options import with_learning_options

MEMBER_HELP = "Address of a member; repeat it. The order is the partition's, and a dedicated aggregator is the last."

genesis_app = typer.Typer(help="Found a federation.", no_args_is_help=True)


@genesis_app.command("new")
@with_learning_options
def new_genesis(
    path: Annotated[Path, typer.Argument(help="File to write; it must not exist.")],
    member: Annotated[list[str], typer.Option(help=MEMBER_HELP)],
    name: Annotated[str, typer.Option(help="What people call the federation.")] = "federation",
    method: Annotated[str, typer.Option(help="Learning method.")] = "dfpl",
    dataset: Annotated[str, typer.Option(help="Data set [default: digits].")] = "",
    task: Annotated[str, typer.Option(help=TASK_HELP)] = "",
    setting: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Hyper-parameter of the method.")
    ] = None,
    encryption: Annotated[str, typer.Option(help=ENCRYPTION_HELP)] = "",
    seed: Annotated[int, typer.Option(help="Root of the randomness of learning.")] = 0,
    rounds: Annotated[int, typer.Option(help="The federation ends after this many rounds; 0: never.")] = 0,
    mining_s: Annotated[float, typer.Option(help="Seconds that mining shall take.")] = 4.0,
    attempts: Annotated[int, typer.Option(help="Hashes behind the first block; later ones follow mining_s.")] = 8_000,
    phase_timeout_s: Annotated[float, typer.Option(help="Seconds that a phase waits for expected posts.")] = 60.0,
    fault_model: Annotated[
        str, typer.Option(help="What members may do wrong: byzantine (up to a third, anything) or crash (up to half).")
    ] = "byzantine",
    aggregator: Annotated[str, typer.Option(help=AGGREGATOR_HELP)] = AUTO,
    centralized: Annotated[bool, typer.Option("--centralized", help=CENTRALIZED_HELP)] = False,
    contribution_quorum: Annotated[
        int, typer.Option(help="Fewest posts that close a phase; 0: a quorum of its contributors.")
    ] = 0,
    retention_blocks: Annotated[
        int, typer.Option(help="Blocks whose payloads are kept; older ones are dropped. 0: keep all.")
    ] = 1_000,
    *,
    learning: Mapping[str, Any],
) -> None:
    """Write the founding document of a federation, and print its chain id.

    For a federation that encrypts, this is the dealer: it makes the keys, writes each member's share beside the
    document, sealed, and forgets them. Run it on a machine that is trusted.
    """
    with clear_errors():
        import os
        import time
        from dataclasses import replace

        from fedchain.chain.difficulty import bits_from_attempts
        from fedchain.chain.genesis import AggregatorRule
        from fedchain.crypto.address import public_key_from_address
        from fedchain.learning.application import Application
        from fedchain.learning.config import OWN, LearningConfig
        from fedchain.learning.registry import use_current_folder
        from fedchain.node.config import NodeConfigError
        from fedchain.node.dealing import deal_keys, dealing_path
        from fedchain.node.task import found_federation, milliseconds, read_settings, with_shapes

        if path.exists():
            raise NodeConfigError(f"{path} exists already; a genesis document is never overwritten")
        if attempts < 1:
            raise NodeConfigError(f"attempts is {attempts}, must be at least 1")
        config = LearningConfig(
            method=method,
            hyperparameters=read_settings(setting or [], encryption),
            dataset=dataset or (OWN if task else "digits"),
            task=task,
            clients=len(member),
            seed=seed,
            **learning,
        )
        if task:
            use_current_folder()
        rule = choose_aggregator(config, aggregator, centralized=centralized)
        config = with_shapes(replace(config, clients=len(member) - (rule is AggregatorRule.DEDICATED)))
        config.validate()
        members = [public_key_from_address(text) for text in member]
        config, dealing = deal_keys(config, members, os.urandom)
        sealed = dealing_path(path)
        genesis = found_federation(
            config,
            Application(config),
            members,
            name=name,
            created_ms=time.time_ns() // 1_000_000,
            rounds=rounds,
            initial_bits=bits_from_attempts(attempts),
            target_mining_time_ms=milliseconds("mining_s", mining_s),
            phase_timeout_ms=milliseconds("phase_timeout_s", phase_timeout_s),
            aggregator=rule,
            centralized=centralized,
            fault_model=_choose_fault_model(fault_model),
            contribution_quorum=contribution_quorum,
            retention_blocks=retention_blocks,
        )
        if dealing is not None:  # first: shares without a document are of no harm
            _write_new(sealed, dealing.encode())
        _write_new(path, genesis.encode())
        typer.echo(genesis.chain_id.hex())
        if dealing is not None:
            typer.echo(f"each member runs: fedchain keys install-share KEY {sealed} --genesis {path}", err=True)


@genesis_app.command("show")
def show_genesis(
    path: Annotated[Path, typer.Argument(help="Genesis document.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show a genesis document."""
    with clear_errors():
        import json

        from fedchain.chain.explorer.founding import describe_genesis, plain_genesis
        from fedchain.node.run import read_genesis

        genesis = read_genesis(path)
        if as_json:
            typer.echo(json.dumps(plain_genesis(genesis), indent=2))
            return
        for label, text in describe_genesis(genesis):
            typer.echo(f"{label:28}{text}")


def _write_new(path: Path, data: bytes) -> None:
    from fedchain.node.config import NodeConfigError

    try:
        with path.open("xb") as file:
            file.write(data)
    except OSError as error:
        raise NodeConfigError(f"{path} cannot be written: {error.strerror}") from None


def _choose_fault_model(text: str) -> Any:
    from fedchain.chain.genesis import FaultModel
    from fedchain.node.config import NodeConfigError

    names = [model.value for model in FaultModel]
    if text not in names:
        raise NodeConfigError(f"fault_model is {text!r}, it must be one of {', '.join(names)}")
    return FaultModel(text)
