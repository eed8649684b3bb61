"""How fast a node answers while it trains and mines: ``python -m tests.soak responsive [--seconds 30]``.

Two nodes on this machine, and a third, light process that asks one of them a question every 20 ms over its real
network: first while they have nothing to do, then while both train and mine without an end.
"""

import argparse
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import trio

from fedchain.crypto.keys import PrivateKey
from fedchain.files.layout import GENESIS_FILE
from fedchain.learning.config import LearningConfig
from fedchain.node.founding.consensus import Consensus
from fedchain.node.founding.genesis_file import read_genesis
from fedchain.node.operating.local_node import LocalNode, stop_all
from fedchain.node.operating.testnet import found_testnet
from tests.soak._figures import campaign, percentile
from tests.soak._probe import probing
from tests.support.node.processes import look
from tests.support.node.shell import DIGITS, workers_of

NODES = 2
INTERVAL_S = 0.02
P99_MS_MAX = 20.0
CORES_MIN = 0.5
"""Less was no load; on a machine with other work to do it is less than all."""

START_S = 120.0
STEPS, HASHES = 1_000_000, 10**10
"""Length of one training and one block; no machine gets to their end in time."""

SETTLE_S = 2.0


async def measured(folder: Path, config: LearningConfig, seconds: float, *, busy: bool) -> tuple[list[float], float]:
    """Answer times in seconds of the first node, and how many cores the workers of all nodes kept busy."""
    # Where contributors are drawn, those that wait for slow ones mine an empty block after two timeouts.
    endless: dict[str, Any] = {"contributors_per_round": NODES + 1} if busy else {}
    *nodes, listener = found_testnet(
        folder,
        replace(config, clients=NODES + 1),
        Consensus(rounds=1, mining_s=0.5, mining_attempts=HASHES if busy else 500, phase_timeout_s=2.0, **endless),
    )
    try:
        for node in nodes:
            node.start()
        with trio.fail_after(START_S):
            while not all(map(is_mining_and_training if busy else is_finished, nodes)):
                await trio.sleep(0.1)
        genesis = read_genesis(folder / GENESIS_FILE)
        async with probing(genesis, PrivateKey.load(listener.folder / "key.pem"), nodes[0].address) as probe:
            await trio.sleep(SETTLE_S)
            before = cpu_s(nodes)
            times = await probe.measure(seconds, INTERVAL_S)
            used = (cpu_s(nodes) - before) / seconds
        still = all(map(is_mining_and_training if busy else is_finished, nodes))
        assert still, "the nodes did something else in between"
        return times, used
    finally:
        stop_all(nodes)


def is_finished(node: LocalNode) -> bool:
    """Whether a node has nothing more to do."""
    return look(node).get("finished") is True


def is_mining_and_training(node: LocalNode) -> bool:
    """Whether a node does both."""
    status = look(node)
    return status.get("training") is True and status.get("mining") is True


def cpu_s(nodes: list[LocalNode]) -> float:
    """Processor time that all workers have used, in seconds."""
    total = 0
    for node in nodes:
        assert node.process is not None
        for worker in workers_of(node.process.pid, "train") + workers_of(node.process.pid, "mine"):
            fields = Path(f"/proc/{worker}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])  # user and system time
    return total / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure idle, measure loaded, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0, help="how long each of the two is measured")
    options = parser.parse_args()
    with campaign("responsive") as (figures, folder):
        idle, _ = trio.run(partial(measured, folder / "idle", DIGITS, options.seconds, busy=False))
        figures.show(f"idle:   {summary(idle)}")
        config = replace(DIGITS, hyperparameters={"local_steps": STEPS})
        loaded, cores = trio.run(partial(measured, folder / "loaded", config, options.seconds, busy=True))
        figures.show(f"loaded: {summary(loaded)}")
        figures.require(cores > CORES_MIN, f"training and mining kept {cores:.2f} of {os.cpu_count()} cores busy")
        p99_ms = 1000 * percentile(loaded, 99)
        figures.require(p99_ms <= P99_MS_MAX, f"99 % of answers within {p99_ms:.1f} ms, {P99_MS_MAX:.0f} allowed")


def summary(times: list[float]) -> str:
    """The figures of answer times."""
    p50, p99, slowest = (1000 * percentile(times, percent) for percent in (50, 99, 100))
    return f"p50 {p50:.1f} ms, p99 {p99:.1f} ms, slowest {slowest:.1f} ms of {len(times)}"


if __name__ == "__main__":
    main()
