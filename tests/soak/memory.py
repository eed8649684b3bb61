"""``python -m tests.soak.memory``: whether the memory of processes that gossip for long stays the same.

Resident memory of each of ten processes is sampled while they gossip. After a first quarter, in which everything
reaches its size, it must stay: the medians of the second and the last quarter are compared.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from statistics import median

from tests.soak._processes import children, connect
from tests.soak.delivery import publish, settle

GROWTH_MAX = 0.05
"""Largest growth of any process, as a fraction."""


def main() -> None:
    """Start the processes and show how much they hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak memory", description=__doc__)
    parser.add_argument("--peers", type=int, default=10)
    parser.add_argument("--size", type=int, default=1_000, help="bytes of a payload")
    parser.add_argument("--rate", type=float, default=20.0, help="messages per second, all peers together")
    parser.add_argument("--minutes", type=float, default=15.0)
    given = parser.parse_args()
    seconds, rate = 60 * given.minutes, given.rate / given.peers
    step_s = min(10.0, seconds / 40)
    with children(given.peers, "tests.soak._gossiper") as peers:
        connect(peers)
        publish(peers, 1, peers, int(rate * seconds), given.size, rate)
        samples: list[list[float]] = [[] for _ in peers]
        begun_s = time.monotonic()
        while (passed_s := time.monotonic() - begun_s) < seconds:
            time.sleep(step_s - passed_s % step_s)
            for child, taken in zip(peers, samples, strict=True):
                taken.append(child.rss_mb())
        expected = given.peers * (given.peers - 1) * int(rate * seconds)
        heard = settle(peers, expected)
    growths = [growth(taken) for taken in samples]
    print(f"heard {heard} of {expected} deliveries in {given.minutes:g} minutes")
    for number, quarter in enumerate(quarters([sum(now) / len(now) for now in zip(*samples, strict=True)])):
        print(f"quarter {number + 1}: median {median(quarter):.1f} MB per process")
    print(f"growth from the second to the last: {min(growths):+.1%} to {max(growths):+.1%}, at most {GROWTH_MAX:+.0%}")
    sys.exit(max(growths) > GROWTH_MAX)


def growth(samples: Sequence[float]) -> float:
    """How much more the last quarter holds than the second, as a fraction."""
    _, second, _, last = quarters(samples)
    return median(last) / median(second) - 1


def quarters(samples: Sequence[float]) -> list[Sequence[float]]:
    """Four parts of equal length; what is over belongs to the first."""
    size = len(samples) // 4
    start = len(samples) - 4 * size
    return [samples[start * (part > 0) + part * size : start + (part + 1) * size] for part in range(4)]


if __name__ == "__main__":
    main()
