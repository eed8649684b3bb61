"""A test network: real node processes on loopback, with fresh keys and a genesis document, shown together."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, assert_never

from rich.live import Live
from rich.table import Table

from fedchain.chain.difficulty import bits_from_attempts
from fedchain.chain.genesis import AggregatorRule
from fedchain.crypto.address import address
from fedchain.crypto.keys import PrivateKey
from fedchain.files.layout import GENESIS_FILE, KEY_FILE, LOG_FILE, node_folder
from fedchain.learning.application import Application
from fedchain.learning.config import LearningConfig
from fedchain.learning.registry import MODULES_VARIABLE
from fedchain.node.config import NodeConfigError
from fedchain.node.custody.dealing import deal_keys, install_share
from fedchain.node.founding.aggregator import count_members
from fedchain.node.founding.task import found_federation, milliseconds
from fedchain.node.operating.console import percent
from fedchain.node.operating.status import ask_status
from fedchain.terminal import Console, Fitted

BOOTSTRAP_PEERS = 3
"""Earlier nodes that each node is given as bootstrap peers; it learns of the others from them."""

PEERS_MAX = 64
"""Most nodes on one machine; each is three processes."""

STOP_TIMEOUT_S = 20.0
"""Time that a node may take to stop."""


@dataclass(slots=True)
class LocalNode:
    """One node of the test network; its output is in ``node.log`` in its folder."""

    number: int
    folder: Path
    address: str
    """Multiaddr of the node, with its peer id."""
    command: list[str]
    """The command that starts it, the first time and after it was killed."""
    process: "subprocess.Popen[bytes] | None" = None
    status: dict[str, Any] = field(default_factory=dict)
    """Its last status; empty before the first one."""
    modules: Path | None = None
    """Folder of the method's module, if Python would not find it otherwise."""

    def start(self) -> None:
        """Start the process."""
        with (self.folder / LOG_FILE).open("ab") as log:
            # A session of its own: Ctrl-C is ours to pass on, once.
            self.process = subprocess.Popen(
                self.command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env=_environment(self.modules),
            )

    def look(self) -> None:
        """Ask for its status; raises NodeConfigError, with its last line of output, if the process has ended."""
        self.status = ask_status(self.folder) or self.status
        if self.process is not None and self.process.poll() is not None:
            raise NodeConfigError(f"node {self.number} ended: {_last_line(self.folder / 'node.log')}")


def _environment(modules: Path | None) -> dict[str, str]:
    """Environment of a process that also imports from a folder."""
    return dict(os.environ) if modules is None else os.environ | {MODULES_VARIABLE: str(modules)}


def run_testnet(
    folder: Path,
    config: LearningConfig,
    rounds: int,
    *,
    mining_s: float,
    attempts: int,
    timeout_s: float,
    modules: Path | None = None,
    **consensus: Any,
) -> bool:
    """Start the nodes of :func:`found_testnet`, show them until the last round is closed, and stop them.

    Returns:
        Whether all ended with the same head.

    Raises:
        NodeConfigError: the folder exists, a node ended early, or the rounds did not close in time.
    """
    if config.clients > PEERS_MAX:
        raise NodeConfigError(f"peers is {config.clients}, at most {PEERS_MAX} processes are started on one machine")
    timeout_s = milliseconds("timeout_s", timeout_s) / 1000
    nodes = found_testnet(folder, config, rounds, mining_s=mining_s, attempts=attempts, modules=modules, **consensus)
    console = Console()
    if said := name_aggregator(consensus.get("aggregator", AggregatorRule.NONE), len(nodes)):
        console.print(said)
    try:
        for node in nodes:
            node.start()
        _watch(nodes, console, timeout_s)
    finally:
        stop_all(nodes)
    heads = {node.status["head"] for node in nodes}
    console.print(status_table(nodes))
    console.print(f"genesis  {nodes[0].status['chain_id']}\nfolder   {folder}")
    console.print("all nodes have the same head" if len(heads) == 1 else f"{len(heads)} different heads")
    return len(heads) == 1


def name_aggregator(rule: AggregatorRule, count: int) -> str:
    """A line that says which of ``count`` nodes is the designated aggregator; empty if there is none."""
    match rule:
        case AggregatorRule.NONE:
            return ""
        case AggregatorRule.FIXED:
            return "the aggregator is node 0"
        case AggregatorRule.ROTATING:
            return "the nodes take turns as aggregator"
        case AggregatorRule.DEDICATED:
            return f"the aggregator is node {count - 1}, which has no data"
        case _:
            assert_never(rule)


def found_testnet(
    folder: Path,
    config: LearningConfig,
    rounds: int,
    *,
    mining_s: float,
    attempts: int,
    modules: Path | None = None,
    **consensus: Any,
) -> list[LocalNode]:
    """Write keys, genesis document and folders of nodes without starting them: one for each of the task's clients,
    and one for a dedicated aggregator.

    Args:
        folder: the folder to create.
        config: the learning task.
        rounds: number of rounds after which the federation ends.
        mining_s: target mining time in seconds.
        attempts: expected number of hashes for the first block.
        modules: folder of the method's module, if nodes would not find it otherwise.
        consensus: further fields of the genesis document.

    Raises:
        NodeConfigError: the folder exists.
    """
    target_mining_time_ms = milliseconds("mining_s", mining_s)
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise NodeConfigError(f"{folder} exists already; name another folder with --out") from None
    except OSError as error:
        raise NodeConfigError(f"{folder} cannot be made: {error.strerror}") from None
    rule = consensus.get("aggregator", AggregatorRule.NONE)
    keys = [PrivateKey.generate() for _ in range(count_members(config, rule))]
    config, dealing = deal_keys(config, [key.public_key for key in keys], os.urandom)
    genesis = found_federation(
        config,
        Application(config),
        [key.public_key for key in keys],
        name="testnet",
        created_ms=time.time_ns() // 1_000_000,
        rounds=rounds,
        initial_bits=bits_from_attempts(attempts),
        target_mining_time_ms=target_mining_time_ms,
        **consensus,
    )
    (folder / GENESIS_FILE).write_bytes(genesis.encode())
    nodes: list[LocalNode] = []
    for number, (key, port) in enumerate(zip(keys, free_ports(len(keys)), strict=True)):
        own = node_folder(folder, number)
        own.mkdir()
        key.save(own / KEY_FILE)
        if dealing is not None:
            install_share(own / KEY_FILE, key, None, dealing, number)
        place = f"/ip4/127.0.0.1/tcp/{port}"
        command = [sys.executable, "-m", "fedchain", "node", "start", "--listen", place, "--data", str(own)]
        command += ["--genesis", str(folder / GENESIS_FILE), "--key", str(own / KEY_FILE)]
        command += ["--set", f"data_dir={json.dumps(config.data_dir)}"] if config.data_dir else []
        command += ["--task", config.task] if config.task else []
        for other in nodes[:BOOTSTRAP_PEERS]:
            command += ["--bootstrap", other.address]
        nodes.append(LocalNode(number, own, f"{place}/p2p/{address(key.public_key)}", command, modules=modules))
    return nodes


def _watch(nodes: list[LocalNode], console: Console, timeout_s: float) -> None:
    """Show the nodes until all have closed the last round and agree on the head."""
    deadline_s, shown = time.monotonic() + timeout_s, 0
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            for node in nodes:
                node.look()
            if console.is_terminal:
                live.update(status_table(nodes), refresh=True)
            height = max(node.status.get("height", 0) for node in nodes)
            if height > shown and not console.is_terminal:
                shown = height
                console.print(f"height {height}")
            if all(node.status.get("finished") for node in nodes) and len({n.status["head"] for n in nodes}) == 1:
                return
            if time.monotonic() > deadline_s:
                raise NodeConfigError(f"the last round was not closed within {timeout_s:.0f} s; see {nodes[0].folder}")
            time.sleep(0.3)


def stop_all(nodes: Sequence[LocalNode]) -> None:
    """Stop every node that runs, as Ctrl-C would; kill those that do not stop."""
    running = [node.process for node in nodes if node.process is not None and node.process.poll() is None]
    for process in running:
        process.send_signal(signal.SIGINT)
    for process in running:
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()  # its workers end with it
            process.wait()


def status_table(nodes: Sequence[LocalNode]) -> Fitted:
    """A table of the nodes' states that fits a terminal of 80 columns."""
    table = Table(header_style="bold")
    for name in ("node", "height", "round", "peers", "accuracy"):
        table.add_column(name, no_wrap=True, justify="right")
    table.add_column("head", no_wrap=True)
    table.add_column("waiting for")
    for node in nodes:
        now = node.status
        if not now:
            table.add_row(str(node.number), "-", "-", "-", "-", "-", "its start")
            continue
        numbers = (node.number, now["height"], now["round"], len(now["peers"]), percent(now["accuracy"]))
        table.add_row(*map(str, numbers), now["head"][:12], now["waiting_for"])
    return Fitted(table, gap=1)


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "no reason was given"


def free_ports(count: int) -> list[int]:
    """Free ports. All are held until the last one is found, so no two are the same."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
