"""``python -m tests.soak.half_requests``: whether clients that send half a request keep others from their answers.

An explorer and a node may open few files each. A crowd holds connections to the explorer's port, to the node's metrics
and to its status socket, sends half a request over each, and connects again when one is closed. An honest client asks
twice a second.
"""

import argparse
import multiprocessing
import resource
import selectors
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from multiprocessing.synchronize import Event
from pathlib import Path
from statistics import median
from typing import Any

from fedchain.files.layout import SOCKET
from fedchain.node.founding.consensus import Consensus
from fedchain.node.operating.local_node import stop_all
from fedchain.node.operating.status import ask_status
from fedchain.node.operating.testnet import found_testnet, free_ports
from tests.support.node.processes import height
from tests.support.node.shell import DIGITS, wait_until

HALF = {"http": b"GET / HTTP/1.1\r\nHost: localhost\r\n", "status": b'{"ask":'}

ANSWER_MAX_S, LINES_MAX = 1.0, 100

Address = tuple[str, int] | str
"""Host and port, or the path of a socket."""


def main() -> None:
    """Let crowds come to each port in turn; the exit code says whether answers came in time and logs stayed short."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak half_requests", description=__doc__)
    parser.add_argument("--sockets", type=int, default=1_000, help="connections of the crowd")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each port")
    parser.add_argument("--files", type=int, default=256, help="files that the explorer may open")
    parser.add_argument(
        "--node-files", type=int, default=640, help="files that the node may open; it starts with no less"
    )
    parser.add_argument("--again", type=float, default=1.0, help="seconds until a closed connection is tried again")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(not besiege(Path(folder) / "net", given))


def besiege(folder: Path, given: argparse.Namespace) -> bool:
    """Whether all ports answer in time, and neither process writes much."""
    port, metrics = free_ports(2)
    nodes = found_testnet(
        folder, replace(DIGITS, clients=4), Consensus(mining_s=0.5, mining_attempts=1_000, round_interval_s=5.0)
    )
    nodes[0].command = [*limited(given.node_files), *nodes[0].command, "--set", f"metrics=127.0.0.1:{metrics}"]
    command = [
        *limited(given.files),
        sys.executable,
        "-m",
        "fedchain",
        "explorer",
        "serve",
        str(folder),
        "--port",
        str(port),
    ]
    site_log, node_log = folder.parent / "explorer.log", nodes[0].folder / "node.log"
    with site_log.open("wb") as log, ExitStack() as started:
        started.callback(stop_all, nodes)
        for node in nodes:
            node.start()
        wait_until(lambda: height(nodes[0]) >= 1, "a first block")
        explorer = subprocess.Popen(command, stdout=log, stderr=log)
        started.callback(explorer.wait)
        started.callback(explorer.terminate)
        wait_until(lambda: b"http" in site_log.read_bytes(), "the explorer")
        ports: dict[str, tuple[Address, bytes, Callable[[], object], Path]] = {
            "explorer": (("127.0.0.1", port), HALF["http"], lambda: fetch(port, ""), site_log),
            "metrics": (("127.0.0.1", metrics), HALF["http"], lambda: fetch(metrics, "metrics"), node_log),
            "status": (str(nodes[0].folder / SOCKET), HALF["status"], lambda: status(nodes[0].folder), node_log),
        }
        stood = height(nodes[0])
        good = [measure(name, given, *port) for name, port in ports.items()]
        grown = height(nodes[0]) - stood
        print(f"{grown} blocks became final meanwhile")
        return all(good) and grown > 0


def limited(files: int) -> list[str]:
    """The beginning of a command that may open so many files."""
    return ["bash", "-c", f'ulimit -n {files}; exec "$@"', "-"]


def measure(
    name: str, given: argparse.Namespace, address: Address, half: bytes, ask: Callable[[], object], log: Path
) -> bool:
    """Ask while a crowd is there; whether each answer came in time, and few lines were logged."""
    lines = len(log.read_bytes().splitlines())
    times, failed = list[float](), 0
    with crowd(address, half, given.sockets, given.again) as connected:
        end = time.monotonic() + given.seconds
        while time.monotonic() < end:
            start = time.monotonic()
            try:
                ask()
            except Exception as error:
                print(f"  {name}: {error}")
                failed += 1
            times.append(time.monotonic() - start)
            time.sleep(0.5)
        attempts = connected.value
    lines = len(log.read_bytes().splitlines()) - lines
    print(
        f"{name}: {attempts} connections of a crowd of {given.sockets}; {len(times)} answers, {failed} failed, "
        f"median {median(times):.3f} s, longest {max(times):.3f} s; {lines} lines of log",
        flush=True,
    )
    return not failed and max(times) < ANSWER_MAX_S and lines < LINES_MAX


def fetch(port: int, path: str) -> None:
    """A page, over a new connection."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=30) as answer:
        assert answer.read(), "an empty answer"


def status(folder: Path) -> None:
    """A node's status."""
    assert ask_status(folder), "no status"


@contextmanager
def crowd(address: Address, half: bytes, count: int, again_s: float) -> Iterator[Any]:
    """A process with the crowd, and how often it has connected. All have tried once when the context begins."""
    spawn = multiprocessing.get_context("spawn")
    connected, ready, leave = spawn.Value("q", 0), spawn.Event(), spawn.Event()
    process = spawn.Process(target=hold, args=(address, half, count, again_s, connected, ready, leave))
    process.start()
    try:
        assert ready.wait(60), "the crowd does not come"
        yield connected
    finally:
        leave.set()
        process.join(10)
        process.kill()


def hold(address: Address, half: bytes, count: int, again_s: float, connected: Any, ready: Event, leave: Event) -> None:
    """Hold the connections until told to leave."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    due = [0.0] * count  # when each connects next
    with selectors.DefaultSelector() as selector:
        while not leave.is_set():
            now = time.monotonic()
            for number, when in enumerate(due):
                if when <= now:
                    due[number] = float("inf")
                    if (client := _half_asked(address, half)) is None:
                        due[number] = now + again_s
                    else:
                        selector.register(client, selectors.EVENT_READ, number)
                        connected.value += 1
            ready.set()
            for key, _ in selector.select(0.05):  # there is no answer to half a request: it was closed
                selector.unregister(key.fileobj)
                key.fileobj.close()  # type: ignore[union-attr]
                due[key.data] = time.monotonic() + again_s


def _half_asked(address: Address, half: bytes) -> socket.socket | None:
    client = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
    client.settimeout(1.0)
    with suppress(OSError):
        client.connect(address)
        client.sendall(half)
        client.setblocking(False)
        return client
    client.close()
    return None


if __name__ == "__main__":
    main()
