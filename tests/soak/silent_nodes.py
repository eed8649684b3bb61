"""``python -m tests.soak silent_nodes [--seconds 150]``: a federation whose packets vanish for minutes, and come back.

Five nodes run on loopback, each from an address of its own. Then the packets of some vanish before the system of others
sees them: of one pair in one direction, of one pair in both, and of all pairs between two parties, neither of which is
a quorum. After healing the federation must go on within seconds, with all links, and with nobody started again.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from fedchain.node.founding.consensus import Consensus
from fedchain.node.operating.local_node import LocalNode, stop_all
from fedchain.node.operating.testnet import found_testnet
from tests.soak._figures import Figures, campaign
from tests.soak._silent import host_of
from tests.soak.silence import SILENCES, Deaf
from tests.support.node.processes import height, look
from tests.support.node.shell import DIGITS

NODES = 5
PROGRESS_S_MAX = 15.0
"""Seconds from healing to the next final block at every node."""

LINKS_S_MAX = 15.0
"""Seconds from healing until everybody is connected to everybody."""

START_S = 180.0


def found(folder: Path) -> list[LocalNode]:
    """Five nodes, each of which listens at an address of its own and knows all others."""
    nodes = found_testnet(
        folder, replace(DIGITS, clients=NODES), Consensus(rounds=0, mining_s=1.0, mining_attempts=4_000)
    )
    places = []
    for node in nodes:
        words = node.command
        port = words[words.index("--listen") + 1].rpartition("/")[2]
        place = f"/ip4/{host_of(node.number)}/tcp/{port}"
        words[words.index("--listen") + 1] = place
        places.append(f"{place}/p2p/{node.address.rpartition('/')[2]}")
    for node in nodes:
        words = node.command
        while "--bootstrap" in words:
            at = words.index("--bootstrap")
            del words[at : at + 2]
        for other in places:
            words += ["--bootstrap", other] if other != places[node.number] else []
        at = words.index("fedchain")
        words[at : at + 1] = ["tests.soak._deaf_node", str(node.number), str(orders_of(node))]
    return nodes


def orders_of(node: LocalNode) -> Path:
    """Where a node reads to whom it is deaf."""
    return node.folder / "deaf.json"


def make_deaf(nodes: list[LocalNode], deaf: Deaf) -> None:
    """Say who hears nothing of whom; the others hear everybody."""
    for node in nodes:
        temporary = orders_of(node).with_suffix(".new")
        temporary.write_text(json.dumps(deaf.get(node.number, [])), encoding="utf-8")
        temporary.replace(orders_of(node))


def wait(condition: Callable[[], bool], seconds_max: float) -> float | None:
    """Seconds until a condition holds; None if it never did."""
    begun = time.monotonic()
    while time.monotonic() - begun < seconds_max:
        if condition():
            return time.monotonic() - begun
        time.sleep(0.2)
    return None


def is_whole(nodes: list[LocalNode]) -> bool:
    """Whether everybody is connected to everybody."""
    return all(len(look(node).get("peers", ())) == NODES - 1 for node in nodes)  # type: ignore[arg-type]


def silence(figures: Figures, nodes: list[LocalNode], name: str, deaf: Deaf, seconds: float) -> None:
    """Let packets vanish for a while, heal, and measure."""
    before = max(height(node) for node in nodes)
    make_deaf(nodes, deaf)
    time.sleep(seconds)
    at_healing = [height(node) for node in nodes]
    figures.show(f"{name}: {max(at_healing) - before} blocks in {seconds:.0f} s of silence, heights {at_healing}")
    make_deaf(nodes, {})
    goal, healed = max(at_healing) + 1, time.monotonic()
    for what, seconds_max, holds in (
        ("all finalize another block", PROGRESS_S_MAX, lambda: all(height(node) >= goal for node in nodes)),
        ("all links are back", LINKS_S_MAX, lambda: is_whole(nodes)),
    ):
        wait(holds, 120.0)
        passed_s = time.monotonic() - healed
        figures.require(passed_s <= seconds_max, f"{name}: {what} within {passed_s:.1f} s of healing")


def main() -> None:
    """Silence, heal, measure."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak silent_nodes", description=__doc__)
    parser.add_argument("--seconds", type=float, default=150.0, help="how long packets vanish")
    options = parser.parse_args()
    with campaign("silent_nodes") as (figures, folder):
        nodes = found(folder / "net")
        try:
            for node in nodes:
                node.start()
            begun_s = wait(lambda: all(height(node) >= 2 for node in nodes) and is_whole(nodes), START_S)
            assert begun_s is not None, "the federation did not begin"
            for name, deaf in SILENCES.items():
                silence(figures, nodes, name, deaf, options.seconds)
            processes = [node.process for node in nodes if node.process is not None and node.process.poll() is None]
            figures.require(len(processes) == NODES, f"{len(processes)} of {NODES} processes are the ones that began")
        finally:
            stop_all(nodes)


if __name__ == "__main__":
    main()
