"""``python -m tests.soak.transfer``: how long a large payload takes to reach all nodes, also when its source dies.

Ten node processes on loopback, with nothing faked but training and disk. One posts a payload: it is announced by
gossip and fetched in chunks from peers that have it. In the last part two nodes have it, all others join them at once,
and the one that posted it is killed when half of all bytes have arrived.
"""

import argparse
import sys
import time
from collections.abc import Sequence

from fedchain.crypto.hashing import sha256
from tests.soak._holder import blob
from tests.soak._processes import Child, children, connect, wait_until

SMALL, LARGE = 1_700_000, 47_000_000
"""Bytes of a payload."""

SMALL_MAX_S, LARGE_MAX_S = 1.0, 8.0
"""Longest time until all have it."""


def main() -> None:
    """Measure each way and show it."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak transfer", description=__doc__)
    parser.add_argument("--peers", type=int, default=10)
    parser.add_argument("--repeat", type=int, default=3)
    given = parser.parse_args()
    good = True
    for _ in range(given.repeat):
        good &= show("small payload", SMALL, spread(given.peers, SMALL), SMALL_MAX_S)
        good &= show("large payload", LARGE, spread(given.peers, LARGE), LARGE_MAX_S)
        good &= show("large payload, its source killed half-way", LARGE, lose_source(given.peers), LARGE_MAX_S)
    sys.exit(not good)


def show(what: str, size: int, taken_s: Sequence[float], max_s: float) -> bool:
    """Print a line; whether it was fast enough."""
    ranked = sorted(taken_s)
    middle_s, last_s = ranked[len(ranked) // 2], ranked[-1]
    rate = size * len(ranked) / last_s / 1e6
    print(
        f"{what}, {size / 1e6:g} MB: half of {len(ranked)} peers after {middle_s:.2f} s, all after {last_s:.2f} s "
        f"({rate:.0f} MB/s), at most {max_s:g} s",
        flush=True,
    )
    return last_s <= max_s


def spread(count: int, size: int) -> list[float]:
    """Post a payload in the middle of a connected network; when each other peer held it, in seconds since then."""
    with children(count, "tests.soak._holder") as peers:
        connect(peers)
        for child in peers[1:]:
            child.tell(hold=sha256(blob(size)).hex())
        begun_s = peers[0].ask(post=size)
        taken_s = [held(child) - begun_s for child in peers[1:]]
        sent = sum(child.ask(sent=True) for child in peers)
        print(f"sent {sent / size / len(taken_s):.2f} times what all need")
        return taken_s


def lose_source(count: int, size: int = LARGE) -> list[float]:
    """Have all but two peers fetch from these, and kill the first one half-way; when each survivor held it."""
    content_hash = sha256(blob(size)).hex()
    with children(count, "tests.soak._holder") as peers:
        source, other, *late = peers
        places = connect([source, other])
        other.tell(hold=content_hash)
        source.ask(post=size)
        held(other)
        begun_s = time.time()
        for child in late:
            child.tell(dial=places)
            child.tell(hold=content_hash)
        for child in late:
            child.hear()
        half = len(late) * size // 2
        wait_until(lambda: source.ask(sent=True) + other.ask(sent=True) - size >= half, "half of it", step_s=0.01)
        source.kill()
        return [held(child) - begun_s for child in late]


def held(child: Child) -> float:
    """When a peer held what it waited for, in Unix seconds. Raises RuntimeError if it held something else."""
    held_s: float | None = child.hear()
    if held_s is None:
        raise RuntimeError("a peer holds bytes that do not hash to what it asked for")
    return held_s


if __name__ == "__main__":
    main()
