"""A test network: real node processes on loopback, with fresh keys and a genesis document, shown together."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from fedchain.chain.difficulty import bits_from_attempts
from fedchain.crypto.address import address
from fedchain.crypto.keys import PrivateKey
from fedchain.learning.config import LearningConfig
from fedchain.learning.rules import Rules
from fedchain.node.config import NodeConfigError
from fedchain.node.run import STATUS_SOCKET
from fedchain.node.task import found_federation

BOOTSTRAP_PEERS = 3
"""Nodes that a new one is told of; it learns of the others from them."""

STOP_TIMEOUT_S = 20.0
"""How long a node may take to stop."""


@dataclass(slots=True)
class LocalNode:
    """One process of the test network."""

    number: int
    folder: Path
    address: str
    """Multiaddr with its peer id."""
    process: "subprocess.Popen[bytes]"
    status: dict[str, Any]
    """Its last answer; empty before the first."""


def run_testnet(
    folder: Path, config: LearningConfig, rounds: int, *, mining_s: float, attempts: int, timeout_s: float
) -> bool:
    """Start ``config.clients`` nodes in ``folder``, show them until the last round is closed, and stop them.

    Returns:
        Whether all ended with the same head.

    Raises:
        NodeConfigError: the folder exists, a node ended early, or the rounds did not close in time.
    """
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise NodeConfigError(f"{folder} exists already; name another folder with --out") from None
    keys = [PrivateKey.generate() for _ in range(config.clients)]
    genesis = found_federation(
        config,
        Rules(config),
        [key.public_key for key in keys],
        name="testnet",
        created_ms=time.time_ns() // 1_000_000,
        rounds=rounds,
        initial_bits=bits_from_attempts(attempts),
        target_mining_time_ms=round(mining_s * 1000),
    )
    (folder / "genesis.fedchain").write_bytes(genesis.encode())
    console = Console(highlight=False)
    nodes = _start_all(folder, keys, config.data_dir)
    try:
        _watch(nodes, console, timeout_s)
    finally:
        _stop_all(nodes)
    heads = {node.status["head"] for node in nodes}
    console.print(_table(nodes))
    console.print(f"genesis  {genesis.chain_id.hex()}\nfolder   {folder}")
    console.print("all nodes have the same head" if len(heads) == 1 else f"[bold red]{len(heads)} different heads")
    return len(heads) == 1


def _start_all(folder: Path, keys: Sequence[PrivateKey], data_dir: str) -> list[LocalNode]:
    nodes: list[LocalNode] = []
    for number, key in enumerate(keys):
        own = folder / f"node-{number}"
        own.mkdir()
        key.save(own / "key.pem")
        place = f"/ip4/127.0.0.1/tcp/{_free_port()}"
        command = [sys.executable, "-m", "fedchain", "node", "start", "--listen", place, "--data", str(own)]
        command += ["--genesis", str(folder / "genesis.fedchain"), "--key", str(own / "key.pem")]
        command += ["--data-dir", data_dir] if data_dir else []
        for other in nodes[:BOOTSTRAP_PEERS]:
            command += ["--bootstrap", other.address]
        with (own / "node.log").open("wb") as log:
            # A session of its own: Ctrl-C is ours to pass on, once.
            process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )
        nodes.append(LocalNode(number, own, f"{place}/p2p/{address(key.public_key)}", process, {}))
    return nodes


def _watch(nodes: list[LocalNode], console: Console, timeout_s: float) -> None:
    """Show the nodes until all have closed the last round and agree on the head."""
    deadline_s, shown = time.monotonic() + timeout_s, 0
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            for node in nodes:
                node.status = ask_status(node.folder) or node.status
                if node.process.poll() is not None:
                    raise NodeConfigError(f"node {node.number} ended: {_last_line(node.folder / 'node.log')}")
            if console.is_terminal:
                live.update(_table(nodes), refresh=True)
            height = max(node.status.get("height", 0) for node in nodes)
            if height > shown and not console.is_terminal:
                shown = height
                console.print(f"height {height}")
            if all(node.status.get("finished") for node in nodes) and len({n.status["head"] for n in nodes}) == 1:
                return
            if time.monotonic() > deadline_s:
                raise NodeConfigError(f"the last round was not closed within {timeout_s:.0f} s; see {nodes[0].folder}")
            time.sleep(0.3)


def ask_status(folder: Path) -> dict[str, Any] | None:
    """Ask the node that runs in ``folder``; None if none answers."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(5.0)
            connection.connect(str(folder / STATUS_SOCKET))
            with connection.makefile("rb") as file:
                answer: dict[str, Any] = json.loads(file.read())
                return answer
    except (OSError, ValueError):
        return None


def _stop_all(nodes: Sequence[LocalNode]) -> None:
    for node in nodes:
        if node.process.poll() is None:
            node.process.send_signal(signal.SIGINT)
    for node in nodes:
        try:
            node.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(node.process.pid, signal.SIGKILL)


def _table(nodes: Sequence[LocalNode]) -> Table:
    table = Table(box=None, padding=(0, 1), header_style="bold")
    for name in ("node", "height", "head", "knowledge", "round", "peers", "accuracy", "waiting for"):
        table.add_column(name, no_wrap=True)
    for node in nodes:
        now = node.status
        if not now:
            table.add_row(str(node.number), "-", "-", "-", "-", "-", "-", "its start")
            continue
        accuracy = "-" if now["accuracy"] is None else f"{100 * now['accuracy']:.1f} %"
        table.add_row(
            str(node.number),
            str(now["height"]),
            now["head"][:12],
            now["knowledge_root"][:12],
            str(now["round"]),
            str(len(now["peers"])),
            accuracy,
            now["waiting_for"],
        )
    return table


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "no reason was given"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
