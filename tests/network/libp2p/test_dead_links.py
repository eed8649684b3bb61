"""Links that die without a word: the connection is given up at both ends, and is there again when the link is."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
import trio
import trio.testing
from libp2p.io.exceptions import ConnectionClosedError
from libp2p.io.trio import TrioTCPStream
from libp2p.rcmgr import Direction
from libp2p.stream_muxer.yamux.yamux import Yamux

from fedchain.network.libp2p.network import Libp2pNetwork
from fedchain.network.libp2p.sockets import Wire
from fedchain.network.limits import Limits
from fedchain.network.messages import CHUNK_SIZE, Chunk, GetContent
from fedchain.testing.networks import gossip
from tests.support.network.deaf import deafen
from tests.support.network.proxy import Proxy, proxy
from tests.support.network.real import LIMITS, MEMBERS, TIMEOUT_S, Inbox, meshed, on_trio, peer, until

HASTY = Limits(
    redial_min_s=0.1,
    redial_max_s=0.4,
    peers_wanted=0,
    handshake_timeout_s=2.0,
    idle_timeout_s=2.0,
    keepalive_s=0.2,
    unacknowledged_s=0.5,
)
PATIENT = Limits(redial_min_s=0.1, redial_max_s=0.5, peers_wanted=0, unacknowledged_s=0.5, keepalive_s=0.1)
"""Limits that bear a silent peer, but not one that acknowledges nothing."""


@asynccontextmanager
async def linked(limits: Limits = HASTY) -> AsyncIterator[tuple[Libp2pNetwork, Libp2pNetwork, Proxy]]:
    """Two peers, the second of which reaches the first through a relay."""
    async with (
        proxy() as link,
        peer(0, limits=limits, announce=[link.place]) as one,
        peer(1, link.aim(one.listen_addresses()[0]), limits=limits) as two,
    ):
        await meshed(one, two)
        yield one, two, link


async def talk(one: Libp2pNetwork, two: Libp2pNetwork, number: int) -> None:
    """Gossip and messages flow in both directions; what is lost with a dying connection is said again."""
    for sender, receiver, other in ((one, two, 0), (two, one, 1)):
        inbox, question, news = Inbox(receiver), GetContent(bytes(32), number), gossip(2 * number + other)
        with trio.fail_after(TIMEOUT_S):
            while not {news, question} <= {*inbox.messages}:
                sender.publish(news)
                sender.send(MEMBERS[1 - other], question)
                await trio.sleep(0.05)


def connection_of(network: Libp2pNetwork) -> Any:
    """A network's only connection."""
    (connection,) = network.host.swarm.get_connections()
    return connection


def raw(network: Libp2pNetwork) -> Any:
    """The socket of a network's only connection."""
    return connection_of(network).muxed_conn.wire._socket


@pytest.mark.long
@pytest.mark.parametrize(
    ("there", "back"), [(True, True), (True, False), (False, True)], ids=["both ways", "there", "back"]
)
@on_trio
async def test_a_silent_link_is_given_up_at_both_ends_and_is_back_when_it_heals(there: bool, back: bool) -> None:
    async with linked() as (one, two, link):
        seen: tuple[list[bool], list[bool]] = ([], [])
        one.watch(lambda who, here: seen[0].append(here))
        two.watch(lambda who, here: seen[1].append(here))
        link.silence(there=there, back=back)
        await until(lambda: not one.peers() and not two.peers(), "both ends forget each other")
        attempts = link.accepted
        await until(lambda: link.accepted > attempts, "an attempt in vain")
        assert one.peers() == two.peers() == []
        link.heal()
        await meshed(one, two)
        await talk(one, two, 0)
        assert link.there.swallowed + link.back.swallowed > 0
        for told in seen:
            assert told[:2] == [True, False]
            assert all(now is not before for before, now in pairwise(told)), "each coming and going is told once"


@on_trio
async def test_a_link_that_takes_nothing_is_given_up_although_much_waits_to_be_written() -> None:
    async with linked() as (one, two, link):
        link.stand_still()
        for network, other in ((one, MEMBERS[1]), (two, MEMBERS[0])):
            for number in range(60):
                network.send(other, Chunk(bytes(32), number, bytes(CHUNK_SIZE)))
        await until(lambda: not one.peers() and not two.peers(), "both ends forget each other")
        for network in (one, two):
            assert network.host.swarm.get_connections() == []
        link.heal()
        await meshed(one, two)
        await talk(one, two, 0)


@pytest.mark.long
@on_trio
async def test_a_slow_link_is_kept() -> None:
    async with linked() as (one, two, link):
        link.there.delay_s = link.back.delay_s = 0.15
        gone = list[bool]()
        one.watch(lambda who, here: None if here else gone.append(True))
        for number in range(3):
            await talk(one, two, number)
        assert not gone


@on_trio
async def test_a_connection_that_breaks_is_dialled_again() -> None:
    async with linked() as (one, two, link):
        for number in range(3):
            link.cut()
            await until(lambda number=number: link.accepted >= number + 2, "another attempt")  # type: ignore[misc]
            await meshed(one, two)
            await talk(one, two, number)


@pytest.mark.parametrize("direction", ["inbound", "outbound"])
@on_trio
async def test_what_is_not_acknowledged_ends_a_connection(direction: str) -> None:
    async with peer(0, limits=PATIENT) as one, peer(1, one, limits=PATIENT) as two:
        await meshed(one, two)
        watched, deaf = (one, two) if direction == "inbound" else (two, one)
        assert connection_of(watched).direction is Direction[direction.upper()]
        gone = list[bool]()
        watched.watch(lambda who, here: None if here else gone.append(True))
        deafen(raw(deaf))
        await until(lambda: gone, "the connection is given up")


@pytest.mark.parametrize("direction", ["inbound", "outbound"])
@on_trio
async def test_every_socket_is_watched_by_the_system(direction: str) -> None:
    async with peer(0) as one, peer(1, one) as two:
        await until(lambda: one.peers() and two.peers())
        sock = raw(one if direction == "inbound" else two)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == round(1000 * LIMITS.unacknowledged_s)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        idle_s = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
        assert idle_s == LIMITS.keepalive_s
        probes = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT)
        noticed_s = idle_s + probes * sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL)
        assert noticed_s < LIMITS.idle_timeout_s


@pytest.mark.long
@pytest.mark.parametrize("failure", ["raises", "hangs"])
@on_trio
async def test_a_peer_is_forgotten_and_dialled_again_although_its_connection_cannot_be_closed(
    failure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with linked() as (one, two, _):

        async def close(yamux: Yamux, error_code: int = 0) -> None:
            if failure == "hangs":
                await trio.sleep_forever()
            raise RuntimeError("a fault of the library's")

        seen = list[bool]()
        two.watch(lambda who, here: seen.append(here))
        monkeypatch.setattr(Yamux, "close", close)
        two.disconnect(MEMBERS[0])
        assert two.peers() == []
        assert seen == [True, False]
        await until(lambda: seen[-1], "a new connection")
        await meshed(one, two)
        await talk(one, two, 0)


@on_trio
async def test_closing_is_told_although_whoever_closes_is_cancelled() -> None:
    async with linked() as (_, two, link):
        link.stand_still()
        connection, sock = connection_of(two), raw(two)
        with trio.CancelScope() as scope:
            scope.cancel()
            await connection.close()
        await until(lambda: not two.peers(), "the peer is forgotten")
        assert connection.muxed_conn.is_closed
        assert sock.fileno() == -1


@on_trio
async def test_what_was_written_before_the_end_arrives() -> None:
    async with peer(0) as one:
        inbox = Inbox(one)
        async with peer(1, one) as two:
            await meshed(one, two)
            for number in range(20):
                two.send(MEMBERS[0], Chunk(bytes(32), number, bytes(CHUNK_SIZE)))
            await until(lambda: two.counters.messages_out == 20, "all are written")
        await until(lambda: not one.peers(), "the end")
        assert len(inbox.messages) == 20


@on_trio
async def test_a_gossip_stream_that_breaks_on_a_living_connection_leaves_nobody_deaf() -> None:
    async with peer(0) as one, peer(1, one) as two:
        await meshed(one, two)
        inbox = Inbox(two)
        await one.pubsub.peers[two.host.get_id()].reset()
        one.publish(gossip(1))  # the first may be lost with the stream
        await until(lambda: two.host.get_id() in one.pubsub.peers)
        await meshed(one, two)
        one.publish(gossip(2))
        await until(lambda: gossip(2) in inbox.messages, "gossip on a new stream")


@on_trio
async def test_how_long_a_peer_has_been_silent_is_known_also_when_it_is_gone() -> None:
    async with peer(0) as one:

        def heard_s() -> float:
            silence_s, now_s = one.silence_s(MEMBERS[1]), trio.current_time()
            assert silence_s is not None
            assert 0 <= silence_s <= now_s - begun_s
            return now_s - silence_s

        begun_s = trio.current_time()
        assert one.silence_s(MEMBERS[1]) is None
        async with peer(1, one) as two:
            await until(lambda: one.peers() and two.peers())
            first_s, inbox = heard_s(), Inbox(one)
            two.send(MEMBERS[0], GetContent(bytes(32), 1))
            await until(lambda: inbox.messages)
            again_s = heard_s()
            assert first_s < again_s
        await until(lambda: not one.peers())
        assert heard_s() >= again_s - 0.001, "but for the time that passes between two readings of the clock"


# the parts


class Peering:
    """Two ends of a connection on loopback, one of them a wire."""

    def __init__(self, wire: Wire, other: trio.SocketStream) -> None:
        self.wire, self.other = wire, other


@asynccontextmanager
async def wired(limits: Limits = HASTY) -> AsyncIterator[Peering]:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        stream = await trio.open_tcp_stream("127.0.0.1", listener.socket.getsockname()[1])
        other = await listener.accept()
    wire = Wire(TrioTCPStream(stream), limits)
    try:
        yield Peering(wire, other)
    finally:
        await wire.close()
        await other.aclose()


async def received(stream: trio.SocketStream, size: int) -> bytes:
    data = bytearray()
    while len(data) < size and (more := await stream.receive_some()):
        data += more
    return bytes(data)


@on_trio
async def test_a_write_that_has_begun_goes_on_to_its_end_although_it_is_cancelled() -> None:
    data = bytes(range(256)) * 2**16  # more than the system's buffers take
    limits = Limits(unacknowledged_s=30.0)
    async with wired(limits) as pair, trio.open_nursery() as nursery:
        scope = trio.CancelScope()

        async def write() -> None:
            with scope:
                await pair.wire.write(data)

        nursery.start_soon(write)
        await trio.testing.wait_all_tasks_blocked()
        scope.cancel()
        assert await received(pair.other, len(data)) == data


@on_trio
async def test_a_write_that_nobody_takes_ends_the_connection() -> None:
    async with wired() as pair:
        with pytest.raises(ConnectionClosedError):
            await pair.wire.write(bytes(2**25))
        assert await pair.wire.read(1) == b""


@on_trio
async def test_nobody_is_believed_about_the_length_of_what_it_says() -> None:
    async with wired() as pair:
        await pair.other.send_all(b"x")
        with pytest.raises(ConnectionClosedError, match="65537 bytes are announced, at most 65536 are allowed"):
            await pair.wire.read(2**16 + 1)
        assert await pair.wire.read(2**16) == b"x"


@on_trio
async def test_giving_up_wakes_who_reads_and_who_writes_and_resets_the_other_end() -> None:
    async with wired(Limits()) as pair:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pair.wire.read, 1)
            nursery.start_soon(pair.wire.write, bytes(2**25))
            await trio.testing.wait_all_tasks_blocked()
            pair.wire.abort()
            pair.wire.abort()
        with pytest.raises(trio.BrokenResourceError):
            await received(pair.other, 2**25)
