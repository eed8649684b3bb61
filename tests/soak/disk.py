"""A disk that is really full: ``python -m tests.soak disk [--size-kib 2000]``.

One of three nodes keeps its data on a small file system of its own. It must end with one clear line and exit code 1
when that is full, and with more room it must start again and go on where it was, with all that it ever told others.
The file system is a tmpfs in a name space of this process; where the system allows none, the campaign falls short.
"""

import argparse
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from fedchain.crypto.address import public_key_from_address
from fedchain.node.founding.consensus import Consensus
from fedchain.node.operating.local_node import LocalNode, stop_all
from fedchain.node.operating.status import ask_status
from fedchain.node.operating.testnet import found_testnet
from tests.soak._figures import Figures, campaign
from tests.support.node.processes import Promises, height
from tests.support.node.shell import DIGITS, wait_until

NODES = 3
INSIDE = "FEDCHAIN_SOAK_INSIDE"
"""Set in the process that has a name space of its own."""

WAIT_S = 240.0
MORE_ROOM = "64m"


@dataclass(slots=True)
class Confined:
    """The node with the small disk. Its log is elsewhere: a full disk takes no log lines either."""

    node: LocalNode
    disk: Path
    log: Path

    def start(self) -> None:
        """Start it; its log goes on."""
        with self.log.open("ab") as log:
            self.node.process = subprocess.Popen(
                self.node.command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )

    def has_ended(self) -> bool:
        """Whether the process is gone."""
        assert self.node.process is not None
        return self.node.process.poll() is not None

    def height(self) -> int:
        """Height of its head; 0 while it does not answer."""
        return int((ask_status(self.disk) or {}).get("height", 0))

    def mount(self, size: str, *, again: bool = False) -> None:
        """Give it so much room."""
        options = f"{'remount,' if again else ''}size={size}"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(self.disk)], check=True)


def found(folder: Path, size_kib: int) -> tuple[list[LocalNode], Confined]:
    """A federation, and its first member's node with a small disk."""
    nodes = found_testnet(
        folder,
        replace(DIGITS, clients=NODES),
        Consensus(rounds=0, mining_s=0.2, mining_attempts=500, phase_timeout_s=4.0),
    )
    node = nodes[0]
    disk = folder / "disk"
    disk.mkdir()
    node.command[node.command.index("--data") + 1] = str(disk)
    confined = Confined(node, disk, node.folder / "node.log")
    confined.mount(f"{size_kib}k")
    return nodes, confined


def story(figures: Figures, folder: Path, size_kib: int) -> None:
    """Fill the disk, look, make room, and look again."""
    nodes, confined = found(folder, size_kib)
    others = nodes[1:]
    try:
        confined.start()
        for node in others:
            node.start()
        wait_until(confined.has_ended, "the disk is full", WAIT_S)
        lines = [line for line in confined.log.read_text(encoding="utf-8").splitlines() if line]
        assert confined.node.process is not None
        code, last = confined.node.process.returncode, lines[-1]
        disk = os.statvfs(confined.disk)
        figures.show(f"{size_kib} KiB, {disk.f_bavail * disk.f_bsize // 1024} free at the end; the last line: {last}")
        figures.require(code == 1, f"exit code {code}, 1 wanted")
        figures.require(last.startswith("fedchain: ") and ("full" in last or "No space" in last), "one clear line")
        figures.require(not any("Traceback" in line for line in lines), "no traceback")
        at_end = max(map(height, others))
        wait_until(lambda: max(map(height, others)) > at_end, "the others go on", WAIT_S)
        told = Promises()
        for node in others:
            told.add_store(node)

        confined.start()
        wait_until(confined.has_ended, "it ends again: there is no room still", WAIT_S)
        figures.show(f"started without room it says: {confined.log.read_text(encoding='utf-8').splitlines()[-1]}")
        confined.mount(MORE_ROOM, again=True)
        confined.start()
        wait_until(lambda: confined.height() > at_end, "it has caught up", WAIT_S)
        caught_up = confined.height()
        wait_until(lambda: max(map(height, others)) > caught_up + 2, "they go on together", WAIT_S)
        wait_until(lambda: confined.height() > caught_up + 2, "it goes on", WAIT_S)
        figures.require(True, f"with more room it went on to height {confined.height()}")
        stop_all(nodes)
        judge(figures, told, confined, others)
    finally:
        stop_all(nodes)
        subprocess.run(["umount", str(confined.disk)], check=True)


def judge(figures: Figures, told: Promises, confined: Confined, others: list[LocalNode]) -> None:
    """Whether all that it told others is still on its disk, and nothing was told twice."""
    kept = Promises()
    kept.add_store(replace(confined.node, folder=confined.disk))
    me = public_key_from_address(confined.node.address.rpartition("/")[2])
    posts = {key: value for key, value in told.posts.items() if key[2] == me}
    votes = {key: value for key, value in told.votes.items() if key[0] == me}
    lost = sum(kept.posts.get(key) != value for key, value in posts.items())
    lost += sum(kept.votes.get(key) != value for key, value in votes.items())
    figures.require(bool(posts and votes) and lost == 0, f"{lost} of {len(posts)} posts and {len(votes)} votes lost")
    for node in others:
        kept.add_store(node)
    figures.require(kept.broken() == 0, f"{kept.broken()} posts or votes of which there are two")


def main() -> None:
    """Go into a name space of our own, and let it happen there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size-kib", type=int, default=2_000, help="of the small disk")
    options = parser.parse_args()
    if INSIDE not in os.environ:
        command = ["unshare", "--map-root-user", "--mount", sys.executable, "-m", "tests.soak.disk", *sys.argv[1:]]
        sys.exit(subprocess.run(command, env={**os.environ, INSIDE: "1"}, check=False).returncode)
    with campaign("disk") as (figures, folder):
        story(figures, folder / "net", options.size_kib)


if __name__ == "__main__":
    main()
