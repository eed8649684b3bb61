"""The explorer in a browser over long chains: how long its pages take, how much memory it holds, what a node feels."""

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

from rich.table import Table

from fedchain.learning.config import LearningConfig
from tests.bench.chains import MEMBERS, long_chain, model_chain, wide_chain

BLOCKS, BLOCKS_OF_LARGE_KNOWLEDGE = 10_000, 60

REQUESTS = 300
"""Requests of each page; no two in a row ask for the same, and none is answered from memory."""

TABS = 100
WATCHED_S = 30.0
"""How long a node is watched with open tabs, and without."""


def bench_web(folder: Path, *, quick: bool) -> Table:
    """Serve long chains in a process of its own, and ask for every page. The chains stay in ``folder``."""
    title = f"The explorer in a browser; {load_text()}"
    table = Table("explorer serve", "p50", "p99", "target", "CPU p50", "CPU p99", title=title, box=None)
    blocks, count = (BLOCKS // 10, REQUESTS // 10) if quick else (BLOCKS, REQUESTS)
    with ExitStack() as stack:
        chains = [
            long_chain(folder / f"{blocks}", blocks),
            wide_chain(folder, BLOCKS_OF_LARGE_KNOWLEDGE),
            model_chain(folder, BLOCKS_OF_LARGE_KNOWLEDGE),
        ]
        pid, port = stack.enter_context(served(*chains))
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        begun = time.perf_counter()
        while b"still being read" in _get(connection, "/long/")[1]:
            time.sleep(0.1)
        table.add_row(
            f"{blocks:,} blocks read", f"{time.perf_counter() - begun:.1f} s", "", "", f"{_cpu_s(pid):.1f} s", ""
        )
        for name, paths in _pages(connection, blocks).items():
            times, spent = list[float](), list[float]()
            for _ in range(count):
                before_s = _running_s(pid)
                times.append(_get(connection, next(paths))[0])
                spent.append(_running_s(pid) - before_s)
            table.add_row(name, *_quantiles(times), "≤ 100 ms", *_quantiles(spent))
        table.add_row("resident memory, most", f"{_peak_mb(pid):.0f} MB", "", "≤ 150 MB")
    alone, watched = _node_cpu(5.0 if quick else WATCHED_S)
    table.add_row(
        f"CPU of an idle node, {TABS} tabs", f"{100 * watched:.2f} %", f"{100 * alone:.2f} % without", "+ ≤ 2 %"
    )
    return table


@contextmanager
def served(*folders: Path) -> Iterator[tuple[int, int]]:
    """Process id and port of a server of the chains in folders."""
    command = [sys.executable, "-m", "fedchain", "explorer", "serve", *map(str, folders), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            yield process.pid, int(line.split("/")[2].rpartition(":")[2])
        finally:
            process.terminate()


def _pages(connection: http.client.HTTPConnection, blocks: int) -> dict[str, Iterator[str]]:
    """Addresses of every page, and of the answers for programs, by name and without end."""
    rng = random.Random(0)
    heights = [rng.randrange(1, blocks + 1) for _ in range(50)]
    views = [json.loads(_get(connection, f"/api/v1/long/block/{height}")[1]) for height in heights]
    hashes = [view["summary"]["hash"] for view in views]
    posts = [item["hash"] for view in views for item in view["transactions"]]
    names, members = [*map(str, heights)], [*map(str, range(MEMBERS))]
    few = [str(number) for number in range(1, BLOCKS_OF_LARGE_KNOWLEDGE + 1)]
    pages = {
        "all chains": ("/", [""]),
        "compare": ("/compare", [""]),
        "overview": ("/long/", [""]),
        "blocks": ("/long/blocks?to={}", names),
        "block by height": ("/long/block/{}", names),
        "block by hash": ("/long/block/{}", hashes),
        "rounds": ("/long/rounds?to={}", names),
        "round": ("/long/round/{}", names),
        "members": ("/long/members", [""]),
        "participation": ("/long/participation?to={}", names),
        "member": ("/long/member/{}", members),
        "knowledge": ("/long/knowledge/{}", names),
        "knowledge, 512 dimensions": ("/wide/knowledge/{}", few),
        "knowledge, models of 3 MB": ("/model/knowledge/{}", few),
        "post": ("/long/tx/{}", posts),
        "proof": ("/long/proof/{}", posts),
        "search for a post": ("/long/search?q={}", [item[:6] for item in posts]),
        "search for a number": ("/long/search?q={}", names),
        "genesis": ("/long/genesis", [""]),
    }
    asked = {
        "status": [""],
        "blocks?limit=100&to={}": names,
        "block/{}": names,
        "tx/{}": posts,
        "members": [""],
        "member/{}": members,
        "round/{}": names,
        "knowledge/{}": names,
        "proof/{}": posts,
        "genesis": [""],
        "open": [""],
        "search?q={}": [item[:6] for item in posts],
    }
    pages |= {f"/api/v1 {path.split('/')[0].split('?')[0]}": (f"/api/v1/long/{path}", v) for path, v in asked.items()}

    def endless(path: str, values: list[str]) -> Iterator[str]:
        while True:
            place = path.format(rng.choice(values))
            yield f"{place}{'&' if '?' in place else '?'}n={rng.random()}"

    return {name: endless(path, values) for name, (path, values) in pages.items()}


def _get(connection: http.client.HTTPConnection, path: str) -> tuple[float, bytes]:
    """Seconds that an answer took, and what it was."""
    begun = time.perf_counter()
    connection.request("GET", path)
    answer = connection.getresponse()
    data = answer.read()
    assert answer.status in (200, 303), (path, answer.status, data[:300])
    return time.perf_counter() - begun, data


def load_text() -> str:
    """How busy the machine is: wall times mean little where it is."""
    return f"load of the machine at the start {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


def _peak_mb(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmHWM:")[1].split()[0]) / 1024


def _node_cpu(watched_s: float) -> tuple[float, float]:
    """CPU of one node of four that waits for the others, as a share of a core: alone, and with open tabs."""
    from fedchain.node.founding.consensus import Consensus
    from fedchain.node.operating.local_node import stop_all
    from fedchain.node.operating.status import ask_status
    from fedchain.node.operating.testnet import found_testnet

    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name) / "net"
        consensus = Consensus(rounds=1, mining_s=2.0, mining_attempts=4_000)
        node = found_testnet(folder, LearningConfig(clients=4), consensus)[0]
        node.start()
        stack.callback(stop_all, [node])
        assert node.process is not None
        while (ask_status(node.folder) or {"training": True})["training"]:
            time.sleep(0.2)
        time.sleep(3)  # what it does after its training
        alone = _spent(node.process.pid, watched_s)
        _, port = stack.enter_context(served(node.folder))
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


def _quantiles(times_s: list[float]) -> tuple[str, str]:
    """The median, and what 99 of 100 do not exceed."""
    times = sorted(times_s)
    return f"{1000 * times[len(times) // 2]:.0f} ms", f"{1000 * times[int(len(times) * 0.99)]:.0f} ms"


def _running_s(pid: int) -> float:
    """CPU seconds of a process's threads that live, to the nanosecond."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def _cpu_s(pid: int) -> float:
    """CPU seconds that a process has spent, of the user and of the system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
