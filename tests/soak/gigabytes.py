"""``python -m tests.soak gigabytes [--layers 30] [--width 4096] [--rounds 1] [--compression none] [--retention 1000]
[--method scaffold]``: posts of 2 GB.

Three nodes learn a model of many tensors that is 2 GB, a post of which each member fetches from the others. One of them
is killed when half of its post has come to another one and started again, and to one node the disk refuses more than a
third of a post for a while. If there is a second round, the third node is killed in it and started again. For each node
the disk has to hold four contents of each block that is retained, and of the one that is made. The rounds close with
all posts, and neither a node nor its training process ever holds more than three of the largest tensors and 300 MB in
memory of its own (RssAnon). Pages of files, which the system drops when it needs room, are shown apart.

By default the method holds no gradients but a layer's. Another one is a built-in method, whose vectors, if it posts
any, count as tensors.
"""

import argparse
import os
import resource
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from fedchain.chain.storage.sqlite import Store
from fedchain.files.layout import CHAIN_FOLDER
from fedchain.learning.application import Application
from fedchain.learning.task.custom import describe_task, load_task
from fedchain.node.founding.consensus import Consensus
from fedchain.node.operating.local_node import LocalNode, stop_all
from fedchain.node.operating.testnet import found_testnet
from tests.soak._figures import Figures, campaign
from tests.support.learning.large_task import LAYERS, WIDTH, large_config
from tests.support.node.processes import height, kill, log_of
from tests.support.node.shell import wait_until, workers_of

PEERS = 3
BESIDE_MB = 300.0
"""Memory of a process that does not depend on the model: Python, torch, and what the network has under way."""


class Peaks:
    """The most that each kind of process has held, looked at all the time."""

    def __init__(self, nodes: list[LocalNode]) -> None:
        self._nodes, self._ended = nodes, threading.Event()
        self.own_mb: dict[str, float] = {}
        """Memory that is in no file, RssAnon, by the process."""
        self.files_mb: dict[str, float] = {}
        """Pages of files, RssFile."""
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Look no more."""
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(0.1):
            for number, node in enumerate(self._nodes):
                if node.process is not None and node.process.poll() is None:
                    self._note(f"node {number}", node.process.pid)
                    for pid in workers_of(node.process.pid, "train"):
                        self._note(f"trainer {number}", pid)

    def _note(self, name: str, pid: int) -> None:
        try:
            lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
        except (FileNotFoundError, ProcessLookupError):
            return
        found = {line.split(":")[0]: int(line.split()[1]) / 1000 for line in lines if line.startswith("Rss")}
        self.own_mb[name] = max(self.own_mb.get(name, 0.0), found.get("RssAnon", 0.0))
        self.files_mb[name] = max(self.files_mb.get(name, 0.0), found.get("RssFile", 0.0))


def spooled(node: LocalNode) -> int:
    """Bytes of the largest content that a node is putting together."""
    sizes = [0]
    for path in (node.folder / CHAIN_FOLDER / "contents" / "spool").glob("*"):
        try:
            sizes.append(path.stat().st_size)
        except FileNotFoundError:
            continue
    return max(sizes)


def story(figures: Figures, nodes: list[LocalNode], post_bytes: int, rounds: int, timeout_s: float) -> None:
    """Start the nodes, do them harm, and wait for the rounds."""
    begun_s = time.monotonic()

    def wait(condition: Callable[[], object], what: str) -> None:
        def look() -> bool:
            ended = [node for node in nodes if node.process is not None and node.process.poll() is not None]
            if ended:
                raise RuntimeError(f"member {ended[0].number} has ended: {log_of(ended[0])[-2000:]}")
            return bool(condition())

        wait_until(look, what, timeout_s)

    for node in nodes:
        node.start()
    author, poor, third = nodes
    assert poor.process is not None
    wait(lambda: "trained round=1" in log_of(poor), "member 1 has trained")
    resource.prlimit(poor.process.pid, resource.RLIMIT_FSIZE, (post_bytes // 3, resource.RLIM_INFINITY))
    wait(lambda: "cannot be kept" in log_of(poor), "the disk of member 1 refuses a post")
    figures.show(f"member 1 could not keep more than {post_bytes / 3e6:.0f} MB, {time.monotonic() - begun_s:.0f} s in")
    resource.prlimit(poor.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    wait(lambda: spooled(poor) > post_bytes // 2, "half of a post has come to member 1")
    kill(author)
    figures.show(f"member 0 killed, {time.monotonic() - begun_s:.0f} s in")
    author.start()
    if rounds > 1:
        wait(lambda: "trained round=2" in log_of(third), "member 2 has trained in round 2")
        kill(third)
        figures.show(f"member 2 killed in round 2, {time.monotonic() - begun_s:.0f} s in")
        third.start()
    for number in range(1, rounds + 1):
        wait(lambda number=number: min(map(height, nodes)) >= number, f"round {number} is closed")  # type: ignore[misc]
        figures.show(f"round {number} closed by all, {time.monotonic() - begun_s:.0f} s in")


def judge(figures: Figures, nodes: list[LocalNode], rounds: int, retained: int) -> None:
    """Require that every post was counted, and that those of the last blocks are here."""
    for node in nodes:
        with Store.open(node.folder / CHAIN_FOLDER, read_only=True) as store:
            finals = [store.final(number) for number in range(1, rounds + 1)]
            posts = [found[0].transactions for found in finals if found is not None]
            whole = all(store.holds_content(post.payload_hash) for block in posts[-retained:] for post in block)
        sizes = [{post.payload_size for post in block} for block in posts]
        counted = [len(block) for block in posts]
        figures.require(counted == [PEERS] * rounds, f"member {node.number}: posts of each block: {counted}")
        figures.require(whole and all(len(found) == 1 for found in sizes), f"all here, of {sizes} bytes each")
        figures.require("Traceback" not in log_of(node), f"no error in the log of member {node.number}")


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--compression", choices=["none", "int8", "topk", "sparse"], default="none")
    parser.add_argument("--retention", type=int, default=1_000)
    parser.add_argument("--method", default=large_config(PEERS).method)
    parser.add_argument("--timeout-s", type=float, default=3000.0)
    options = parser.parse_args()
    os.environ[LAYERS], os.environ[WIDTH] = str(options.layers), str(options.width)
    with campaign("gigabytes") as (figures, folder):
        config = large_config(PEERS)
        hyperparameters = {**dict(config.hyperparameters), "compression": options.compression}
        config = replace(config, method=options.method, hyperparameters=hyperparameters)
        described = describe_task(config, load_task(config.task))
        sizes = [spec.size_bytes_max for spec in Application(described).forms[0].specs["update"]]
        consensus = Consensus(
            rounds=options.rounds,
            mining_s=1.0,
            mining_attempts=4_000,
            phase_timeout_s=options.timeout_s,
            retention_blocks=options.retention,
            version=3,
        )
        nodes = found_testnet(folder / "net", described, consensus)
        tensor_mb = max(sizes) / 1e6
        peaks = Peaks(nodes)
        try:
            story(figures, nodes, sum(sizes), options.rounds, options.timeout_s)
        finally:
            peaks.end()
            stop_all(nodes)
        with Store.open(nodes[0].folder / CHAIN_FOLDER, read_only=True) as store:
            found = store.final(1)
        assert found is not None
        post_bytes = found[0].transactions[0].payload_size
        figures.show(f"{len(sizes)} tensors of up to {tensor_mb:.0f} MB, posts of {post_bytes / 1e6:.0f} MB")
        judge(figures, nodes, options.rounds, options.retention)
        for name, own_mb in sorted(peaks.own_mb.items()):
            bound = 3 * tensor_mb + BESIDE_MB
            text = f"{name} held {own_mb:.0f} MB of its own at most, {bound:.0f} wanted"
            figures.require(own_mb <= bound, f"{text}; pages of files {peaks.files_mb[name]:.0f} MB")


if __name__ == "__main__":
    main()
