"""``python -m tests.soak recombine [NAME …]``: four honest node processes, and a fifth member that attacks them.

One attack after the other on one federation, each played over sockets by a real process. In each, an honest node loses
its chain and comes back with its key and journal, as what misleads newcomers has to have one. Heights go on, no two
nodes have different heads, nobody honest is banned or convicted, and memory stays where it was.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fedchain.chain.genesis import Genesis
from fedchain.chain.storage.sqlite import Store
from fedchain.crypto.address import address
from fedchain.crypto.keys import PrivateKey
from fedchain.files.layout import CHAIN_FOLDER, GENESIS_FILE
from fedchain.learning.config import LearningConfig
from fedchain.node.config import NodeConfigError
from fedchain.node.status import ask
from fedchain.node.testnet import LocalNode, found_testnet, stop_all
from tests.node.processes import kill
from tests.soak._figures import Figures, campaign
from tests.soak._processes import rss_mb, wait_until

MEMBERS = 5
HEIGHT = 10
"""Blocks before the first attack: so many that a node without a chain joins at the head."""

HEIGHTS_MIN = 3
"""By which the chain must have grown when an attack ends."""

REJOINED_S_MAX = 45.0
"""Within which the node that lost its chain has what the others had when it came back; most of it it imports code."""

START_S = 180.0
"""Within which the attacker's process begins."""

GROWN_MB_MAX = 100.0
"""By which the memory of a node may grow in one attack."""


@dataclass(frozen=True, slots=True)
class Attack:
    """A behaviour of the fifth member."""

    behaviour: str
    what: str
    parameters: Mapping[str, float] = field(default_factory=dict)


ATTACKS = {
    "downloads": Attack("final-flooder", "claims 10^12, floods finals with invented roots", {"per_s": 800}),
    "slow-blocks": Attack("slow-blocks", "one real block each 1.8 s"),
    "dripped": Attack("slow-provider", "each chunk of a state or payload after 1.85 s"),
    "forged": Attack("content-forger", "wrong bytes of the right size"),
    "low": Attack("low-claimer", "claims height 0"),
    "hog": Attack("catch-up-hog", "claims a chain that it has not", {"ahead": 10**6, "per_s": 5}),
    "mute": Attack("falls-silent", "falls silent when one that lost its disk speaks again"),
    "recombine": Attack("recombiner", "all that can be put together from what was heard", {"per_s": 40}),
}
"""By name. The last one signs twice, and has no vote after that."""


@dataclass(slots=True)
class Measured:
    """The outcome of an attack."""

    name: str
    sent: int = 0
    """Messages of the attacker."""
    heights: int = 0
    rejoined_s: float = float("inf")
    grown_mb: float = 0.0
    rss_mb: float = 0.0
    bans: int = 0
    """Honest nodes that have banned the attacker."""
    faults: list[str] = field(default_factory=list)


class Net:
    """The federation, and what its nodes say of it."""

    def __init__(self, folder: Path) -> None:
        settings = {"hyperparameters": {"local_steps": 1}, "partition": "iid", "clients": MEMBERS}
        config = LearningConfig(method="dfpl", dataset="digits", **settings)  # type: ignore[arg-type]
        # Payloads do not travel inside of posts: they have to be fetched.
        consensus: dict[str, Any] = {"phase_timeout_ms": 2_000, "inline_size_max": 0}
        everybody = found_testnet(folder, config, 0, mining_s=0.5, attempts=200, **consensus)
        self.nodes, self.attacker = everybody[:-1], everybody[-1]
        self.genesis = Genesis.decode((folder / GENESIS_FILE).read_bytes())
        self.key = PrivateKey.load(self.attacker.folder / "key.pem")
        self.heads: dict[int, set[str]] = {}
        """Heads that were seen at each height."""

    def look(self) -> list[int]:
        """Heights of the nodes."""
        for node in self.nodes:
            node.look()
            if node.status:
                self.heads.setdefault(node.status["height"], set()).add(node.status["head"])
        return [node.status.get("height", 0) for node in self.nodes]

    def divided(self) -> list[int]:
        """Heights at which nodes have different heads."""
        return [height for height, heads in self.heads.items() if len(heads) > 1]

    def banned(self) -> dict[str, int]:
        """By how many honest nodes each address is banned."""
        found: dict[str, int] = {}
        for node in self.nodes:
            for ban in (_ask(node, {"ask": "bans"}) or {}).get("bans", ()):
                found[ban["address"]] = found.get(ban["address"], 0) + 1
        return found

    def forgive(self) -> None:
        """Let the attacker connect again."""
        for node in self.nodes:
            _ask(node, {"ask": "unban", "address": address(self.key.public_key)})

    def memory_mb(self) -> list[float]:
        """Of each node that runs."""
        return [rss_mb(node.process.pid) for node in self.nodes if node.process is not None]

    def convicted(self) -> set[bytes]:
        """Members that the chain proves a crime of; the nodes are stopped."""
        found: set[bytes] = set()
        for node in self.nodes:
            with Store.open(node.folder / CHAIN_FOLDER, read_only=True) as store:
                head = store.head()
                assert head is not None
                for height in range(store.base(), head.block.header.height + 1):
                    record = store.final(height)
                    assert record is not None
                    found |= {crime.culprit for crime in record[0].evidence}
        return found


def _ask(node: LocalNode, request: Mapping[str, str]) -> dict[str, list[dict[str, str]]] | None:
    with suppress(NodeConfigError):
        return ask(node.folder, request)
    return None


def play(net: Net, name: str, seconds: float) -> Measured:
    """One attack: the attacker begins, then a node loses its chain, and comes back."""
    measured, attack = Measured(name), ATTACKS[name]
    against = {
        "genesis": net.genesis.encode().hex(),
        "seed": net.key.seed.hex(),
        "places": [node.address for node in net.nodes],
        "behaviour": attack.behaviour,
        "parameters": dict(attack.parameters),
        "draw": name,
    }
    net.forgive()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen([sys.executable, "-m", "tests.soak._hostile", json.dumps(against)], stdout=output)
        try:
            wait_until(lambda: os.fstat(output.fileno()).st_size or process.poll() is not None, "an attacker", START_S)
            first = max(net.look())
            _lose_a_chain(net, measured, seconds)
            if process.poll() is not None:
                measured.faults.append("the attacker ended itself")
        finally:
            process.kill()
            process.wait()
        output.seek(0)
        measured.sent, followed = json.loads(output.read().splitlines()[-1])
        measured.faults += [] if followed > first else ["the attacker did not follow"]
    measured.heights = max(net.look()) - first
    banned = net.banned()
    measured.bans = banned.pop(address(net.key.public_key), 0)
    measured.faults += _faults(net, measured, banned)
    return measured


def _lose_a_chain(net: Net, measured: Measured, seconds: float) -> None:
    """The last node loses its chain and comes back; all of them are watched for a while."""
    before_mb, joiner, begun = net.memory_mb(), net.nodes[-1], time.monotonic()
    kill(joiner)
    shutil.rmtree(joiner.folder / CHAIN_FOLDER)
    joiner.start()
    wanted = max(net.look())
    while time.monotonic() - begun < seconds:
        time.sleep(0.5)
        if net.look()[-1] >= wanted and measured.rejoined_s == float("inf"):
            measured.rejoined_s = time.monotonic() - begun
        now_mb = net.memory_mb()
        measured.rss_mb = max(measured.rss_mb, *now_mb)
        grown = [now - before for now, before in zip(now_mb[:-1], before_mb[:-1], strict=True)]
        measured.grown_mb = max(measured.grown_mb, *grown)


def _faults(net: Net, measured: Measured, banned: Mapping[str, int]) -> list[str]:
    found = [f"{len(banned)} honest members are banned"] if banned else []
    found += [f"different heads at {net.divided()}"] if net.divided() else []
    found += [f"only {measured.heights} heights"] if measured.heights < HEIGHTS_MIN else []
    found += ["the newcomer is late"] if measured.rejoined_s > REJOINED_S_MAX else []
    return found + (["memory"] if measured.grown_mb > GROWN_MB_MAX else [])


def judge(figures: Figures, net: Net, played: list[Measured]) -> None:
    """Say what came of it."""
    columns = ("attack", "sent", "heights", "rejoined s", "grown MB", "RSS MB", "bans", "short of")
    table = Table(*columns)
    for item in played:
        cells = (
            f"{item.sent:,}",
            f"{item.heights}",
            f"{item.rejoined_s:.1f}",
            f"{item.grown_mb:.0f}",
            f"{item.rss_mb:.0f}",
        )
        table.add_row(item.name, *cells, str(item.bans), "; ".join(item.faults) or "-")
    Console(width=140).print(table)
    figures.require(not any(item.faults for item in played), f"{len(played)} attacks were borne")
    honest = net.convicted() - {net.key.public_key}
    figures.require(not honest, f"{len(honest)} honest members are convicted")


def main() -> None:
    """Play attacks and print a table; exits with 1 where one falls short."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak recombine", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(ATTACKS)} (all)")
    parser.add_argument("--seconds", type=float, default=50.0, help="of each attack (%(default)s)")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in ATTACKS]:
        parser.error(f"there is no attack {unknown[0]!r}; known are {', '.join(ATTACKS)}")
    with campaign("recombine") as (figures, folder):
        net = Net(folder / "net")
        try:
            for node in net.nodes:
                node.start()
            wait_until(lambda: min(net.look()) >= HEIGHT, f"height {HEIGHT}", timeout_s=300, step_s=0.5)
            played = []
            for name in options.names or ATTACKS:
                played.append(play(net, name, options.seconds))
                print(f"      {played[-1]}", flush=True)
        finally:
            stop_all(net.nodes)
        judge(figures, net, played)


if __name__ == "__main__":
    main()
