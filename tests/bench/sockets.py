"""Traffic and CPU of node processes on loopback, beside the law of scale."""

import ctypes
import fcntl
import os
import re
import socket
import struct
import tempfile
import time
import urllib.request
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path

from fedchain.chain.storage.sqlite import Store
from fedchain.files.layout import CHAIN_FOLDER
from fedchain.learning.config import LearningConfig
from fedchain.node.founding.consensus import Consensus
from fedchain.node.operating.local_node import LocalNode, stop_all
from fedchain.node.operating.testnet import found_testnet, free_ports
from fedchain.simulator.scenario import Scenario
from tests.support.simulator.scale import Shape, bytes_of_round

FIRST = 3
"""Height from which is counted: before it, nodes greet each other."""

TIMEOUT_S = 300.0

FRAMING = 123
"""Bytes around a gossip message: the topic (83) and its message (10), yamux (12), noise (18)."""

PACKET = 66
"""Bytes before a packet's content on loopback; as many acknowledge it."""

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1


@dataclass(frozen=True, slots=True)
class Reading:
    """The numbers of a node at one moment."""

    height: int
    bytes_in: float
    bytes_out: float
    cpu_s: float


def run(scenario: Scenario) -> dict[str, tuple[float, float]]:
    """By figure: what was measured and what the law says, 0 if it says nothing; kB and seconds of a round."""
    peers, rounds = scenario.peers, scenario.rounds
    is_alone = _enter_network()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        consensus = Consensus(rounds=FIRST + rounds + 100, mining_s=1.0, mining_attempts=4_000)
        nodes = found_testnet(Path(name) / "net", LearningConfig(clients=peers), consensus)
        ports = free_ports(peers)
        for node, port in zip(nodes, ports, strict=True):
            node.command += ["--set", f"metrics=127.0.0.1:{port}"]
        stack.callback(stop_all, nodes)
        for node in nodes:
            node.start()
        before = _readings(nodes, ports, FIRST)
        begun_s, wire = time.monotonic(), _loopback_bytes()
        after = _readings(nodes, ports, FIRST + rounds)
        duration_s, wire = time.monotonic() - begun_s, _loopback_bytes() - wire
        payload = _payload(nodes[0].folder / CHAIN_FOLDER)
    passed = sum(new.height - old.height for old, new in zip(before, after, strict=True))
    shape = Shape(members=peers, contributors=peers, committee=peers, payload=payload)
    round_s = duration_s * peers / passed
    law = sum(bytes_of_round(shape, round_s).values()) / peers
    found = {
        "seconds": (round_s, 0.0),
        "payload (kB)": (payload / 1e3, 0.0),
        "kB that a node took": (_spent(before, after, "bytes_in") / passed / 1e3, law / 1e3),
        "CPU of a node's own process (s)": (_spent(before, after, "cpu_s") / passed, 0.0),
    }
    if is_alone:
        found["kB on the wire, all nodes"] = (wire * peers / passed / 1e3, _wire_law(shape, round_s) / 1e3)
    return found


def _wire_law(shape: Shape, round_s: float) -> float:
    """Bytes on loopback: every node is in the mesh of every other, and each copy is a packet and an acknowledgement."""
    n = shape.members
    meshed = replace(shape, degree=n - 1)
    messages = meshed.copies * (shape.contributors + 2 * shape.committee + 1)
    return sum(bytes_of_round(meshed, round_s).values()) + messages * (FRAMING + 2 * PACKET)


def _spent(before: list[Reading], after: list[Reading], name: str) -> float:
    return sum(float(getattr(new, name) - getattr(old, name)) for old, new in zip(before, after, strict=True))


def _readings(nodes: list[LocalNode], ports: list[int], height: int) -> list[Reading]:
    """The numbers of all nodes once each of them has reached a height. Until then they are asked beside the network."""
    until_s = time.monotonic() + TIMEOUT_S
    while min(node.look().get("height", 0) for node in nodes) < height:
        if time.monotonic() > until_s:
            raise SystemExit(f"height {height} was not reached: {[node.status for node in nodes]}")
        time.sleep(0.1)
    return [_read(port) for port in ports]


def _read(port: int) -> Reading:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()

    def value(name: str) -> float:
        found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
        assert found is not None, name
        return float(found[1])

    bytes_in, bytes_out = (value(f'fedchain_message_bytes_total{{direction="{way}"}}') for way in ("in", "out"))
    return Reading(int(value("fedchain_head_height")), bytes_in, bytes_out, value("process_cpu_seconds_total"))


def _payload(folder: Path) -> int:
    """Mean bytes of the payloads that a block counts."""
    with closing(Store.open(folder, read_only=True)) as store:
        found = store.final(FIRST)
        assert found is not None, "it was reached"
        sizes = [post.payload_size for post in found[0].transactions]
    return sum(sizes) // len(sizes)


def _enter_network() -> bool:
    """Go on in a network of our own, so that nobody else's bytes are counted; False where that is not allowed."""
    libc = ctypes.CDLL(None)
    if libc.unshare(CLONE_NEWNET) and libc.unshare(CLONE_NEWUSER | CLONE_NEWNET):
        return False
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        named = struct.pack("16sH14s", b"lo", 0, b"")
        (flags,) = struct.unpack_from("16xH", fcntl.ioctl(probe, SIOCGIFFLAGS, named))
        fcntl.ioctl(probe, SIOCSIFFLAGS, struct.pack("16sH14s", b"lo", flags | IFF_UP, b""))
    return True


def _loopback_bytes() -> int:
    """Bytes that loopback has carried."""
    line = next(line for line in Path(f"/proc/{os.getpid()}/net/dev").read_text().splitlines() if "lo:" in line)
    return int(line.split(":")[1].split()[0])
