"""``python -m tests.soak twins``: nodes that share a key or lost their memory, in a thousand small federations.

An honest owner is never accused, a node that is alone is never stopped, and of two with one key both end within two
heights. At last real processes: a member's machine is copied while its node is stopped, and both are started; then one
of them is started again, alone.
"""

import argparse
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

from fedchain.node.founding.consensus import Consensus
from fedchain.node.operating.local_node import LocalNode, stop_all
from fedchain.node.operating.status import ask_status
from fedchain.node.operating.testnet import found_testnet, free_ports
from tests.soak._figures import Figures, campaign
from tests.soak._processes import wait_until
from tests.support.node.processes import height, log_of, look
from tests.support.node.shell import DIGITS
from tests.support.node.twin_scenarios import MEMORIES, Outcome, copied, doubled, restarted, restored

HEIGHTS_MAX = 2
"""Heights within which both nodes with one key end."""

WORDS = "in use elsewhere"
"""Words of a node that stops because another process has its key."""

NODES = 4
MINING_S = 4.0
"""Seconds that a height takes, about: to end takes a process two, and to be heard by it takes some more."""

WAIT_S = 180.0
"""How long anything may take; starting processes on a busy machine takes most of it."""


def main() -> None:
    """Run them, and say what became of the nodes."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak twins", description=__doc__)
    parser.add_argument("--count", type=int, default=20, help="federations of each kind, of which there are 48")
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    parser.add_argument("--machines", type=int, default=3, help="machines that are copied, of real processes")
    given = parser.parse_args()
    with campaign("twins") as (figures, folder):
        judge_federations(figures, range(given.first, given.first + given.count))
        for number in range(given.machines):
            copy_machine(figures, folder / str(number), Random(given.first + number))


def judge_federations(figures: Figures, seeds: Sequence[int]) -> None:
    """Each kind in virtual time."""
    for members in (1, 2, 3, 4, 7):
        for kind in MEMORIES if members <= NODES else ():
            outcomes = [restarted(members, seed, kind) for seed in seeds]
            _judge_alone(figures, f"n={members} restarted with {kind}", outcomes)
            if members > 1:
                outcomes = [doubled(members, seed, kind) for seed in seeds]
                _judge_two(figures, f"n={members} a second one with {kind}", outcomes)
        if members >= NODES:
            for loss in (0.0, 0.2):
                outcomes = [copied(members, seed, loss=loss) for seed in seeds]
                _judge_two(figures, f"n={members} copied while stopped, loss {loss}", outcomes)
            outcomes = [restored(members, seed) for seed in seeds]
            _judge_alone(figures, f"n={members} restored, its words said again", outcomes)


def copy_machine(figures: Figures, folder: Path, draw: Random) -> None:
    """Copy a member's machine while its node is stopped, and start both; then one alone."""
    config = replace(DIGITS, clients=NODES)
    nodes = found_testnet(
        folder, config, Consensus(rounds=10_000, mining_s=MINING_S, mining_attempts=16_000, phase_timeout_s=15.0)
    )
    others, owner = nodes[:-1], nodes[-1]  # the last one is told of the others
    twin = _twin_of(owner)
    try:
        for node in nodes:
            node.start()
        wait_until(lambda: min(map(height, nodes)) >= 3, "three rounds", WAIT_S)
        stop_all([owner])
        shutil.copytree(owner.folder, twin.folder, ignore=shutil.ignore_patterns("*.sock", "*.log"))
        pause_s = draw.choice((0.0, 0.0, 2.0, 10.0))
        owner.start()
        time.sleep(pause_s)
        twin.start()
        heights, took_s = _wait_for_silence((owner, twin), others)
        figures.require(
            0 <= heights <= HEIGHTS_MAX,
            f"started {pause_s:.0f} s one after the other, both say nothing more {took_s:.1f} s after the second was "
            f"connected, {heights} heights later",
        )
        wait_until(lambda: all(map(_has_ended, (owner, twin))), "both have ended", WAIT_S)
        last_words = [log_of(node).splitlines()[-1] for node in (owner, twin)]
        figures.require(all(WORDS in words for words in last_words), "their last words name the other process")
        owner.start()
        wait_until(lambda: look(owner).get("silent") is False, "the owner's node speaks again", WAIT_S)
        begun = max(map(height, others))
        wait_until(lambda: min(map(height, nodes)) >= begun + 3, "three more heights with it", WAIT_S)
        convicted = [look(node)["convicted"] for node in nodes]
        figures.require(not any(convicted), f"alone it goes on; convictions that the nodes know of: {convicted}")
    finally:
        stop_all([*nodes, twin])


def _wait_for_silence(pair: Sequence[LocalNode], others: Sequence[LocalNode]) -> tuple[int, float]:
    """Heights that the others closed after both were connected until both fell silent, and seconds; -1: they did not.

    To end takes a process a few seconds more.
    """
    begun_s, connected_s, at_start = time.monotonic(), 0.0, -1
    while time.monotonic() - begun_s < WAIT_S:
        at_end = max(map(height, others))
        if at_start < 0 and all(_is_connected(node) for node in pair):
            at_start, connected_s = at_end, time.monotonic()
        if all(WORDS in log_of(node) for node in pair):
            return (at_end - at_start, time.monotonic() - connected_s) if at_start >= 0 else (0, 0.0)
        time.sleep(0.05)
    return -1, WAIT_S


def _is_connected(node: LocalNode) -> bool:
    status = ask_status(node.folder) or {}
    return bool(status.get("peers")) or WORDS in log_of(node)


def _has_ended(node: LocalNode) -> bool:
    return node.process is not None and node.process.poll() is not None


def _twin_of(owner: LocalNode) -> LocalNode:
    """The same member on another machine: another folder and port."""
    folder = owner.folder.with_name(f"{owner.folder.name}-copy")
    (port,) = free_ports(1)
    command = [part.replace(str(owner.folder), str(folder)) for part in owner.command]
    command[command.index("--listen") + 1] = f"/ip4/127.0.0.1/tcp/{port}"
    return LocalNode(NODES, folder, owner.address, command, modules=owner.modules)


def _judge_alone(figures: Figures, title: str, outcomes: Sequence[Outcome]) -> None:
    is_good = not any(outcome.accused or any(outcome.stopped) for outcome in outcomes)
    figures.require(is_good, f"{title}: {_counts(outcomes)}")


def _judge_two(figures: Figures, title: str, outcomes: Sequence[Outcome]) -> None:
    is_good = all(0 <= outcome.stopped_after <= HEIGHTS_MAX and not outcome.accused for outcome in outcomes)
    figures.require(is_good, f"{title}: {_counts(outcomes)}")


def _counts(outcomes: Sequence[Outcome]) -> str:
    stopped = Counter(outcome.stopped for outcome in outcomes)
    accused = [seed for seed, outcome in enumerate(outcomes) if outcome.accused]
    ended = sorted(outcome.stopped_after for outcome in outcomes)
    return f"stopped {dict(stopped)}, accused in seeds {accused}; heights to the end of both {ended[0]} to {ended[-1]}"


if __name__ == "__main__":
    main()
