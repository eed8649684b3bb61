"""``python -m tests.soak silence``: links between real processes swallow all packets for minutes, and heal.

Five processes speak to each other all the time, each with the limits that nodes have. Then the packets of some vanish
before the system of others sees them: on one link in one direction, in both, and on all links between two parties.
The campaign measures how long it takes until the dead links are given up, and, after healing, until everybody hears
everybody again, directly and by gossip, with nobody started again.
"""

import argparse
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack

from fedchain.crypto.address import address
from fedchain.network.limits import Limits
from tests.soak._figures import Figures, campaign
from tests.soak._processes import Child, children, wait_until
from tests.soak._silent import host_of
from tests.support.chain.builders import keys

PEERS = 5

NOTICED_MAX_S = 60.0
"""Longest time until both ends of a dead link have given it up."""

BACK_MAX_S = 15.0
"""Longest time from healing until all links are back."""

Deaf = dict[int, list[int]]
"""Numbers of the members that each member hears nothing of."""

SILENCES: dict[str, Deaf] = {
    "one way": {0: [1]},
    "both ways": {0: [1], 1: [0]},
    "two parties": {0: [2, 3, 4], 1: [2, 3, 4], 2: [0, 1], 3: [0, 1], 4: [0, 1]},
}


def main() -> None:
    """Silence links, heal them, and measure."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak silence", description=__doc__)
    parser.add_argument("--seconds", type=float, default=150.0, help="how long links are silent")
    options = parser.parse_args()
    with campaign("silence") as (figures, _), children(PEERS, "tests.soak._silent") as peers:
        start(peers)
        everybody = wait_for_all(peers, time.monotonic())
        figures.show(f"all {PEERS} hear each other {everybody:.1f} s after the last one began to listen")
        for name, deaf in SILENCES.items():
            silence(figures, peers, name, deaf, options.seconds)


def start(peers: Sequence[Child]) -> None:
    """Let each listen at an address of its own, and know all others."""
    with ExitStack() as reserved:
        ports = []
        for number in range(PEERS):
            sock = reserved.enter_context(socket.socket())
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((host_of(number), 0))
            ports.append(sock.getsockname()[1])
    places = [f"/ip4/{host_of(number)}/tcp/{port}" for number, port in enumerate(ports)]
    named = [f"{place}/p2p/{address(key.public_key)}" for place, key in zip(places, keys(PEERS), strict=True)]
    for number, child in enumerate(peers):
        child.ask(listen=places[number], dial=[place for other, place in enumerate(named) if other != number])


def silence(figures: Figures, peers: Sequence[Child], name: str, deaf: Deaf, seconds: float) -> None:
    """Let packets vanish for a while, and see what happens then and afterwards."""
    begun_s = time.monotonic()
    for number, others in deaf.items():
        peers[number].ask(deaf=others)
    dead = {frozenset((number, other)) for number, others in deaf.items() for other in others}
    wait_until(lambda: not dead & linked(peers), f"{name}: the dead links are given up", NOTICED_MAX_S + 60.0)
    noticed_s = time.monotonic() - begun_s
    alive = {frozenset((one, other)) for one in range(PEERS) for other in range(one)} - dead
    whole = alive <= linked(peers)
    figures.require(noticed_s <= NOTICED_MAX_S, f"{name}: given up at both ends after {noticed_s:.1f} s")
    time.sleep(max(0.0, begun_s + seconds - time.monotonic()))
    figures.require(whole and alive <= linked(peers), f"{name}: the other {len(alive)} links are there all the time")
    healed_s = time.monotonic()
    for number in deaf:
        peers[number].ask(deaf=[])
    back_s = wait_for_all(peers, healed_s)
    figures.require(back_s <= BACK_MAX_S, f"{name}: all links are back {back_s:.1f} s after {seconds:.0f} s of silence")


def linked(peers: Sequence[Child]) -> set[frozenset[int]]:
    """Pairs of which at least one end counts the other as connected."""
    return {frozenset((one, other)) for one, child in enumerate(peers) for other in child.ask(links=True)["links"]}


def wait_for_all(peers: Sequence[Child], since_s: float) -> float:
    """Wait until everybody has heard everybody say something newer than ``since_s``; how long that took."""

    def is_whole() -> bool:
        for number, child in enumerate(peers):
            state = child.ask(links=True)
            for heard in (state["spoken"], state["gossiped"]):
                if min(at_s for other, at_s in enumerate(heard) if other != number) <= since_s:
                    return False
        return True

    wait_until(is_whole, "everybody hears everybody", 120.0 + Limits().redial_max_s)
    return time.monotonic() - since_s


if __name__ == "__main__":
    main()
