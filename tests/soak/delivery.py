"""``python -m tests.soak.delivery``: whether gossip between real processes arrives, and how fast.

Each of 20 processes on loopback publishes at a steady rate, all connected to a few others; then one publishes a burst,
and then each does. Nothing is asked for again here: what gossip alone does not bring counts as lost, although a node
would repair it.
"""

import argparse
import math
import sys
import time
from collections.abc import Sequence

from tests.soak._processes import Child, children, connect

STEADY, BURST_OF_ONE, BURST_OF_EACH = range(1, 4)

P99_MAX_S = 0.5
"""Largest 99th percentile of the time until one peer has a message published at a steady rate."""

SETTLE_S = 20.0
"""Time without a new message anywhere after which those that are missing count as lost."""


def main() -> None:
    """Start the processes and show what they measured."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak delivery", description=__doc__)
    parser.add_argument("--peers", type=int, default=20)
    parser.add_argument("--size", type=int, default=1_000, help="bytes of a payload")
    parser.add_argument("--rate", type=float, default=20.0, help="messages per second, all peers together")
    parser.add_argument("--seconds", type=float, default=120.0, help="of steady gossip")
    parser.add_argument("--burst", type=int, default=200, help="messages of one peer at once")
    parser.add_argument("--bursts", type=int, default=10, help="messages of each peer at once")
    given = parser.parse_args()
    with children(given.peers, "tests.soak._gossiper") as peers:
        connect(peers)
        steady = int(given.rate / given.peers * given.seconds)
        good = measure(peers, STEADY, peers, steady, given.size, given.rate / given.peers, P99_MAX_S)
        good &= measure(peers, BURST_OF_ONE, peers[:1], given.burst, given.size)
        good &= measure(peers, BURST_OF_EACH, peers, given.bursts, given.size)
        print(f"memory: at most {max(child.rss_mb() for child in peers):.0f} MB")
    sys.exit(not good)


def measure(
    peers: Sequence[Child],
    part: int,
    speakers: Sequence[Child],
    each: int,
    size: int,
    rate: float = 0.0,
    p99_max_s: float = math.inf,
) -> bool:
    """Have each of ``speakers`` publish ``each`` messages, show what came of it, and say whether it was enough."""
    time.sleep(publish(peers, part, speakers, each, size, rate) - time.time())
    expected = [each * (len(speakers) - (child in speakers)) for child in peers]
    settle(peers, sum(expected))
    reports = [child.ask(report=True) for child in peers]
    delays_s = [delay_s for report in reports for delay_s in report["delays_s"] if delay_s >= 0]
    by_message = zip(*(report["delays_s"] for report in reports), strict=True)
    slowest_s = [max(delays) for delays in by_message if max(delays) >= 0]
    cpu_ms = 1000 * sum(report["cpu_s"] for report in reports) / max(1, len(delays_s))
    what = f"{each} from each of {len(speakers)}" + (f", {rate:g} per second each" if rate else " at once")
    print(f"{what}: delivered {len(delays_s)} of {sum(expected)}, CPU {cpu_ms:.1f} ms per delivery")
    for name, values in (("one peer", delays_s), ("all peers", slowest_s)):
        print(f"  until {name}: p50 {1000 * part_of(values, 50):.0f} ms, p99 {1000 * part_of(values, 99):.0f} ms")
    sys.stdout.flush()
    return len(delays_s) == sum(expected) and part_of(delays_s, 99) <= p99_max_s


def settle(peers: Sequence[Child], expected: int) -> int:
    """Wait until all is heard that is ``expected``, or nothing more comes for ``SETTLE_S``; how much was heard."""
    heard, since_s = -1, time.monotonic()
    while True:
        before, heard = heard, sum(int(child.ask(heard=True)) for child in peers)
        since_s = time.monotonic() if heard > before else since_s
        if heard >= expected or time.monotonic() > since_s + SETTLE_S:
            return heard
        time.sleep(0.2)


def part_of(values: Sequence[float], percent: int) -> float:
    """The percentile of ``values``; infinite if there are none."""
    ranked = sorted(values)
    return ranked[math.ceil(percent / 100 * len(ranked)) - 1] if ranked else math.inf


def publish(peers: Sequence[Child], part: int, speakers: Sequence[Child], each: int, size: int, rate: float) -> float:
    """Have messages published, in turns if ``rate`` is given; when the last one should be out, in Unix seconds."""
    for child in peers:
        child.ask(begin=part, each=each)
    begun_s = time.time() + 0.5
    for place, child in enumerate(speakers):
        shift_s = place / len(speakers) / rate if rate else 0.0
        child.tell(publish=each, rate=rate, size=size, at_s=begun_s + shift_s)
    return begun_s + (each / rate if rate else 0.0)


if __name__ == "__main__":
    main()
