"""``python -m tests.soak bulk``: real processes that send each other hundreds of megabytes by reference.

Two of three members send the aggregator 200 MB each in a round, which no compression shrinks. The aggregator is killed
while it fetches them and started again: what it had fetched it fetches no more, the round closes with all posts, and
no process holds more than a few parts in memory.
"""

import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedchain.chain.storage.sqlite import Store
from fedchain.files.layout import CHAIN_FOLDER
from fedchain.learning.client import Client
from fedchain.learning.config import LearningConfig
from fedchain.learning.payload.bulk import AGGREGATOR
from fedchain.learning.payload.part_folder import PARTS, PartFolder
from fedchain.learning.round import Round, Tensors
from fedchain.node.founding.consensus import Consensus
from fedchain.node.operating.local_node import LocalNode, stop_all
from fedchain.node.operating.testnet import found_testnet, free_ports
from tests.soak._figures import Figures, campaign
from tests.support.learning.relay import WIDTH, Relay
from tests.support.node.processes import height, kill, log_of
from tests.support.node.shell import wait_until, workers_of

PEERS, ROUNDS = 3, 2
PART_ROWS, PARTS_OF_POST = 16_384, 48
PART_BYTES = 4 * PART_ROWS * WIDTH
TIMEOUT_S = 300.0
NODE_RSS_MAX_MB, TRAINER_RSS_MAX_MB = 400.0, 700.0


@dataclass(frozen=True, kw_only=True)
class LargeRelay(Relay):
    """The same with parts of 4 MiB that are all noise."""

    rows: int = PART_ROWS
    parts_of_post: int = PARTS_OF_POST

    def send(self, client: Client, round: Round) -> Tensors:
        assert round.bulk is not None
        draw = np.random.default_rng([client.index, round.number])
        for _ in range(self.parts_of_post):
            round.bulk.write("sent", {"rows": draw.standard_normal((self.rows, WIDTH), np.float32)}, AGGREGATOR)
        return round.bulk.manifest()


def main() -> None:
    """Kill the aggregator while it fetches, and see what it fetches again."""
    with campaign("bulk") as (figures, folder):
        config = LearningConfig(method="tests.soak.bulk:LargeRelay", clients=PEERS, partition="iid")
        nodes = found_testnet(
            folder / "net",
            config,
            Consensus(rounds=ROUNDS, mining_s=1.0, mining_attempts=4_000, phase_timeout_s=120.0, aggregator="fixed"),
        )
        peaks: dict[str, float] = {}
        aggregator, metrics = nodes[0], f"127.0.0.1:{free_ports(1)[0]}"
        aggregator.command += ["--set", f"metrics={metrics}"]
        try:
            for node in nodes:
                node.start()
            wait_until(lambda: watch(nodes, peaks) and height(aggregator) >= 1, "the setup is closed", TIMEOUT_S)
            everything = PEERS * PARTS_OF_POST
            begun_s = time.monotonic()
            wait_until(
                lambda: watch(nodes, peaks) and len(parts_of(aggregator)) >= everything // 2, "half is there", 300
            )
            before = parts_of(aggregator)
            kill(aggregator)
            figures.show(
                f"killed with {len(before)} of {everything + PEERS} parts, {(time.monotonic() - begun_s):.1f} s in"
            )
            missing = everything - sum(1 for name in before if name in parts_of(aggregator))
            aggregator.start()
            wait_until(lambda: watch(nodes, peaks) and height(aggregator) >= 3, "the first round is closed", TIMEOUT_S)
            received = received_bytes(metrics)
            wait_until(
                lambda: watch(nodes, peaks) and height(nodes[1]) >= 2 * ROUNDS + 1, "all rounds are closed", TIMEOUT_S
            )
            took_s = time.monotonic() - begun_s
        finally:
            stop_all(nodes)
        judge(figures, nodes, peaks)
        figures.require(
            received <= 1.25 * missing * PART_BYTES + 20e6,
            f"{missing * PART_BYTES / 2**20:.0f} MiB were missing after the restart, {received / 2**20:.0f} MiB came",
        )
        sent_mb = ROUNDS * (PEERS - 1) * PARTS_OF_POST * PART_BYTES / 1e6
        figures.show(f"{sent_mb:.0f} MB to the aggregator in {took_s:.1f} s, restart included")


def received_bytes(place: str) -> float:
    """Bytes of messages that have come to a node since it started."""
    with urllib.request.urlopen(f"http://{place}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return next(
        float(line.split()[1]) for line in lines if line.startswith('fedchain_message_bytes_total{direction="in"}')
    )


def parts_of(node: LocalNode) -> dict[str, float]:
    """Names of the parts that a node has, and when each was written."""
    return {path.name: path.stat().st_mtime for path in (node.folder / PARTS).glob("??/*") if not path.suffix}


def watch(nodes: list[LocalNode], peaks: dict[str, float]) -> bool:
    """Note the most that any process has held."""
    for node in nodes:
        if node.process is not None and node.process.poll() is None:
            for pid, kind in [
                (node.process.pid, "node"),
                *((pid, "trainer") for pid in workers_of(node.process.pid, "train")),
            ]:
                peaks[kind] = max(peaks.get(kind, 0.0), rss_mb(pid))
    return True


def rss_mb(pid: int) -> float:
    """The most that a process has held so far."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)


def judge(figures: Figures, nodes: list[LocalNode], peaks: dict[str, float]) -> None:
    """Require that every post was counted, and that memory did not grow with what was sent."""
    with Store.open(nodes[1].folder / CHAIN_FOLDER, read_only=True) as store:
        finals = [store.final(number) for number in range(1, 2 * ROUNDS + 2)]
    posts = [len(found[0].transactions) for found in finals if found is not None]
    figures.require(posts == [PEERS, *([PEERS, 1] * ROUNDS)], f"posts of each block: {posts}")
    figures.require(peaks["node"] <= NODE_RSS_MAX_MB, f"a node held {peaks['node']:.0f} MB at most")
    figures.require(peaks["trainer"] <= TRAINER_RSS_MAX_MB, f"a trainer held {peaks['trainer']:.0f} MB at most")
    for node in nodes:
        left = PartFolder(node.folder / PARTS).size_bytes() / 1e6
        figures.show(f"member {node.number} keeps {left:.0f} MB of parts")
        figures.require("Traceback" not in log_of(node), f"no error in the log of member {node.number}")


if __name__ == "__main__":
    main()
