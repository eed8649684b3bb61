"""Real networks for tests: peers on loopback under trio, and a peer that sends whatever it likes."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any, ParamSpec

import trio
from libp2p.custom_types import TProtocol
from libp2p.peer.id import ID
from multiaddr import Multiaddr

from fedchain.crypto.keys import PrivateKey, PublicKey
from fedchain.network.libp2p.network import Libp2pNetwork, open_network
from fedchain.network.libp2p.swarm import GuardedHost, build_host
from fedchain.network.limits import Limits
from fedchain.network.messages import GetContent, Message
from fedchain.network.verdict import Verdict
from tests.support.chain.builders import keys

P = ParamSpec("P")

CHAIN_ID = bytes(range(32))
KEYS = keys(10)
MEMBERS = [key.public_key for key in KEYS]
GOSSIP = TProtocol("/meshsub/1.1.0")
MESSAGES = TProtocol(f"/fedchain/{CHAIN_ID.hex()}/messages/2")
ADDRESSES = TProtocol(f"/fedchain/{CHAIN_ID.hex()}/addresses/2")
TOPIC = f"/fedchain/{CHAIN_ID.hex()}/gossip/2"

LIMITS = Limits(redial_min_s=0.1, redial_max_s=0.5, peers_wanted=0)
"""Impatient, and without peers of its own choice."""

TIMEOUT_S = 60.0
"""How long anything may take before a test gives up; far more than it takes, for machines that are busy."""


def on_trio(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Run a test on trio."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def main() -> None:
            with trio.fail_after(2 * TIMEOUT_S):
                await test(*args, **kwargs)

        trio.run(main)

    return run


async def until(condition: Callable[[], object], what: str = "what is waited for") -> None:
    """Wait for a condition; how long depends on it alone."""
    with trio.move_on_after(TIMEOUT_S):
        while not condition():
            await trio.sleep(0.002)
        return
    raise AssertionError(f"{what} did not happen within {TIMEOUT_S:.0f} s")


@asynccontextmanager
async def peer(number: int, *bootstrap: Libp2pNetwork | str, **options: Any) -> AsyncIterator[Libp2pNetwork]:
    """A member's network, connected to others."""
    places = [place if isinstance(place, str) else place.listen_addresses()[0] for place in bootstrap]
    key: PrivateKey = options.pop("key", None) or KEYS[number]
    options = {"limits": LIMITS, "chain_id": CHAIN_ID, "members": MEMBERS, **options}
    async with open_network(key, bootstrap=places, **options) as network:
        yield network


async def meshed(*networks: Libp2pNetwork) -> None:
    """Wait until each of ``networks`` gossips with each other one."""
    ids = [network.host.get_id() for network in networks]
    for network in networks:
        others = {other for other in ids if other != network.host.get_id()}
        await until(lambda network=network, others=others: others <= network.router.mesh[network.topic], "a mesh")  # type: ignore[misc]


class Inbox:
    """Messages that a network received."""

    def __init__(self, network: Libp2pNetwork, verdict: Verdict = Verdict.ACCEPT) -> None:
        self.heard: list[tuple[PublicKey, Message]] = []
        self._verdict = verdict
        network.attach(self._receive)

    @property
    def messages(self) -> list[Message]:
        return [message for _, message in self.heard]

    def _receive(self, sender: PublicKey, message: Message) -> Verdict:
        self.heard.append((sender, message))
        return self._verdict


class Attacker:
    """A member with libp2p's stack that sends what it likes."""

    def __init__(self, host: GuardedHost, target: ID) -> None:
        self.host, self.target = host, target

    async def open(self, protocol: TProtocol) -> Any:
        """A stream to the target."""
        return await self.host.new_stream(self.target, [protocol])

    async def send(self, protocol: TProtocol, data: bytes) -> Any:
        """Bytes on a new stream."""
        stream = await self.open(protocol)
        await stream.write(data)
        return stream

    def is_connected(self) -> bool:
        return bool(self.host.get_network().get_connections(self.target))


@asynccontextmanager
async def attacker(target: Libp2pNetwork | str, key: PrivateKey = KEYS[9]) -> AsyncIterator[Attacker]:
    """Connect somebody to ``target`` (or its address) who speaks noise and yamux and nothing else."""
    place, _, name = (target if isinstance(target, str) else target.listen_addresses()[0]).rpartition("/p2p/")
    host, peer_id = build_host(key, lambda _: True, Limits()), ID.from_base58(name)
    async with host.run([Multiaddr("/ip4/127.0.0.1/tcp/0")]):
        await host.get_network().dial_addr(Multiaddr(place), peer_id)
        try:
            yield Attacker(host, peer_id)
        finally:
            await host.disconnect(peer_id)


async def works(network: Libp2pNetwork, number: int = 8) -> None:
    """A good peer comes, and its message arrives: ``network`` is well."""
    inbox = Inbox(network)
    question = GetContent(bytes(32), 77)
    async with peer(number, network) as good:
        await until(good.peers, "a connection")
        # A message under way when a connection ends is lost; hasty limits end one that a busy machine keeps waiting.
        good.watch(lambda who, is_connected: good.send(who, question) if is_connected else None)
        await until(lambda: (KEYS[number].public_key, question) in inbox.heard, "a message from a good peer")


def network_key(network: Libp2pNetwork) -> PublicKey:
    """Public key of a network's host."""
    return network.host.get_public_key().to_bytes()
