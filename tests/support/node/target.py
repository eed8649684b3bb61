"""A node process under attack: a federation whose other members' keys the test holds, and the process's figures."""

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fedchain.chain.genesis import Genesis
from fedchain.crypto.keys import PrivateKey
from fedchain.files.layout import BAN_FILE, GENESIS_FILE
from fedchain.learning.config import LearningConfig
from fedchain.node.founding.consensus import Consensus
from fedchain.node.operating.local_node import LocalNode, stop_all
from fedchain.node.operating.status import ask_status
from fedchain.node.operating.testnet import found_testnet
from tests.support.node.shell import wait_until

PATIENT = """
import functools, json, sys
import fedchain.network.libp2p.network as network
network.Limits = functools.partial(network.Limits, **json.loads(sys.argv.pop(1)))
from fedchain.cli.main import main
sys.argv[0] = "fedchain"
main()
"""
"""Starts a node as it is but for some of its limits, which a federation cannot choose."""


@dataclass(slots=True)
class Target:
    """Node 0 of a federation, in a process of its own.

    Attributes:
        nodes: all nodes of the federation; the others run only while the chain is grown.
        keys: their keys, in the same order.
        genesis: what they agreed on.
    """

    nodes: list[LocalNode]
    keys: list[PrivateKey]
    genesis: Genesis

    @property
    def node(self) -> LocalNode:
        """The process that is attacked."""
        return self.nodes[0]

    @property
    def pid(self) -> int:
        assert self.node.process is not None, "it was started"
        return self.node.process.pid

    @property
    def log(self) -> Path:
        return self.node.folder / "node.log"

    def start(self, **limits: float) -> None:
        """Start the process with nobody banned, with other ``limits`` if there are any, and wait until it answers."""
        (self.node.folder / BAN_FILE).unlink(missing_ok=True)
        command = self.node.command
        if limits:
            self.node.command = [sys.executable, "-c", PATIENT, json.dumps(limits), *command[3:]]
        self.node.start()
        self.node.command = command
        wait_until(lambda: ask_status(self.node.folder), "a status")

    def stop(self) -> None:
        stop_all([self.node])

    def is_alive(self) -> bool:
        return self.node.process is not None and self.node.process.poll() is None

    def forget_peak(self) -> None:
        """Begin to measure the largest memory anew."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5", encoding="ascii")

    def peak_mb(self) -> float:
        """Largest resident memory since :meth:`forget_peak`, in MB."""
        for line in Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
        return 0.0

    def cpu_s(self) -> float:
        """CPU seconds of the process, without its workers."""
        words = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def log_lines(self) -> int:
        return len(self.log.read_bytes().splitlines())


@contextmanager
def target(members: int, height: int = 0, **options: Any) -> Iterator[Target]:
    """A federation of ``members``, and node 0's process with a chain of ``height`` blocks, not running yet.

    The chain is grown by real nodes, all but the last one, which is the attacker's.
    """
    settings: dict[str, Any] = {"hyperparameters": {"local_steps": 1}, "partition": "iid", "clients": members}
    config = LearningConfig(method="dfpl", dataset="digits", **settings)
    consensus = {"phase_timeout_s": 2.0, **options}
    with TemporaryDirectory(prefix="fedchain-soak-") as folder:
        nodes = found_testnet(
            Path(folder, "nodes"), config, Consensus(rounds=0, mining_s=0.5, mining_attempts=200, **consensus)
        )
        keys = [PrivateKey.load(node.folder / "key.pem") for node in nodes]
        genesis = Genesis.decode(Path(folder, "nodes", GENESIS_FILE).read_bytes())
        found = Target(nodes, keys, genesis)
        try:
            if height:
                _grow(nodes[:-1], height)
            yield found
        finally:
            stop_all(nodes)


def _grow(nodes: list[LocalNode], height: int) -> None:
    for node in nodes:
        node.start()
    wait_until(lambda: _height(nodes[0]) >= height, f"height {height}", timeout_s=600)
    stop_all(nodes)


def _height(node: LocalNode) -> int:
    node.look()
    time.sleep(0.2)
    return int(node.status.get("height", 0))
