"""Below the streams: frames are paced, windows are kept, and a failure inside ends one connection."""

import struct
from contextlib import suppress
from typing import Any

import pytest
import trio
import trio.testing
from libp2p.custom_types import TProtocol
from libp2p.stream_muxer.exceptions import MuxedStreamEOF
from libp2p.stream_muxer.yamux.yamux import FLAG_RST, FLAG_SYN, TYPE_DATA, YAMUX_HEADER_FORMAT

from fedchain.network.libp2p.identity import peer_id
from fedchain.network.libp2p.muxer import BUFFERED_MAX, READS_BURST, READS_PER_S, BoundedYamux, PacedReads
from fedchain.network.libp2p.network import Libp2pNetwork
from fedchain.network.libp2p.sockets import READ_SIZE
from tests.support.network.assaults import muxed_of
from tests.support.network.real import (
    KEYS,
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


def test_frames_below_the_streams_are_paced() -> None:
    read = list[float]()

    class Endless:
        async def read(self, n: int) -> bytes:
            read.append(trio.current_time())
            return bytes(n)

    async def main() -> None:
        conn = PacedReads(Endless())  # type: ignore[arg-type]
        for _ in range(round(READS_BURST + 2 * READS_PER_S)):
            await conn.read(12)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert read[round(READS_BURST) - 1] == read[0]
    assert read[-1] - read[0] == pytest.approx(2.0, rel=0.01)


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
