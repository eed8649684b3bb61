"""libp2p's connections, guarded: members only, no leaked slots, bounded memory, and no handler that ends the process.

Decision 10 lists what of py-libp2p 0.8.1 is worked around here, and why.
"""

import math
import struct
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import trio
from libp2p.abc import IMuxedConn, INetStream, INetwork, INotifee, IRawConnection, ISecureConn
from libp2p.abc import INetConn as Connection
from libp2p.crypto.x25519 import create_new_key_pair as create_noise_key_pair
from libp2p.custom_types import TProtocol
from libp2p.host.basic_host import BasicHost
from libp2p.io.abc import ReadWriteCloser
from libp2p.network.auto_connector import AutoConnector
from libp2p.network.config import ConnectionConfig, RetryConfig
from libp2p.network.connection.raw_connection import RawConnection
from libp2p.network.connection.swarm_connection import SwarmConn
from libp2p.network.swarm import Swarm
from libp2p.peer.id import ID
from libp2p.peer.peerstore import PeerStore
from libp2p.protocol_muxer.exceptions import MultiselectError
from libp2p.rcmgr import Direction
from libp2p.security.noise.transport import PROTOCOL_ID as NOISE
from libp2p.security.noise.transport import Transport as Noise
from libp2p.stream_muxer.yamux.yamux import GO_AWAY_NORMAL, TYPE_GO_AWAY, YAMUX_HEADER_FORMAT, Yamux
from libp2p.stream_muxer.yamux.yamux import PROTOCOL_ID as YAMUX
from libp2p.transport.exceptions import MuxerUpgradeFailure
from libp2p.transport.upgrader import TransportUpgrader
from multiaddr import Multiaddr

from fedchain.crypto.keys import PrivateKey
from fedchain.network.libp2p.handshakes import Handshakes
from fedchain.network.libp2p.identity import key_pair, peer_id
from fedchain.network.libp2p.log import log
from fedchain.network.libp2p.sockets import BufferedTcp, Wire
from fedchain.network.limits import Limits, TokenBucket

BUFFERED_MAX = 8 * 2**20
"""Bytes of one connection's streams that may wait to be read."""

READS_PER_S = 5_000.0
"""Reads of one connection by yamux; as many data frames as may come take a tenth of them."""

READS_BURST = 20_000.0
"""Reads at once of a connection that was silent."""

COLLISION_S = 5.0
"""Two connections to one peer opened within this time were dialled from both ends at once."""

CLOSE_TIMEOUT_S = 2.0
"""How long closing something may take."""

Admits = Callable[[ID], bool]


def build_host(key: PrivateKey, admits: Admits, limits: Limits) -> "GuardedHost":
    """A host with TCP, noise and yamux and nothing else: no identify, no discovery, no resource manager."""
    pair = key_pair(key)
    own_id = peer_id(key.public_key)
    peerstore = PeerStore()
    peerstore.add_key_pair(own_id, pair)
    upgrader = GatedUpgrader(
        {TProtocol(NOISE): Noise(pair, noise_privkey=create_noise_key_pair().private_key)},
        {TProtocol(YAMUX): BoundedYamux},
    )
    upgrader.admits = admits
    count_max = limits.connections_max
    config = ConnectionConfig(
        max_connections=count_max,
        min_connections=0,
        low_watermark=0,
        high_watermark=count_max,
        max_connections_per_peer=1,
        auto_connect_interval=3600.0,
        inbound_upgrade_timeout=limits.handshake_timeout_s,
        outbound_upgrade_timeout=limits.handshake_timeout_s,
    )
    swarm = GuardedSwarm(own_id, peerstore, upgrader, [BufferedTcp(limits)], RetryConfig(max_retries=0), config)
    swarm.limits = limits
    swarm.auto_connector = NoConnector(swarm)
    # The library's own limit turns away whoever comes last, which strangers can see to.
    swarm._inbound_limiter = trio.CapacityLimiter(math.inf)
    swarm.handshakes = Handshakes(limits.handshakes_max)
    return GuardedHost(swarm, limits)


class NoConnector(AutoConnector):
    """Dials nobody: whom to connect is decided elsewhere."""

    async def maybe_connect(self) -> None:
        """Nothing, where libp2p's would dial 32 of those it ever heard of as soon as nobody is connected."""


class GatedUpgrader(TransportUpgrader):
    """Turns strangers away between the handshake that names them and everything else."""

    admits: Admits

    async def upgrade_security(
        self, raw_conn: IRawConnection, is_initiator: bool, peer_id: ID | None = None
    ) -> ISecureConn:
        """As libp2p's; the socket stays within reach."""
        conn: Any = await super().upgrade_security(raw_conn, is_initiator, peer_id)
        conn.wire = getattr(raw_conn, "stream", None)
        return conn  # type: ignore[no-any-return]

    async def upgrade_connection(self, conn: ISecureConn, peer_id: ID) -> IMuxedConn:
        """As libp2p's, for peers that are admitted, and with our yamux: libp2p would ignore it for its own."""
        if not self.admits(peer_id):
            log.info("stranger", "%s is not admitted", peer_id)
            raise MuxerUpgradeFailure(f"{peer_id} is not admitted")
        try:
            await self.muxer_multistream.select_transport(conn)
        except MultiselectError as error:
            raise MuxerUpgradeFailure(f"no multiplexer in common with {peer_id}") from error
        return BoundedYamux(conn, peer_id, is_initiator=conn.is_initiator)


class PacedReads:
    """The encrypted connection under yamux, whose reads cost a token each: two for a frame with data, one for others.

    Yamux answers a ping, and looks at any other frame, before anybody is asked to pay for it.
    """

    def __init__(self, conn: ISecureConn) -> None:
        self._conn = conn
        self._reads = TokenBucket(READS_PER_S, READS_BURST, trio.current_time())

    async def read(self, n: int | None = None) -> bytes:
        """Up to ``n`` bytes, later if they come too fast."""
        if (pause_s := self._reads.borrow(1.0, trio.current_time())) > 0:
            await trio.sleep(pause_s)
        return await self._conn.read(n)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._conn, name)


class BoundedYamux(Yamux):
    """A connection whose peer cannot make it hold more than ``BUFFERED_MAX``, end the swarm, keep it busy, or stay."""

    def __init__(self, conn: ISecureConn, peer_id: ID, is_initiator: bool | None = None) -> None:
        paced: Any = PacedReads(conn)
        super().__init__(paced, peer_id, is_initiator)
        self.wire: Wire = paced.wire
        self.created_s = trio.current_time()
        self.is_told = False
        """Whether all that want to know were told that it has ended."""

    async def start(self) -> None:
        """Run the connection until it is closed."""
        try:
            await super().start()
        except Exception as error:
            log.warning("yamux", "connection to %s broke: %r", self.peer_id, error)
            await self._cleanup_on_error()

    async def close(self, error_code: int = GO_AWAY_NORMAL) -> None:
        """End the connection at once. Libp2p would say goodbye first, and wait as long as nobody reads that."""
        self.wire.abort()
        with trio.CancelScope(deadline=trio.current_time() + CLOSE_TIMEOUT_S, shield=True):
            await super().close(error_code)

    async def leave(self) -> None:
        """End the connection once the other side has read what was written, if it does so within a moment."""
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
            log.debug("goodbye", "%s was left without a word: %r", self.peer_id, error)

    async def _read_data_body(self, length: int) -> bytes:
        held = sum(map(len, self.stream_buffers.values()))
        if held + length > BUFFERED_MAX:
            log.warning("window", "%s sends more than it may: %d bytes wait", self.peer_id, held)
            raise trio.TooSlowError  # the one error after which yamux closes the connection
        return await super()._read_data_body(length)


class GuardedSwarm(Swarm):
    """Gives a connection's slot back when the connection ends, says so, and keeps one connection to each peer."""

    limits: Limits
    handshakes: Handshakes[RawConnection]

    def drop(self, peer_id: ID) -> None:
        """End and forget the connections to a peer now, whatever state they are in."""
        connections: list[Any] = self.connections.pop(peer_id, [])
        for connection in connections:
            connection.muxed_conn.wire.abort()
            self._tell_of_end(connection)
            self.manager.run_task(close_quietly, connection)

    def remove_conn(self, swarm_conn: SwarmConn) -> None:
        """Forget a connection that ends."""
        super().remove_conn(swarm_conn)
        self._tell_of_end(swarm_conn)

    def _tell_of_end(self, connection: Any) -> None:
        """Tell of a connection's end once, in a task of its own: the one that ends it may hang, or be cancelled."""
        muxed: BoundedYamux = connection.muxed_conn
        if self.manager.is_running and not muxed.is_told:
            muxed.is_told = True
            self.manager.run_task(self._notify, "disconnected", connection)

    async def notify_disconnected(self, conn: Connection) -> None:
        """Nothing: it was told when the connection was forgotten."""

    async def _do_handle_inbound_connection(
        self, read_write_closer: ReadWriteCloser, maddr: Multiaddr, failure_event: Any
    ) -> None:
        raw = RawConnection(Wire(read_write_closer, self.limits), False)
        host, _ = raw.get_remote_address() or ("", 0)
        if (evicted := self.handshakes.add(raw, host)) is not None:
            log.info("handshakes", "too many connections in the handshake; one is closed")
            self.manager.run_task(close_quietly, evicted)
        try:
            muxed: Any = await self.upgrade_inbound_raw_conn(raw, maddr)
            self.handshakes.remove(raw)
            await muxed.event_closed.wait()
        finally:
            self.handshakes.remove(raw)
            await close_quietly(raw)

    def _trim_connections(self, peer_id: ID) -> None:
        """Keep the newest connection; of two that were dialled at once, both ends keep the same one."""
        connections: list[Any] = self.connections[peer_id]
        if len(connections) < 2:
            return
        newest = connections[-1]
        preferred = Direction.OUTBOUND if self.self_id.to_bytes() < peer_id.to_bytes() else Direction.INBOUND
        kept = newest
        for other in connections[:-1]:
            collided = newest.muxed_conn.created_s - other.muxed_conn.created_s < COLLISION_S
            if collided and other.direction == preferred and kept.direction != preferred:
                kept = other
        for other in connections:
            if other is not kept:
                self.manager.run_task(close_quietly, other)
        self.connections[peer_id] = [kept]


class GuardedHost(BasicHost):
    """Opens streams for both sides; an error in one resets that stream and nothing else."""

    def __init__(self, swarm: GuardedSwarm, limits: Limits) -> None:
        super().__init__(swarm, default_protocols=OrderedDict({TProtocol("/fedchain/none"): _refuse}))
        self.swarm = swarm
        self._limits = limits
        self.pays: Callable[[ID], bool] = lambda peer: True
        """Whether a peer may open another stream."""

    async def _swarm_stream_handler(self, net_stream: INetStream) -> None:
        connection: Any = getattr(net_stream, "swarm_conn", None)
        try:
            if not self.pays(net_stream.muxed_conn.peer_id):
                await reset_quietly(net_stream)
                return
            if connection is not None and len(connection.streams) > self._limits.streams_per_peer_max:
                log.warning("streams", "%s opened too many streams", net_stream.muxed_conn.peer_id)
                await reset_quietly(net_stream)
                return
            await super()._swarm_stream_handler(net_stream)
        except Exception as error:
            log.warning("stream", "a stream of %s broke: %r", net_stream.muxed_conn.peer_id, error)
            await reset_quietly(net_stream)

    def _schedule_identify(self, peer_id: ID, *, reason: str) -> None:
        """Members know what members speak."""


class ConnectionWatch(INotifee):
    """Tells of peers whose first connection opened, whose last one closed, and of every connection that closed."""

    def __init__(
        self,
        connected: Callable[[ID], None],
        disconnected: Callable[[ID], None],
        closed: Callable[[IMuxedConn], None],
    ) -> None:
        self._connected, self._disconnected, self._closed = connected, disconnected, closed

    async def connected(self, network: INetwork, conn: Connection) -> None:
        """A connection opened."""
        self._connected(conn.muxed_conn.peer_id)

    async def disconnected(self, network: INetwork, conn: Connection) -> None:
        """A connection closed; there may be another one."""
        self._closed(conn.muxed_conn)
        if not network.get_connections(conn.muxed_conn.peer_id):
            self._disconnected(conn.muxed_conn.peer_id)

    async def opened_stream(self, network: INetwork, stream: INetStream) -> None:
        """Not of interest."""

    async def closed_stream(self, network: INetwork, stream: INetStream) -> None:
        """Not of interest."""

    async def listen(self, network: INetwork, multiaddr: Multiaddr) -> None:
        """Not of interest."""

    async def listen_close(self, network: INetwork, multiaddr: Multiaddr) -> None:
        """Not of interest."""


async def close_quietly(connection: Any) -> None:
    """Close a connection; it may be broken already, and we may be in the middle of stopping."""
    with trio.CancelScope(deadline=trio.current_time() + CLOSE_TIMEOUT_S, shield=True):
        try:
            await connection.close()
        except Exception as error:
            log.debug("close", "closing a connection failed: %r", error)


async def reset_quietly(stream: Any) -> None:
    """Reset a stream, without which its other end would wait for ever."""
    with trio.CancelScope(deadline=trio.current_time() + CLOSE_TIMEOUT_S, shield=True):
        try:
            await stream.reset()
        except Exception as error:
            log.debug("reset", "resetting a stream failed: %r", error)


async def _refuse(stream: INetStream) -> None:
    await reset_quietly(stream)
