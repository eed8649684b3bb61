"""Connections are few, and strangers keep no member out."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
import trio
import trio.testing
from Crypto.PublicKey import RSA
from libp2p.crypto.rsa import create_new_key_pair
from libp2p.crypto.x25519 import create_new_key_pair as create_noise_key_pair
from libp2p.custom_types import TProtocol
from libp2p.io.exceptions import IOException
from libp2p.peer.peerinfo import info_from_p2p_addr
from libp2p.security.noise.transport import PROTOCOL_ID as NOISE
from libp2p.security.noise.transport import Transport as Noise
from libp2p.stream_muxer.exceptions import MuxedStreamError
from libp2p.transport.upgrader import TransportUpgrader
from multiaddr import Multiaddr

from fedchain.network.libp2p.network import Libp2pNetwork
from fedchain.network.libp2p.sockets import BufferedTcp
from fedchain.network.libp2p.swarm import NAMES_MAX, build_host
from fedchain.network.limits import Limits
from tests.support.network.assaults import muxed_of
from tests.support.network.real import (
    KEYS,
    LIMITS,
    MEMBERS,
    TIMEOUT_S,
    attacker,
    on_trio,
    peer,
    until,
    works,
)


def swarm(network: Libp2pNetwork) -> Any:
    """The library's connections."""
    return network.host.get_network()


@pytest.mark.long
@on_trio
async def test_a_connection_that_ended_leaves_its_place_to_others() -> None:
    limits = Limits(redial_min_s=0.1, peers_wanted=0, connections_max=4)
    async with peer(0, limits=limits) as network:
        limiter = swarm(network)._inbound_limiter

        async def come_and_go(number: int) -> None:
            host = build_host(KEYS[number], lambda _: True, Limits())
            async with host.run([Multiaddr("/ip4/127.0.0.1/tcp/0")]):
                await host.connect(info_from_p2p_addr(Multiaddr(network.listen_addresses()[0])))
                await until(lambda: MEMBERS[number] in network.peers())
                await host.disconnect(network.host.get_id())
                await until(lambda: MEMBERS[number] not in network.peers())

        for _ in range(7):  # 21 in all, where there are eight places
            async with trio.open_nursery() as nursery:
                for number in (1, 2, 3):
                    nursery.start_soon(come_and_go, number)
        await until(lambda: limiter.borrowed_tokens == 0, "all places free")
        await works(network)


@on_trio
async def test_there_are_no_more_connections_than_allowed() -> None:
    limits = Limits(redial_min_s=0.1, peers_wanted=0, connections_max=2)
    async with peer(0, limits=limits) as network, peer(1, network) as one, peer(2, network) as two:
        await until(lambda: len(network.peers()) == 2)
        async with peer(3, network) as three:
            await until(lambda: three.book._contacts[MEMBERS[0]].failures >= 2)
            await until(lambda: not three.peers())
        assert one.peers() == two.peers() == [MEMBERS[0]]


@on_trio
async def test_strangers_that_never_shake_hands_keep_no_member_out() -> None:
    async with peer(0, limits=Limits(redial_min_s=0.1, peers_wanted=0, handshakes_max=4)) as network:
        port = int(str(Multiaddr(network.listen_addresses()[0]).value_for_protocol("tcp")))
        doors = swarm(network).handshakes
        places = [f"127.0.0.{2 + number % 2}" for number in range(20)]
        strangers = [await trio.open_tcp_stream("127.0.0.1", port, local_address=place) for place in places]
        await until(lambda: len(doors) == 4, "a full door")
        await until(lambda: swarm(network)._inbound_limiter.borrowed_tokens == 4, "the others closed")
        await works(network)
        for stranger in strangers:
            await stranger.aclose()
        await until(lambda: len(doors) == 0, "nobody at the door")


@on_trio
async def test_members_behind_one_address_come_in_at_once() -> None:
    async with peer(0, limits=Limits(redial_min_s=0.1, peers_wanted=0, handshakes_max=8)) as network:

        async def stay(number: int) -> None:
            async with attacker(network, KEYS[number]):
                await until(lambda: len(network.peers()) == 8, "all of them")

        async with trio.open_nursery() as nursery:
            for number in range(1, 9):
                nursery.start_soon(stay, number)
        assert len(swarm(network).handshakes) == 0


@on_trio
async def test_few_names_of_protocols_are_heard_of_a_stranger_and_on_a_stream() -> None:
    async with peer(0) as network, attacker(network) as bad:
        await until(network.peers)
        port = int(str(Multiaddr(network.listen_addresses()[0]).value_for_protocol("tcp")))
        async with await trio.open_tcp_stream("127.0.0.1", port) as stranger:
            assert await answers(stranger.send_all, stranger.receive_some) == NAMES_MAX
        stream = await muxed_of(bad).open_stream()
        assert await answers(stream.write, lambda: stream.read(2**16)) == NAMES_MAX
        assert bad.is_connected()
        await works(network)


async def answers(write: Callable[[bytes], Awaitable[None]], read: Callable[[], Awaitable[bytes]]) -> int:
    """How many names of protocols that nobody knows are answered until the other side has enough."""
    heard, hello = b"", b"\x13/multistream/1.0.0\n"
    await write(hello + b"\x02x\n" * (2 * NAMES_MAX))
    with suppress(MuxedStreamError, trio.BrokenResourceError):
        while heard.count(b"\x03na\n") < 2 * NAMES_MAX and (more := await read()):
            heard += more
    return heard.count(b"\x03na\n")


@on_trio
async def test_a_key_of_another_kind_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library reads it before it is proved, and a stranger can make one of RSA for which that takes seconds."""
    pair, read = create_new_key_pair(1_024), list[bytes]()
    monkeypatch.setattr(RSA, "import_key", read.append)
    async with peer(0) as network:
        upgrader = TransportUpgrader({TProtocol(NOISE): Noise(pair, create_noise_key_pair().private_key)}, {})
        place, _, _ = network.listen_addresses()[0].rpartition("/p2p/")
        raw = await BufferedTcp(LIMITS).dial(Multiaddr(place))
        conn = await upgrader.upgrade_security(raw, True, network.host.get_id())
        with trio.fail_after(TIMEOUT_S), suppress(IOException):  # as the node closes it
            assert not await conn.read(1)
        assert not read
        await works(network)
