"""``python -m tests.soak recombine [NAME …]``: four honest node processes, and a fifth member that attacks them.

One attack after the other, each played over sockets by a real process, on one federation, or on a second one whose
posts list parts. In each, an honest node loses its chain, or has it altered, and comes back with its key and journal,
as what misleads newcomers has to have one. Heights go on, no two nodes have different heads, nobody honest is banned or
convicted or posts twice, no private part is given away, and memory stays where it was.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from fedchain.crypto.address import address
from fedchain.node.operating.local_node import LocalNode, stop_all
from tests.soak._besieged import Net, base_of, lose_chain, store_polka
from tests.soak._figures import Figures, campaign
from tests.soak._processes import wait_until
from tests.support.node.processes import kill, log_of

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
    befalls: Callable[[Net, LocalNode], None] = lose_chain
    """Changes the store of an honest node that is down."""
    said: str = ""
    """Log line that the node has to write about it; empty if none."""
    alone_s: float = 0.0
    """How long nobody but the attacker speaks to it when it comes back."""
    height: int = HEIGHT
    """Blocks before the attack."""
    has_parts: bool = False
    """Whether the posts of the federation list parts."""


ATTACKS = {
    "downloads": Attack("final-flooder", "claims 10^12, floods finals with invented roots", {"per_s": 800}),
    "slow-blocks": Attack("slow-blocks", "one real block each 1.8 s"),
    "dripped": Attack("slow-provider", "each chunk of a state or payload after 1.85 s"),
    "forged": Attack("content-forger", "wrong bytes of the right size"),
    "low": Attack("low-claimer", "claims height 0"),
    "hog": Attack("catch-up-hog", "claims a chain that it has not", {"ahead": 10**6, "per_s": 5}),
    "second-post": Attack("low-claimer", "claims height 0, and nobody else speaks for a while", alone_s=12.0),
    "nobody": Attack("follower", "follows the protocol: what the next one is measured against", height=60),
    "backfill": Attack("backfill-spoiler", "old blocks without their posts, asked for or not", height=60),
    "wrong-head": Attack(
        "silent", "so that the one with a wrong head is needed", {}, store_polka, "cut back from height"
    ),
    "theft": Attack("part-thief", "posts whose payloads are parts that others read", has_parts=True),
    "claims": Attack("part-claimer", "lists parts that nobody has", has_parts=True),
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
    """Until the node that was down has what the others had."""
    whole_s: float = float("inf")
    """Until it has all blocks from the first on."""
    stolen: int = 0
    """Bytes of parts that the attacker may not read and was given."""
    grown_mb: float = 0.0
    rss_mb: float = 0.0
    bans: int = 0
    """Honest nodes that have banned the attacker."""
    faults: list[str] = field(default_factory=list)


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
            wait_until(lambda: min(net.look()) >= attack.height, f"height {attack.height}", START_S, 0.5)
            first = max(net.look())
            _bring_one_down(net, attack, measured, seconds)
            if process.poll() is not None:
                measured.faults.append("the attacker ended itself")
        finally:
            process.kill()
            process.wait()
        output.seek(0)
        measured.sent, followed, measured.stolen = json.loads(output.read().splitlines()[-1])
        if followed <= first and attack.behaviour != "silent":  # who is silent asks for nothing
            measured.faults.append("the attacker did not follow")
    measured.heights = max(net.look()) - first
    banned = net.banned()
    measured.bans = banned.pop(address(net.key.public_key), 0)
    measured.faults += _faults(net, measured, banned)
    return measured


def _bring_one_down(net: Net, attack: Attack, measured: Measured, seconds: float) -> None:
    """The last node ends, something befalls its store, and it comes back; all of them are watched for a while."""
    before_mb, joiner = net.memory_mb(), net.nodes[-1]
    kill(joiner)
    said = log_of(joiner).count(attack.said)
    attack.befalls(net, joiner)
    wanted = max(node.status["height"] for node in net.nodes[:-1])
    begun = time.monotonic()
    joiner.start()
    if attack.alone_s:
        net.speaks_first(joiner)
        time.sleep(attack.alone_s)
        net.go_on()
    while time.monotonic() - begun < seconds:
        time.sleep(0.5)
        if net.look()[-1] >= wanted:
            measured.rejoined_s = min(measured.rejoined_s, time.monotonic() - begun)
        if measured.whole_s == float("inf") and base_of(joiner) == 1:
            measured.whole_s = time.monotonic() - begun
        now_mb = net.memory_mb()
        measured.rss_mb = max(measured.rss_mb, *now_mb)
        grown = [now - before for now, before in zip(now_mb[:-1], before_mb[:-1], strict=True)]
        measured.grown_mb = max(measured.grown_mb, *grown)
    if attack.said and log_of(joiner).count(attack.said) == said:
        measured.faults.append(f"it did not say {attack.said!r}")


def _faults(net: Net, measured: Measured, banned: Mapping[str, int]) -> list[str]:
    found = [f"{len(banned)} honest members are banned"] if banned else []
    found += [f"different heads at {net.divided()}"] if net.divided() else []
    found += [f"only {measured.heights} heights"] if measured.heights < HEIGHTS_MIN else []
    found += ["the newcomer is late"] if measured.rejoined_s > REJOINED_S_MAX else []
    found += ["old blocks are missing"] if measured.whole_s == float("inf") else []
    found += [f"{measured.stolen} bytes stolen"] if measured.stolen else []
    return found + (["memory"] if measured.grown_mb > GROWN_MB_MAX else [])


def show(figures: Figures, played: list[Measured]) -> None:
    """Say what came of it."""
    columns = ("attack", "sent", "heights", "rejoined s", "whole s", "grown MB", "RSS MB", "bans", "short of")
    table = Table(*columns)
    for item in played:
        cells = (
            f"{item.sent:,}",
            f"{item.heights}",
            f"{item.rejoined_s:.1f}",
            f"{item.whole_s:.1f}",
            f"{item.grown_mb:.0f}",
            f"{item.rss_mb:.0f}",
        )
        table.add_row(item.name, *cells, str(item.bans), "; ".join(item.faults) or "-")
    Console(width=140).print(table)
    figures.require(not any(item.faults for item in played), f"{len(played)} attacks were borne")


def besiege(figures: Figures, folder: Path, names: Iterable[str], seconds: float, *, has_parts: bool) -> list[Measured]:
    """Found a federation and play attacks on it, one after the other."""
    net, played = Net(folder, has_parts=has_parts), list[Measured]()
    try:
        for node in net.nodes:
            node.start()
        for name in names:
            wait_until(lambda: min(net.look()) >= HEIGHT, f"height {HEIGHT}", timeout_s=300, step_s=0.5)
            played.append(play(net, name, seconds))
            print(f"      {played[-1]}", flush=True)
    finally:
        net.go_on()
        stop_all(net.nodes)
    judged = net.judge()
    figures.require(not judged.convicted, f"{len(judged.convicted)} honest members are convicted")
    figures.require(not judged.posted_twice, f"{judged.posted_twice} posts are second posts")
    return played


def main() -> None:
    """Play attacks and print a table; exits with 1 where one falls short."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak recombine", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(ATTACKS)} (all)")
    parser.add_argument("--seconds", type=float, default=50.0, help="of each attack (%(default)s)")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in ATTACKS]:
        parser.error(f"there is no attack {unknown[0]!r}; known are {', '.join(ATTACKS)}")
    names, played = options.names or [*ATTACKS], list[Measured]()
    with campaign("recombine") as (figures, folder):
        for has_parts in (False, True):
            chosen = [name for name in names if ATTACKS[name].has_parts is has_parts]
            if chosen:
                own = folder / ("parts" if has_parts else "net")
                played += besiege(figures, own, chosen, options.seconds, has_parts=has_parts)
        show(figures, played)


if __name__ == "__main__":
    main()
