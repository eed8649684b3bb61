"""The multiplexer: yamux, whose peer can neither fill our memory, nor keep us busy, nor stay when it has to go."""

import struct
from typing import Any

import trio
from libp2p.abc import ISecureConn
from libp2p.io.exceptions import ConnectionClosedError
from libp2p.peer.id import ID
from libp2p.stream_muxer.exceptions import MuxedStreamEOF
from libp2p.stream_muxer.yamux.yamux import GO_AWAY_NORMAL, TYPE_GO_AWAY, YAMUX_HEADER_FORMAT, Yamux, YamuxStream

from fedchain.network.libp2p.log import log
from fedchain.network.libp2p.sockets import READ_SIZE, Wire
from fedchain.network.limits import TokenBucket

BUFFERED_MAX = 8 * 2**20
"""Bytes of one connection's streams that may wait to be read."""

READS_PER_S = 5_000.0
"""Reads of one connection by yamux; as many data frames as may come take a tenth of them."""

READS_BURST = 20_000.0
"""Reads at once of a connection that was silent."""

CLOSE_TIMEOUT_S = 2.0
"""How long closing something may take."""


class PacedReads:
    """The encrypted connection under yamux, whose reads cost a token each: two for a frame with data, one for others.

    Yamux answers a ping, and looks at any other frame, before anybody is asked to pay for it. A peer chooses how many
    packets carry what is read at once: each but the first costs another token.
    """

    def __init__(self, conn: ISecureConn) -> None:
        self._conn = conn
        self._reads = TokenBucket(READS_PER_S, READS_BURST, trio.current_time())
        self._rest = memoryview(b"")  # of the last packet
        self.size_max = READ_SIZE
        """Most bytes that a reader may ask for: the library believes a peer about the length of the name of a
        multiplexer, and would hold as much."""

    async def read(self, n: int) -> bytes:
        """``n`` bytes, later if they come too fast.

        Raises:
            IOException: ``n`` is more than is ever said at once, or the connection ends before.
        """
        if n > self.size_max:
            raise ConnectionClosedError(f"{n} bytes are announced, at most {self.size_max} are allowed")
        await self._pay()
        data = bytearray()
        while True:
            taken = self._rest[: n - len(data)]
            self._rest = self._rest[len(taken) :]
            data += taken
            if len(data) == n:
                return bytes(data)
            if data:
                await self._pay()
                await trio.lowlevel.checkpoint()  # packets that are there already would keep others waiting
            self._rest = memoryview(await self._conn.read(None))

    async def _pay(self) -> None:
        if (pause_s := self._reads.borrow(1.0, trio.current_time())) > 0:
            await trio.sleep(pause_s)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._conn, name)


class BoundedYamux(Yamux):
    """A connection whose peer cannot make it hold more than ``BUFFERED_MAX``, end the swarm, keep it busy, or stay."""

    def __init__(self, conn: PacedReads, peer_id: ID, is_initiator: bool | None = None) -> None:
        paced: Any = conn
        super().__init__(paced, peer_id, is_initiator)
        conn.size_max = BUFFERED_MAX
        self.wire: Wire = conn.wire
        self.created_s = trio.current_time()
        self.is_told = False
        """Whether all observers were notified that it has ended."""

    async def start(self) -> None:
        """Run the connection until it is closed."""
        try:
            await super().start()
        except Exception as error:
            log.warning("connection to %s broke: %r", self.peer_id, error)
            await self._cleanup_on_error()

    async def close(self, error_code: int = GO_AWAY_NORMAL) -> None:
        """End the connection at once. Libp2p would send a farewell first, and wait until it is read."""
        self.wire.abort()
        with trio.CancelScope(deadline=trio.current_time() + CLOSE_TIMEOUT_S, shield=True):
            await super().close(error_code)

    async def leave(self) -> None:
        """End the connection once the other side has read all written bytes, if it does so within a moment."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._say_goodbye)
            with trio.move_on_after(CLOSE_TIMEOUT_S):
                await self.event_closed.wait()
            self.wire.abort()
            nursery.cancel_scope.cancel()

    async def _say_goodbye(self) -> None:
        try:
            await self._write_frame(struct.pack(YAMUX_HEADER_FORMAT, 0, TYPE_GO_AWAY, 0, 0, GO_AWAY_NORMAL))
        except Exception as error:
            log.debug("%s was left without a word: %r", self.peer_id, error)

    async def read_stream(self, stream_id: int, n: int = -1) -> bytes:
        """Up to ``n`` bytes of a stream. The library believes a peer about the length of a protocol's name.

        Raises:
            MuxedStreamEOF: the stream has ended, or ``n`` is more than anybody reads at once.
        """
        if n is not None and n > READ_SIZE:
            raise MuxedStreamEOF(f"{n} bytes are announced, at most {READ_SIZE} are allowed")
        try:
            return await super().read_stream(stream_id, n)
        finally:
            if stream_id not in self.streams:  # a reader that waited for it has left another event there
                self.stream_events.pop(stream_id, None)

    def _finalize_stream_locked(self, stream: YamuxStream, *, fully_closed: bool) -> None:
        """Forget a stream that has ended. The library keeps one with bytes that nobody will read for a minute."""
        if stream.reset_received:
            self.stream_buffers.pop(stream.stream_id, None)
        super()._finalize_stream_locked(stream, fully_closed=fully_closed)

    async def _read_data_body(self, length: int) -> bytes:
        held = sum(map(len, self.stream_buffers.values()))
        if held + length > BUFFERED_MAX:
            log.warning("%s sends more than it may: %d bytes wait", self.peer_id, held)
            raise trio.TooSlowError  # the one error after which yamux closes the connection
        return await super()._read_data_body(length)


async def close_quietly(connection: Any) -> None:
    """Close a connection; it may be broken already, and we may be in the middle of stopping."""
    with trio.CancelScope(deadline=trio.current_time() + CLOSE_TIMEOUT_S, shield=True):
        try:
            await connection.close()
        except Exception as error:
            log.debug("closing a connection failed: %r", error)


async def reset_quietly(stream: Any) -> None:
    """Reset a stream, without which its other end would wait for ever."""
    with trio.CancelScope(deadline=trio.current_time() + CLOSE_TIMEOUT_S, shield=True):
        try:
            await stream.reset()
        except Exception as error:
            log.debug("resetting a stream failed: %r", error)
