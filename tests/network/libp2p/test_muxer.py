"""Below the streams: frames are paced, windows are kept, and a failure inside ends one connection."""

import struct
from contextlib import suppress
from typing import Any

import pytest
import trio
import trio.testing
from libp2p.custom_types import TProtocol
from libp2p.io.exceptions import IOException
from libp2p.network.connection.exceptions import RawConnError
from libp2p.stream_muxer.exceptions import MuxedStreamEOF
from libp2p.stream_muxer.yamux.yamux import FLAG_RST, FLAG_SYN, TYPE_DATA, YAMUX_HEADER_FORMAT
from libp2p.transport.upgrader import TransportUpgrader
from libp2p.utils import encode_uvarint
from multiaddr import Multiaddr

from fedchain.network.libp2p.identity import peer_id, security_of
from fedchain.network.libp2p.muxer import BUFFERED_MAX, READS_BURST, READS_PER_S, BoundedYamux, PacedReads
from fedchain.network.libp2p.network import Libp2pNetwork
from fedchain.network.libp2p.sockets import READ_SIZE, BufferedTcp
from tests.support.network.assaults import muxed_of
from tests.support.network.real import (
    KEYS,
    LIMITS,
    attacker,
    on_trio,
    peer,
    until,
    works,
)

ATTACKER = KEYS[9]


def swarm(network: Libp2pNetwork) -> Any:
    """The library's connections."""
    return network.host.get_network()


@on_trio
async def test_a_connection_that_fails_inside_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    original, failed = BoundedYamux.handle_incoming, list[bool]()

    async def fail(yamux: BoundedYamux) -> None:
        if yamux.peer_id == peer_id(ATTACKER.public_key):
            failed.append(True)
            raise RuntimeError("a fault of the library's")
        await original(yamux)

    monkeypatch.setattr(BoundedYamux, "handle_incoming", fail)
    async with peer(0) as network:
        with suppress(Exception):
            async with attacker(network):
                await until(lambda: failed)
        await works(network)


@on_trio
async def test_a_peer_is_not_believed_about_the_length_of_a_protocol_s_name() -> None:
    async with peer(0) as network, attacker(network) as bad:
        await until(network.peers)
        (connection,) = swarm(network).get_connections()
        with pytest.raises(MuxedStreamEOF, match="65537 bytes are announced"):
            await connection.muxed_conn.read_stream(0, READ_SIZE + 1)
        assert bad.is_connected()
        await works(network)


@pytest.mark.parametrize(("wanted", "size"), [(12, 12), (1_000, 1)], ids=["frames", "packets"])
def test_frames_below_the_streams_are_paced_and_so_are_packets_below_the_frames(wanted: int, size: int) -> None:
    read = list[float]()

    class Endless:
        async def read(self, n: int | None) -> bytes:
            assert n is None, "a packet is wanted, whatever its size"
            read.append(trio.current_time())
            return bytes(size)

    async def main() -> None:
        conn = PacedReads(Endless())  # type: ignore[arg-type]
        while len(read) < READS_BURST + 2 * READS_PER_S:
            assert await conn.read(wanted) == bytes(wanted)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert read[round(READS_BURST) - 1] == read[0]
    assert read[round(READS_BURST + 2 * READS_PER_S) - 1] - read[0] == pytest.approx(2.0, rel=0.01)


def test_what_is_left_of_a_packet_comes_with_the_next_read() -> None:
    packets = [b"abc", b"d", b"efghij"]

    class Given:
        async def read(self, n: int | None) -> bytes:
            return packets.pop(0)

    async def main() -> list[bytes]:
        conn = PacedReads(Given())  # type: ignore[arg-type]
        return [await conn.read(n) for n in (2, 3, 1, 0, 4)]

    assert trio.run(main) == [b"ab", b"cde", b"f", b"", b"ghij"]


@on_trio
async def test_a_member_is_not_believed_about_the_length_of_a_multiplexer_s_name() -> None:
    async with peer(0) as network:
        place, _, _ = network.listen_addresses()[0].rpartition("/p2p/")
        raw = await BufferedTcp(LIMITS).dial(Multiaddr(place))
        conn = await TransportUpgrader(security_of(ATTACKER), {}).upgrade_security(raw, True, network.host.get_id())
        written = 0
        with suppress(IOException, RawConnError):  # as the node closes it
            await conn.write(encode_uvarint(2**30))
            while written < 2**26:  # far more than the system itself holds of a connection
                await conn.write(bytes(READ_SIZE))
                written += READ_SIZE
        assert written < 2**26
        await works(network)


@on_trio
async def test_whoever_ignores_the_window_is_disconnected() -> None:
    async with peer(0) as network, attacker(network) as bad:

        async def do_not_read(stream: object) -> None:
            await trio.sleep_forever()

        network.host.set_stream_handler(TProtocol("/test"), do_not_read)
        stream = (await bad.open(TProtocol("/test"))).muxed_stream
        (connection,) = swarm(network).get_connections()
        buffers, held = connection.muxed_conn.stream_buffers, list[int]()
        header = struct.pack(YAMUX_HEADER_FORMAT, 0, TYPE_DATA, 0, stream.stream_id, 60_000)
        with suppress(Exception):  # it is cut off
            for _ in range(4 * BUFFERED_MAX // 60_000):
                await stream.conn._write_frame(header + bytes(60_000))
                held.append(sum(map(len, buffers.values())))
        await until(lambda: not network.peers(), "a disconnection")
        assert BUFFERED_MAX // 2 < max(held) <= BUFFERED_MAX
        await works(network)


@on_trio
async def test_nothing_is_kept_of_a_stream_that_was_waited_for_and_reset() -> None:
    async with peer(0) as network, attacker(network) as bad:
        await until(network.peers)
        (connection,) = swarm(network).get_connections()
        stream = await muxed_of(bad).open_stream()
        assert await stream.read(1), "it is waited for a protocol's name"
        assert is_open(connection, stream.stream_id)
        await stream.reset()
        await until(lambda: not is_open(connection, stream.stream_id), "its end")
        assert not is_kept(connection.muxed_conn, stream.stream_id)
        await works(network)


@pytest.mark.parametrize("flags", [FLAG_SYN, FLAG_SYN | FLAG_RST], ids=["by us", "by its peer"])
@on_trio
async def test_nothing_is_kept_of_a_stream_that_was_reset_before_all_was_read(flags: int) -> None:
    unread = b"\x02x\n" * 10  # none of which is how a peer begins
    async with peer(0) as network, attacker(network) as bad:
        await until(network.peers)
        (connection,) = swarm(network).get_connections()
        number, opened = 1_001, list[bool]()

        def pays(peer: object) -> bool:
            opened.append(is_open(connection, number))
            return True

        network.host.pays = pays
        header = struct.pack(YAMUX_HEADER_FORMAT, 0, TYPE_DATA, flags, number, len(unread))
        await muxed_of(bad)._write_frame(header + unread)
        await until(lambda: True in opened and not is_open(connection, number), "its end")
        assert not is_kept(connection.muxed_conn, number)
        await works(network)


def is_open(connection: Any, number: int) -> bool:
    """Whether a stream is being dealt with."""
    return any(stream.muxed_stream.stream_id == number for stream in connection.get_streams())


def is_kept(muxed: Any, number: int) -> bool:
    """Whether a multiplexer has anything of a stream."""
    return any(number in held for held in (muxed.streams, muxed.stream_events, muxed.stream_buffers))
