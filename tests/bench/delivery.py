"""``python -m tests.bench.delivery``: how many messages arrive between real processes, and how fast.

Each of N processes on loopback publishes at a steady rate, all connected to a few others; then each publishes a burst.
Shown are the share that arrived everywhere, and the times until one peer and until the last one had a message.
"""

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import time
from statistics import quantiles

import trio

from fedchain.crypto.keys import PrivateKey, PublicKey
from fedchain.network.gossip import Verdict
from fedchain.network.libp2p import open_network
from fedchain.network.limits import Limits
from fedchain.network.messages import Message, PostMessage
from tests.chain.builders import keys
from tests.network.conformance import gossip

CHAIN_ID = bytes(32)
DIALLED = 4
"""Earlier peers that each peer connects to."""

SETTLE_S = 4.0
"""How long messages may travel after the last one was published."""


async def run_peer(number: int, count: int, size: int, rate: float, duration_s: float, burst: int) -> None:
    """One process: wait for a start signal, publish, and print what was heard."""
    members: list[PublicKey] = [key.public_key for key in keys(count)]
    key: PrivateKey = keys(count)[number]
    bootstrap = json.loads(sys.stdin.readline())
    heard: dict[bytes, float] = {}
    transaction = gossip().transaction

    def receive(peer: PublicKey, message: Message) -> Verdict:
        assert isinstance(message, PostMessage)
        assert message.payload is not None
        heard.setdefault(message.payload[:8], time.time() - int.from_bytes(message.payload[8:16], "big") / 1e9)
        return Verdict.ACCEPT

    async with open_network(key, CHAIN_ID, members, bootstrap=bootstrap, limits=Limits(peers_wanted=0)) as network:
        network.attach(receive)
        print(json.dumps(network.listen_addresses()), flush=True)
        start_s = json.loads(await trio.to_thread.run_sync(sys.stdin.readline))

        def publish(sequence: int) -> None:
            name = number.to_bytes(4, "big") + sequence.to_bytes(4, "big")
            network.publish(PostMessage(transaction, name + time.time_ns().to_bytes(8, "big") + bytes(size)))

        await trio.sleep(start_s - time.time())
        begun_s, cpu_s = trio.current_time(), _cpu_s()
        total = int(rate * duration_s)
        for sequence in range(total):
            await trio.sleep_until(begun_s + (sequence + number / count) / rate)
            publish(sequence)
        await trio.sleep_until(begun_s + duration_s + SETTLE_S)
        steady, cpu_s = len(heard), _cpu_s() - cpu_s
        for sequence in range(total, total + burst):
            publish(sequence)
        await trio.sleep(2 * SETTLE_S)
    rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    times = {name.hex(): heard_s for name, heard_s in heard.items()}
    print(json.dumps({"steady": steady, "cpu_s": cpu_s, "rss_mb": rss_mb, "times": times}), flush=True)


def main() -> None:
    """Start the processes and show what they measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", type=int, default=10)
    parser.add_argument("--size", type=int, default=1_000, help="bytes of a payload")
    parser.add_argument("--rate", type=float, default=20.0, help="messages per second, all peers together")
    parser.add_argument("--duration-s", type=float, default=10.0)
    parser.add_argument("--burst", type=int, default=10, help="messages that each peer publishes at once at the end")
    parser.add_argument("--number", type=int, default=-1, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.number >= 0:
        rate = given.rate / given.peers
        trio.run(run_peer, given.number, given.peers, given.size, rate, given.duration_s, given.burst)
        return
    children: list[subprocess.Popen[str]] = []
    places: list[str] = []
    draw = random.Random(1)
    for number in range(given.peers):
        command = [sys.executable, "-m", "tests.bench.delivery", *sys.argv[1:], "--number", str(number)]
        children.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    for child in children:
        _tell(child, draw.sample(places, min(DIALLED, len(places))))
        places += json.loads(_hear(child))
    for child in children:
        _tell(child, time.time() + 3.0)
    reports = [json.loads(_hear(child)) for child in children]
    _show(given, reports)


def _show(given: argparse.Namespace, reports: list[dict[str, object]]) -> None:
    steady = int(given.rate / given.peers * given.duration_s)
    others = given.peers - 1
    deliveries: list[float] = []
    last: dict[str, float] = {}
    bursts = 0
    for report in reports:
        times = report["times"]
        assert isinstance(times, dict)
        for name, heard_s in times.items():
            if int(name[8:], 16) < steady:
                deliveries.append(heard_s)
                last[name] = max(last.get(name, 0.0), heard_s)
            else:
                bursts += 1
    cpu_ms = 1000 * sum(float(str(report["cpu_s"])) for report in reports) / max(1, len(deliveries))
    print(f"delivered {len(deliveries)} of {steady * given.peers * others}, CPU {cpu_ms:.1f} ms per delivery")
    for what, values in (("one peer", deliveries), ("all peers", list(last.values()))):
        cuts = quantiles(values, n=100)
        print(f"until {what}: p50 {1000 * cuts[49]:.0f} ms, p99 {1000 * cuts[98]:.0f} ms")
    print(f"burst of {given.burst} from each: delivered {bursts} of {given.burst * given.peers * others}")
    print(f"memory: at most {max(float(str(report['rss_mb'])) for report in reports):.0f} MB")


def _tell(child: "subprocess.Popen[str]", value: object) -> None:
    assert child.stdin is not None
    child.stdin.write(json.dumps(value) + "\n")
    child.stdin.flush()


def _hear(child: "subprocess.Popen[str]") -> str:
    assert child.stdout is not None
    return child.stdout.readline()


def _cpu_s() -> float:
    times = os.times()
    return times.user + times.system


if __name__ == "__main__":
    main()
