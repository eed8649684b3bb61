"""The explorer in a browser over a long chain: how long its pages take, how much memory it holds, what a node feels."""

import http.client
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
from rich.table import Table

from fedchain.chain.storage.sqlite import Store
from fedchain.chain.storage.store import Content
from fedchain.crypto.hashing import sha256
from fedchain.learning.application import Application
from fedchain.learning.config import LearningConfig
from fedchain.learning.models.shapes import infos_of
from fedchain.learning.payload.codec import encode
from fedchain.node.task import found_federation, rules_of
from tests.chain.builders import CREATED_MS, EASY_BITS, ChainBuilder, keys, post

MEMBERS, BLOCKS, BLOCKS_AT_ONCE = 10, 10_000, 100

REQUESTS = 300
"""Of each page; no two in a row ask for the same, and none is answered from memory."""

TABS = 100
WATCHED_S = 30.0
"""How long a node is watched with open tabs, and without."""


def bench_web(*, quick: bool) -> Table:
    """Serve a long chain in a process of its own, and ask for every page."""
    table = Table("explorer serve", "p50", "p99", "target", "CPU, mean", title="The explorer in a browser", box=None)
    blocks = BLOCKS // 10 if quick else BLOCKS
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        write_long_chain(Path(folder) / "long", blocks)
        pid, port = stack.enter_context(_served(Path(folder) / "long"))
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        begun = time.perf_counter()
        while b"still being read" in _get(connection, "/long/")[1]:
            time.sleep(0.1)
        table.add_row(f"{blocks:,} blocks read", f"{time.perf_counter() - begun:.1f} s", "", "")
        for name, paths in _pages(connection, blocks).items():
            count, spent_s = REQUESTS // 10 if quick else REQUESTS, _cpu_s(pid)
            times = sorted(_get(connection, next(paths))[0] for _ in range(count))
            p50, p99 = times[len(times) // 2], times[int(len(times) * 0.99)]
            cpu_ms = 1000 * (_cpu_s(pid) - spent_s) / count
            table.add_row(name, f"{1000 * p50:.0f} ms", f"{1000 * p99:.0f} ms", "≤ 100 ms", f"{cpu_ms:.0f} ms")
        table.add_row("resident memory, most", f"{_peak_mb(pid):.0f} MB", "", "≤ 150 MB")
    alone, watched = _node_cpu(5.0 if quick else WATCHED_S)
    table.add_row(
        f"CPU of an idle node, {TABS} tabs", f"{100 * watched:.2f} %", f"{100 * alone:.2f} % without", "+ ≤ 2 %"
    )
    return table


def write_long_chain(folder: Path, blocks: int) -> None:
    """A valid chain of class prototypes, each block with a post of every member; only its end is held in memory."""
    config = LearningConfig(clients=MEMBERS)
    members, info = [key.public_key for key in keys(MEMBERS)], infos_of(config)[0]
    consensus = {"initial_bits": EASY_BITS, "proof_function": "sha256d"}
    genesis = found_federation(
        config, Application(config), members, name="long", created_ms=CREATED_MS, rounds=0, **consensus
    )
    chain, rng = ChainBuilder(genesis, rules_of(genesis)), np.random.default_rng(0)
    with Store.create(folder / "chain", genesis) as store:
        for _ in range(0, blocks, BLOCKS_AT_ONCE):
            added = []
            for _ in range(BLOCKS_AT_ONCE):
                posts = []
                for place, _ in sorted(enumerate(members), key=lambda item: item[1]):
                    labels = np.arange(place % 7, place % 7 + 4)
                    rows = rng.normal(size=(4, info.embedding_size)).astype(np.float32)
                    payload = encode({"labels": labels, "counts": np.full(4, 9), "prototypes": rows})
                    chain.contents[sha256(payload)] = payload
                    posts.append(post(keys(MEMBERS)[place], genesis, chain.state.round, payload))
                added.append(chain.extend(posts=posts))
            store.append([*map(chain.final, added), *(Content(key, data) for key, data in chain.contents.items())])
            tip, before = added[-1], added[-1].header.parent_hash
            chain.blocks = {tip.hash: tip}
            chain.states = {before: chain.states[before], tip.hash: chain.states[tip.hash]}
            chain.contents = {tip.header.knowledge_root: chain.contents[tip.header.knowledge_root]}


@contextmanager
def _served(folder: Path) -> Iterator[tuple[int, int]]:
    """Process id and port of a server of the chain in a folder."""
    command = [sys.executable, "-m", "fedchain", "explorer", "serve", str(folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            yield process.pid, int(line.split("/")[2].rpartition(":")[2])
        finally:
            process.terminate()


def _pages(connection: http.client.HTTPConnection, blocks: int) -> dict[str, Iterator[str]]:
    """Addresses of every page by its name, without end."""
    rng = random.Random(0)
    heights = [rng.randrange(1, blocks + 1) for _ in range(50)]
    views = [json.loads(_get(connection, f"/api/v1/long/block/{height}")[1]) for height in heights]
    hashes = [view["summary"]["hash"] for view in views]
    posts = [item["hash"] for view in views for item in view["transactions"]]

    def endless(path: str, values: list[str]) -> Iterator[str]:
        while True:
            place = path.format(rng.choice(values))
            yield f"{place}{'&' if '?' in place else '?'}n={rng.random()}"

    names = [str(height) for height in heights]
    return {
        name: endless(f"/long/{path}" if path != "compare" else "/compare", values)
        for name, path, values in (
            ("overview", "", [""]),
            ("blocks", "blocks?to={}", names),
            ("block by height", "block/{}", names),
            ("block by hash", "block/{}", hashes),
            ("rounds", "rounds?to={}", names),
            ("round", "round/{}", names),
            ("members", "members", [""]),
            ("member", "member/{}", [str(place) for place in range(MEMBERS)]),
            ("knowledge", "knowledge/{}", names),
            ("post", "tx/{}", posts),
            ("proof", "proof/{}", posts),
            ("search", "search?q={}", [item[:6] for item in posts]),
            ("genesis", "genesis", [""]),
            ("compare", "compare", [""]),
        )
    }


def _get(connection: http.client.HTTPConnection, path: str) -> tuple[float, bytes]:
    """Seconds that an answer took, and what it was."""
    begun = time.perf_counter()
    connection.request("GET", path)
    answer = connection.getresponse()
    data = answer.read()
    assert answer.status in (200, 303), (path, answer.status, data[:300])
    return time.perf_counter() - begun, data


def _peak_mb(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmHWM:")[1].split()[0]) / 1024


def _node_cpu(watched_s: float) -> tuple[float, float]:
    """CPU of one node of four that waits for the others, as a share of a core: alone, and with open tabs."""
    from fedchain.node.status import ask_status
    from fedchain.node.testnet import found_testnet, stop_all

    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name) / "net"
        node = found_testnet(folder, LearningConfig(clients=4), 1, mining_s=2.0, attempts=4_000)[0]
        node.start()
        stack.callback(stop_all, [node])
        assert node.process is not None
        while (ask_status(node.folder) or {"training": True})["training"]:
            time.sleep(0.2)
        time.sleep(3)  # what it does after its training
        alone = _spent(node.process.pid, watched_s)
        _, port = stack.enter_context(_served(node.folder))
        for _ in range(TABS):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            stack.callback(connection.close)
            connection.request("GET", "/node-0/events")
            connection.getresponse()
        return alone, _spent(node.process.pid, watched_s)


def _spent(pid: int, seconds: float) -> float:
    """CPU of a process over some seconds, as a share of a core."""
    before, begun = _cpu_s(pid), time.monotonic()
    time.sleep(seconds)
    return (_cpu_s(pid) - before) / (time.monotonic() - begun)


def _cpu_s(pid: int) -> float:
    """CPU seconds that a process has spent, of the user and of the system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
