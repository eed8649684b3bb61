"""Nodes that are killed again and again: ``python -m tests.soak kills [--kills 60] [--rounds 200] [--seed 1]``.

Five nodes run on disks whose commits take 0 to 300 ms; after round 3 one more comes with an empty folder. From then on
one of them is killed at a random moment of some rounds and started again at once. A further member listens, so that
with one node away a quorum of the seven is just there. At the end what was
heard is compared with what its author stored: nothing may be missing, and no member may have said two things in one
place.
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path
from random import Random

import trio

from fedchain.crypto.keys import PrivateKey
from fedchain.files.layout import GENESIS_FILE
from fedchain.node.founding.consensus import Consensus
from fedchain.node.founding.genesis_file import read_genesis
from fedchain.node.operating.local_node import LocalNode, stop_all
from fedchain.node.operating.testnet import found_testnet
from tests.soak._figures import Figures, campaign, percentile
from tests.soak._observer import Observer, observing
from tests.support.node.processes import Promises, height, kill, log_of
from tests.support.node.shell import DIGITS

NODES = 5
LATE_AFTER = 3
"""Round after which one more node comes."""

QUIET_ROUNDS = 2
"""Rounds at the end in which nobody is killed."""

DISK_S_MAX = 0.3
"""How long a commit may take."""

MINING_S, PHASE_TIMEOUT_S = 3.0, 15.0
"""A round waits that long for a member that took part in the one before; a process needs less to start."""

REJOIN_ROUNDS_MAX = 2
POLL_S = 0.05
STALL_S = 180.0
"""A round that takes longer fails the campaign."""


class Killer:
    """Kills, starts again, and watches who is back."""

    def __init__(self, nodes: list[LocalNode], late: LocalNode, kills: int, every: int, rng: Random) -> None:
        self.rejoined: list[tuple[int, float]] = []
        """For every kill: rounds that the others closed until the node had caught up, and seconds."""
        self.starts: list[float] = []
        """Seconds until the new process answered, for every kill."""
        self.moments: list[float] = []
        """When in its round each kill came, in seconds."""
        self.late_s: float | None = None
        """Seconds that the late node took to catch up."""
        self._nodes, self._late, self._kills, self._every, self._rng = nodes, late, kills, every, rng
        self._away: dict[int, tuple[int, float]] = {}
        self._silent: dict[int, float] = {}
        self._heights: dict[int, int] = {}

    async def run(self) -> None:
        """Return once all have closed the last round and agree."""
        for node in self._nodes:
            node.start()
        reached, round_s, begun, late_begun = 0, 2.0, time.monotonic(), 0.0
        kill_at_s: float | None = None
        while True:
            await trio.to_thread.run_sync(self._look)
            now = time.monotonic()
            best = max(self._heights.values())
            if best > reached:
                if kill_at_s is not None:  # this round was shorter than the one before
                    self._kill_one(best, now, 0.0)
                reached, round_s, begun = best, now - begun, now
                is_quiet = self.late_s is None or len(self.moments) >= self._kills or best % self._every
                kill_at_s = None if is_quiet else now + self._rng.uniform(0.0, min(round_s, PHASE_TIMEOUT_S))
            self._note_rejoined(best, now)
            if kill_at_s is not None and now >= kill_at_s:
                kill_at_s = None
                self._kill_one(best, now, now - begun)
            if best >= LATE_AFTER and self._late.process is None:
                self._late.start()
                late_begun, self._heights[self._late.number] = now, 0
            elif self._late.process is not None and self.late_s is None and self._heights[self._late.number] == best:
                self.late_s = now - late_begun
            started = [node for node in (*self._nodes, self._late) if node.process is not None]
            if all(node.status.get("finished") for node in started):
                return
            if now - begun > STALL_S:
                raise AssertionError(f"height {best} for {STALL_S:.0f} s: {[node.status for node in started]}")
            await trio.sleep(POLL_S)

    def _look(self) -> None:
        for node in (*self._nodes, self._late):
            if node.process is not None:
                self._heights[node.number] = height(node)

    def _kill_one(self, best: int, now_s: float, moment_s: float) -> None:
        here = [node for node in self._nodes if node.number not in self._away]
        node = self._rng.choice(here or self._nodes)
        kill(node)
        node.start()
        self._heights[node.number] = 0
        self._away[node.number] = best, now_s
        self._silent[node.number] = now_s
        self.moments.append(moment_s)

    def _note_rejoined(self, best: int, now_s: float) -> None:
        for node in self._nodes:
            if node.status and node.number in self._silent:
                self.starts.append(now_s - self._silent.pop(node.number))
        for number, (before, killed_s) in list(self._away.items()):
            if self._heights[number] == best:
                del self._away[number]
                self.rejoined.append((best - before, now_s - killed_s))
                print(f"      round {best + 1}: node {number} is back after {now_s - killed_s:.1f} s", flush=True)


async def story(folder: Path, kills: int, rounds: int, seed: int) -> tuple[list[LocalNode], Killer, Observer]:
    """Let it happen."""
    everyone = found_testnet(
        folder,
        replace(DIGITS, clients=NODES + 2),
        Consensus(rounds=rounds, mining_s=MINING_S, mining_attempts=12_000, phase_timeout_s=PHASE_TIMEOUT_S),
    )
    nodes, late, listener = everyone[:NODES], everyone[NODES], everyone[NODES + 1]
    genesis = read_genesis(folder / GENESIS_FILE)
    key = PrivateKey.load(listener.folder / "key.pem")
    for node in everyone:
        place = node.command.index("fedchain")
        node.command[place : place + 1] = ["tests.soak._slow_node", str(DISK_S_MAX)]
    every = max(1, (rounds - QUIET_ROUNDS) // kills)
    killer = Killer(nodes, late, kills, every, Random(seed))
    try:
        async with observing(genesis, key, [node.address for node in everyone[:-1]]) as observer:
            await killer.run()
            return [*nodes, late], killer, observer
    finally:
        stop_all([*nodes, late])


def judge(figures: Figures, nodes: list[LocalNode], killer: Killer, observer: Observer, kills: int) -> None:
    """Say what came of it."""
    back = [seconds for _, seconds in killer.rejoined]
    figures.require(len(killer.moments) >= kills, f"{len(killer.moments)} kills, {kills} wanted")
    figures.show(f"{min(killer.moments):.2f} to {max(killer.moments):.2f} s after the round's begin")
    figures.require(len(back) == len(killer.moments), f"{len(back)} of {len(killer.moments)} came back")
    worst = max(closed for closed, _ in killer.rejoined)
    figures.require(worst <= REJOIN_ROUNDS_MAX, f"back within {worst} rounds, {REJOIN_ROUNDS_MAX} allowed")
    figures.show(
        f"back after {percentile(back, 50):.1f} s (median), {max(back):.1f} s at most; of which the start of the"
        f" process took {percentile(killer.starts, 50):.1f} and {max(killer.starts):.1f} s"
    )
    figures.require(worst > 0, f"meanwhile the others closed {sum(closed for closed, _ in killer.rejoined)} rounds")
    heads = {node.status["head"] for node in nodes}
    last = nodes[0].status["height"]
    figures.require(len(heads) == 1, f"{len(heads)} head in {len(nodes)} nodes at height {last}")
    late_s = killer.late_s
    figures.require(late_s is not None, f"a node with an empty folder caught up after {late_s or 0:.1f} s")
    everything = Promises(dict(observer.heard.posts), dict(observer.heard.votes), dict(observer.heard.blocks))
    missing: list[str] = []
    for node in nodes:
        stored = Promises()
        stored.add_store(node)  # a store that does not open raises
        missing += observer.heard.missing_in(stored, PrivateKey.load(node.folder / "key.pem").public_key)
        everything.add_store(node)
    figures.require(True, f"{len(nodes)} stores open")
    figures.require(not missing, f"{len(missing)} posts, votes and blocks were sent and not stored {missing[:3]}")
    figures.show(
        f"{observer.messages} messages heard: {len(observer.heard.posts)} posts and {len(observer.heard.votes)} votes;"
        f" {len(everything.posts)} and {len(everything.votes)} with what was stored"
    )
    figures.require(everything.broken() == 0, f"{everything.broken()} posts or votes of which there are two")
    seen = len(observer.heard.votes) / max(1, len(everything.votes))
    figures.require(seen > 0.8, f"{100 * seen:.0f} % of the votes were heard by the listener")
    faulty = [node.number for node in nodes if "Traceback" in log_of(node) or " ERROR " in log_of(node)]
    figures.require(not faulty, f"{len(faulty)} logs with an error")


def main() -> None:
    """Kill, watch and judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=60, help="how often a node is killed")
    parser.add_argument("--rounds", type=int, default=200, help="rounds in all")
    parser.add_argument("--seed", type=int, default=1, help="of who is killed when")
    options = parser.parse_args()
    with campaign("kills") as (figures, folder):
        nodes, killer, observer = trio.run(story, folder / "net", options.kills, options.rounds, options.seed)
        judge(figures, nodes, killer, observer, options.kills)


if __name__ == "__main__":
    main()
