"""``python -m tests.soak.connections``: whether a node takes in all peers that come, and lets go of all that leave.

Members connect to one node process from one address, one after another and many at once; then some come while
strangers hold connections open that never say a word. The node must hold the same afterwards as before.
"""

import argparse
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import trio
from libp2p.peer.peerinfo import info_from_p2p_addr
from multiaddr import Multiaddr

from fedchain.crypto.keys import PrivateKey
from fedchain.network.libp2p.log import quieten_library
from fedchain.network.libp2p.swarm import build_host
from fedchain.network.limits import Limits
from tests.soak._processes import Child, children
from tests.support.chain.builders import keys

GROWTH_MAX_MB = 10.0
"""Memory that may stay behind after all have come and gone, once the node has seen as many at a time before."""

LEAVE_S = 30.0
"""How long the node may take to notice that all have left."""


def main() -> None:
    """Come and go, and show what is left behind."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak connections", description=__doc__)
    parser.add_argument("--in-turn", type=int, default=1_000, help="connections one after another")
    parser.add_argument("--at-once", type=int, default=200, help="connections at once")
    parser.add_argument("--strangers", type=int, default=400, help="connections that never say a word")
    given = parser.parse_args()
    quieten_library()
    with children(1, "tests.soak._door", given.at_once + 1) as (node,):
        good = trio.run(visit, node, given.in_turn, given.at_once, given.strangers)
    sys.exit(not good)


async def visit(node: Child, in_turn: int, at_once: int, strangers: int) -> bool:
    """Do all of it; whether everybody came in and nothing stayed behind."""
    place = node.ask(address=True)
    visitors = keys(at_once)
    first = node.ask(figures=True)
    good = await come_at_once(node, place, visitors)
    good &= await all_left(node, first, "at first")
    before_mb = node.rss_mb()
    begun_s = time.monotonic()
    arrived = node.ask(figures=True)["arrivals"]
    for number in range(in_turn):
        async with visitor(place, visitors[number % at_once]):
            await until(node, "arrivals", arrived + number + 1)
    came = node.ask(figures=True)["arrivals"] - arrived
    print(f"{in_turn} one after another: {came} came in, {(time.monotonic() - begun_s) / in_turn * 1000:.0f} ms each")
    good &= came == in_turn
    good &= await come_at_once(node, place, visitors)
    good &= await come_past_strangers(node, place, visitors[:20], strangers)
    good &= await all_left(node, first, "at the end")
    grown_mb = node.rss_mb() - before_mb
    print(f"memory: {before_mb:.1f} MB before, {grown_mb:+.1f} MB since, at most {GROWTH_MAX_MB:+.0f} MB")
    return good and grown_mb <= GROWTH_MAX_MB


async def come_at_once(node: Child, place: str, visitors: tuple[PrivateKey, ...], what: str = "at once") -> bool:
    """Connect all visitors and stay until all are in; whether all came in."""
    begun_s = time.monotonic()
    leave, failures = trio.Event(), list[Exception]()

    async def come(key: PrivateKey) -> None:
        try:
            async with visitor(place, key):
                await leave.wait()
        except Exception as error:
            failures.append(error)

    async with trio.open_nursery() as nursery:
        for key in visitors:
            nursery.start_soon(come, key)
        came = await until(node, "peers", len(visitors))
        taken_s = time.monotonic() - begun_s
        leave.set()
    print(f"{len(visitors)} {what}: {came} came in within {taken_s:.1f} s, {len(failures)} failed")
    return came == len(visitors) and not failures


async def come_past_strangers(node: Child, place: str, visitors: tuple[PrivateKey, ...], strangers: int) -> bool:
    """Let members come while strangers, some at their own address, hold the door; whether all came in."""
    port = int(str(Multiaddr(place).value_for_protocol("tcp")))
    async with AsyncExitStack() as opened:
        for number in range(strangers):
            host = f"127.0.0.{1 + number % 3}"
            stream = await trio.open_tcp_stream("127.0.0.1", port, local_address=host)
            await opened.enter_async_context(stream)
        return await come_at_once(node, place, visitors, f"at once past {strangers} silent strangers")


async def all_left(node: Child, first: dict[str, int], when: str) -> bool:
    """Wait until the node holds what it held ``first``, and show it."""
    deadline_s = time.monotonic() + LEAVE_S
    while True:
        now = node.ask(figures=True)
        left: dict[str, int] = {name: now[name] - first[name] for name in ("peers", "sockets", "tasks")}
        if max(left.values()) <= 0 or time.monotonic() > deadline_s:
            shown = ", ".join(f"{count:+d} {name}" for name, count in left.items())
            print(f"left behind {when}: {shown}", flush=True)
            return max(left.values()) <= 0
        await trio.sleep(0.1)


async def until(node: Child, name: str, count: int, timeout_s: float = 60.0) -> int:
    """Wait until a figure has arrived at ``count``; what it is."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        figures: dict[str, int] = await trio.to_thread.run_sync(lambda: node.ask(figures=True))
        if figures[name] >= count or time.monotonic() > deadline_s:
            return figures[name]
        await trio.sleep(0.002)


@asynccontextmanager
async def visitor(place: str, key: PrivateKey) -> AsyncIterator[None]:
    """A member that is connected for as long as the context lasts."""
    host = build_host(key, lambda _: True, Limits())
    swarm: Any = host.get_network()
    async with host.run([]):
        info = info_from_p2p_addr(Multiaddr(place))
        await swarm.dial_addr(info.addrs[0], info.peer_id)
        try:
            yield
        finally:
            await host.disconnect(info.peer_id)


if __name__ == "__main__":
    main()
