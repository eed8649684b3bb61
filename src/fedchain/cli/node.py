"""``fedchain node``: run peers on a real network. Nothing heavy is imported before a command runs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from fedchain.cli.bans import bans, unban
from fedchain.cli.check import check
from fedchain.cli.common.command import clear_errors
from fedchain.cli.common.exit_codes import EXIT_BAD_INPUT, EXIT_DIFFERENT
from fedchain.cli.common.learning_options import Chosen, with_learning_options
from fedchain.cli.common.running import run
from fedchain.cli.common.shared import Sharing
from fedchain.cli.common.start_options import with_node_options
from fedchain.cli.membership.joining import invite, join, recover
from fedchain.cli.membership.members import amend, approve, away, back, leave, members, rekey, remove
from fedchain.cli.privacy import privacy
from fedchain.files.layout import free_folder
from fedchain.node.founding.aggregator import choose_aggregator
from fedchain.node.founding.consensus import Attempts, Blocks, Founding, MiningTime, Timeout
from fedchain.node.founding.effects import validate_effects
from fedchain.wording import counted


def _shared(
    folder: Annotated[Path, typer.Argument(help="Data folder of the node.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.", rich_help_panel="Output")] = False,
) -> None:
    """Arguments and options of several commands."""


node_app = Sharing(_shared, help="Run peers on a real network.")


@node_app.command("start")
@with_node_options
def start(
    file: Path | None,
    overrides: Callable[[], Mapping[str, Any]],
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Log what was refused, and why.", rich_help_panel="Output")
    ] = False,
) -> None:
    """Run a peer until Ctrl-C. Started again, it continues where it was."""
    with clear_errors() as complaints:
        from fedchain.node.config import load_config

        run(load_config(file, overrides()), complaints, verbose=verbose)


node_app.command("check")(check)


@node_app.command("status")
def status(
    folder: Path,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="One line, for monitoring; ends with 0: goes on, 1: stands, 2: no answer.",
            rich_help_panel="Output",
        ),
    ] = False,
    *,
    as_json: bool,
) -> None:
    """Ask a running node for head, round, phase, peers, and what it is waiting for."""
    with clear_errors():
        from fedchain.files.json_text import to_json
        from fedchain.node.config import NodeConfigError
        from fedchain.node.operating.console import check_line, status_lines
        from fedchain.node.operating.status import ask

        try:
            answer = ask(folder, {"ask": "status"})
        except NodeConfigError as error:  # it does not answer, or not this user
            if not check:
                raise
            typer.echo(f"no answer: {error}")
            raise typer.Exit(EXIT_BAD_INPUT) from None
        if check:
            code, line = check_line(answer)
            typer.echo(line)
            raise typer.Exit(code)
        if answer is None:
            raise NodeConfigError(f"no node answers in {folder}; is it running?")
        if as_json:
            typer.echo(to_json(answer, indent=2))
            return
        for line in status_lines(answer):
            typer.echo(line)


@dataclass(frozen=True, slots=True, kw_only=True)
class TestnetSettings(Founding):
    """Settings of a test network beside those of learning."""

    mining_s: MiningTime = 2.0
    mining_attempts: Attempts = 4_000
    retention_blocks: Blocks = 0
    timeout_s: Timeout = 600.0
    """Seconds without a new block at any node after which the run fails."""
    data_dir: str = ""
    """Folder of the data set; default: FEDCHAIN_DATA."""


class Action(StrEnum):
    """Actions on a test network."""

    RUN = "run"
    STOP = "stop"


@node_app.command("testnet")
@with_learning_options(TestnetSettings)
def run_local(
    action: Annotated[Action, typer.Argument(help="stop: stop the nodes of --out, or of all under runs.")] = Action.RUN,
    *,
    peers: Annotated[
        int,
        typer.Option(min=1, help="Nodes with data; a dedicated aggregator is one more.", rich_help_panel="Federation"),
    ] = 5,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds.", rich_help_panel="Federation")] = 5,
    chosen: Chosen[TestnetSettings],
    out: Annotated[
        Path | None, typer.Option(help="Folder to create; default: runs/testnet.", rich_help_panel="Output")
    ] = None,
    log: Annotated[
        bool, typer.Option("--log", help="Show what all nodes log instead of a table.", rich_help_panel="Output")
    ] = False,
) -> None:
    """Run real node processes on this machine's loopback interface until the last round is closed.

    A node that ends meanwhile can be started again by the script that is named then.
    """
    with clear_errors():
        if action is Action.STOP:
            _stop_testnets(out)
            return
        from fedchain.learning.config import LearningConfig
        from fedchain.learning.registry import importable_name, is_file_path
        from fedchain.node.founding.task import with_shapes
        from fedchain.node.operating.testnet import found_testnet, run_testnet

        words, settings = chosen()
        method, words["method"] = words["method"], importable_name(words["method"])
        parts = settings.count_parts(peers)
        config = with_shapes(LearningConfig(clients=peers, data_dir=settings.data_dir, **words))
        rule = choose_aggregator(config, settings)
        config.validate()
        validate_effects(config, settings)
        nodes = found_testnet(
            out or free_folder("testnet"),
            config,
            replace(settings, rounds=rounds),
            modules=Path(method.rpartition(":")[0]).resolve().parent if is_file_path(method) else None,
            parts=parts,
        )
        is_one_chain = run_testnet(nodes, rule, settings.timeout_s, shows_logs=log)
        if not is_one_chain:
            raise typer.Exit(EXIT_DIFFERENT)


def _stop_testnets(out: Path | None) -> None:
    """Stop the nodes of one test network, or of all in the folder of runs."""
    from fedchain.files.layout import RUNS_FOLDER
    from fedchain.node.config import NodeConfigError
    from fedchain.node.operating.testnet import find_silent, is_testnet, stop_testnet

    if out is not None and not is_testnet(out):
        raise NodeConfigError(f"{out} is no folder of a test network")
    stopped, silent = 0, list[str]()
    for folder in sorted(RUNS_FOLDER.glob("*")) if out is None else [out]:
        if numbers := stop_testnet(folder):
            stopped += len(numbers)
            typer.echo(f"{folder}: stopped {counted(len(numbers), 'node')}")
        silent += find_silent(folder)
    if silent:
        raise NodeConfigError(f"{'; '.join(silent)}; such a node is not stopped: end its process")
    if not stopped:
        typer.echo("no node runs" if out is None else f"{out}: no node runs")


@node_app.command("repair")
def repair_chain(folder: Path) -> None:
    """Check all that a node has stored, and drop what is damaged; a chain that does not open is set aside.

    The node must not run; the folder of the chain may be named instead. The missing parts are fetched from the other
    members when the node starts. A damaged file of its training process is set aside as well.
    """
    with clear_errors():
        from fedchain.chain.storage.repair import describe_repair, repair
        from fedchain.files.layout import TRAINING_FILE
        from fedchain.files.places import chain_folder, holds_chain
        from fedchain.node.workers.training_file import repair_training

        if holds_chain(folder):
            chain = chain_folder(folder)
            typer.echo(describe_repair(repair(chain)))
            folder = chain.absolute().parent
            said = repair_training(folder / TRAINING_FILE)
        elif not (said := repair_training(folder.absolute() / TRAINING_FILE)):  # a backup has no chain
            repair(folder)
        if said:
            typer.echo(said)


node_app.command("bans")(bans)
node_app.command("unban")(unban)
node_app.command("privacy")(privacy)
node_app.command("members")(members)
node_app.command("invite")(invite)
node_app.command("join")(join)
node_app.command("approve")(approve)
node_app.command("amend")(amend)
node_app.command("leave")(leave)
node_app.command("remove")(remove)
node_app.command("away")(away)
node_app.command("back")(back)
node_app.command("rekey")(rekey)
node_app.command("recover")(recover)
