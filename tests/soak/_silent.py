"""A process whose sockets can be made deaf to others: their packets vanish before the system acknowledges them."""

import sys
import time
from typing import Any

import trio

from fedchain.crypto.keys import PublicKey
from fedchain.network.libp2p import sockets
from fedchain.network.libp2p.network import Libp2pNetwork, open_network
from fedchain.network.limits import Limits
from fedchain.network.messages import Chunk, GetContent, Message, PostMessage
from fedchain.network.verdict import Verdict
from fedchain.testing.networks import gossip
from tests.soak._processes import answer, told
from tests.support.chain.builders import keys
from tests.support.network.deaf import deafen, undeafen

CHAIN_ID = bytes(32)

TALK_INTERVAL_S = 0.5
"""How often everybody is spoken to."""

TALK_SIZE = 2**16
"""Bytes sent each time, so that much is on its way when a link falls silent."""


def host_of(number: int) -> str:
    """A peer's address, from which it also dials."""
    return f"127.0.0.{10 + number}"


class Ears:
    """All sockets of this process, and to whom they are deaf."""

    def __init__(self, number: int) -> None:
        self._own_host = host_of(number)
        self._hosts: list[str] = []
        self._sockets: set[Any] = set()

    def install(self) -> None:
        """Have every socket pass by here, and be dialled from our own address."""
        original = sockets.watch_silence

        def watch(sock: Any, limits: Limits) -> None:
            original(sock, limits)
            self.take(sock)

        async def dial(host: str, port: int) -> trio.SocketStream:
            sock = trio.socket.socket()
            self.take(sock)
            await sock.bind((self._own_host, 0))
            await sock.connect((host, port))
            return trio.SocketStream(sock)

        sockets.watch_silence = watch
        trio.open_tcp_stream = dial  # type: ignore[assignment]

    def take(self, sock: Any) -> None:
        """Treat one more socket as the others."""
        self._sockets = {known for known in self._sockets if known.fileno() != -1} | {sock}
        if self._hosts:
            deafen(sock, self._hosts)

    def close_to(self, numbers: list[int]) -> None:
        """Hear nothing of these peers, and everything of all others."""
        self._hosts = [host_of(number) for number in numbers]
        for sock in self._sockets:
            if sock.fileno() == -1:
                continue
            if self._hosts:
                deafen(sock, self._hosts)
            else:
                undeafen(sock)


class Talker:
    """Speaks to everybody all the time, and notes when everybody spoke."""

    def __init__(self, number: int, members: list[PublicKey], network: Libp2pNetwork) -> None:
        self._number, self._members, self._network = number, members, network
        self._transaction = gossip().post
        self.spoken = [0.0] * len(members)
        """Newest time at which each peer sent us something directly, on the machine's clock."""
        self.gossiped = [0.0] * len(members)
        """Newest time at which each peer published something that came here."""
        network.attach(self._receive)

    async def run(self) -> None:
        """Speak until cancelled."""
        while True:
            now_us = time.monotonic_ns() // 1000
            name = self._number.to_bytes(4, "big") + now_us.to_bytes(8, "big")
            self._network.publish(PostMessage(self._transaction, name))
            for peer in self._network.peers():
                self._network.send(peer, GetContent(bytes(32), now_us))
                self._network.send(peer, Chunk(bytes(32), 0, bytes(TALK_SIZE)))
            await trio.sleep(TALK_INTERVAL_S)

    def links(self) -> list[int]:
        """Peers that are connected."""
        return sorted(self._members.index(peer) for peer in self._network.peers())

    def _receive(self, peer: PublicKey, message: Message) -> Verdict:
        match message:
            case GetContent(_, now_us):
                self.spoken[self._members.index(peer)] = now_us / 1e6
            case PostMessage(_, payload) if payload is not None:
                self.gossiped[int.from_bytes(payload[:4], "big")] = int.from_bytes(payload[4:12], "big") / 1e6
        return Verdict.ACCEPT


async def run(number: int, count: int) -> None:
    """Do as told."""
    everybody, ears = keys(count), Ears(number)
    members = [key.public_key for key in everybody]
    ears.install()
    commands = told()
    first = await anext(commands)
    limits = Limits(peers_wanted=0, gossip_degree=count)
    async with (
        open_network(
            everybody[number], CHAIN_ID, members, listen=first["listen"], bootstrap=first["dial"], limits=limits
        ) as network,
        trio.open_nursery() as nursery,
    ):
        for listener in network.host.swarm.listeners.values():
            for opened in listener.listeners:  # type: ignore[attr-defined]
                ears.take(opened.socket)
        talker = Talker(number, members, network)
        nursery.start_soon(talker.run)
        answer(network.listen_addresses())
        async for command in commands:
            match command:
                case {"deaf": numbers}:
                    ears.close_to(numbers)
                    answer(True)
                case {"links": _}:
                    answer({"links": talker.links(), "spoken": talker.spoken, "gossiped": talker.gossiped})
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(run, int(sys.argv[1]), int(sys.argv[2]))
