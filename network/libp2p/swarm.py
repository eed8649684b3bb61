"""libp2p's connections, guarded: members only, no leaked slots, bounded memory, and no handler that ends the process.

Decision 10 lists the parts of py-libp2p 0.8.1 that are worked around here, and why.
"""

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import trio
from libp2p.abc import IMultiselectCommunicator, IMuxedConn, INetStream, INetwork, INotifee, IRawConnection, ISecureConn
from libp2p.abc import INetConn as Connection
from libp2p.custom_types import StreamHandlerFn, TProtocol
from libp2p.host.basic_host import BasicHost
from libp2p.io.abc import ReadWriteCloser
from libp2p.network.auto_connector import AutoConnector
from libp2p.network.config import ConnectionConfig, RetryConfig
from libp2p.network.connection.raw_connection import RawConnection
from libp2p.network.connection.swarm_connection import SwarmConn
from libp2p.network.swarm import Swarm
from libp2p.peer.id import ID
from libp2p.peer.peerstore import PeerStore
from libp2p.protocol_muxer.exceptions import MultiselectCommunicatorError, MultiselectError
from libp2p.protocol_muxer.multiselect import DEFAULT_NEGOTIATE_TIMEOUT, Multiselect
from libp2p.rcmgr import Direction
from libp2p.stream_muxer.yamux.yamux import PROTOCOL_ID as YAMUX
from libp2p.transport.exceptions import MuxerUpgradeFailure
from libp2p.transport.upgrader import TransportUpgrader
from multiaddr import Multiaddr

from fedchain.crypto.keys import PrivateKey
from fedchain.network.libp2p.handshakes import Handshakes
from fedchain.network.libp2p.identity import key_pair, peer_id, security_of
from fedchain.network.libp2p.knocking import Answer, answer_knock
from fedchain.network.libp2p.log import log
from fedchain.network.libp2p.muxer import BoundedYamux, PacedReads, close_quietly, reset_quietly
from fedchain.network.libp2p.sockets import BufferedTcp, Wire
from fedchain.network.limits import Limits

COLLISION_S = 5.0
"""Two connections to one peer opened within this time were dialled from both ends at once."""

NAMES_MAX = 16
"""Protocols that a peer may name until one is known here, for each stream and at each step of a handshake. Ours name
one, and other implementations the few that they have."""

Admits = Callable[[ID], bool]


def build_host(key: PrivateKey, admits: Admits, limits: Limits) -> "GuardedHost":
    """A host with TCP, noise and yamux and nothing else: no identify, no discovery, no resource manager."""
    pair = key_pair(key)
    own_id = peer_id(key.public_key)
    peerstore = PeerStore()
    peerstore.add_key_pair(own_id, pair)
    upgrader = GatedUpgrader(security_of(key), {TProtocol(YAMUX): BoundedYamux})
    upgrader.admits = admits
    for step in (upgrader.security_multistream, upgrader.muxer_multistream):
        step._selector.multiselect = BoundedMultiselect(step.multiselect.handlers)
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
    # The library's own limit turns away the newest connections, which strangers can exploit.
    swarm._inbound_limiter = trio.CapacityLimiter(math.inf)
    swarm.handshakes = Handshakes(limits.handshakes_max)
    return GuardedHost(swarm, limits)


class BoundedMultiselect(Multiselect):
    """Hears few names of protocols: the library answers as many as come, before anybody pays for them."""

    async def negotiate(
        self, communicator: IMultiselectCommunicator, negotiate_timeout: int = DEFAULT_NEGOTIATE_TIMEOUT
    ) -> tuple[TProtocol | None, StreamHandlerFn | None]:
        """As libp2p's. Raises MultiselectError, too, once too many were named."""
        return await super().negotiate(_FewNames(communicator), negotiate_timeout)


class _FewNames(IMultiselectCommunicator):
    """The words of a peer until a protocol is chosen, up to a bound."""

    def __init__(self, said: IMultiselectCommunicator) -> None:
        self._said = said
        self._left = 1 + NAMES_MAX  # the first one is that of the negotiation itself

    async def read(self) -> str:
        if self._left == 0:
            raise MultiselectCommunicatorError(f"more than {NAMES_MAX} protocols are named")
        self._left -= 1
        return await self._said.read()

    async def write(self, msg_str: str) -> None:
        await self._said.write(msg_str)


class NoConnector(AutoConnector):
    """Dials nobody: another module chooses the peers to connect."""

    async def maybe_connect(self) -> None:
        """Does nothing; libp2p's would dial 32 of all peers it ever heard of as soon as none is connected."""


class GatedUpgrader(TransportUpgrader):
    """Turns strangers away between the handshake that names them and everything else; one may knock before."""

    admits: Admits
    on_knock: Answer | None = None

    async def upgrade_security(
        self, raw_conn: IRawConnection, is_initiator: bool, peer_id: ID | None = None
    ) -> ISecureConn:
        """As libp2p's; the socket stays within reach."""
        conn: Any = await super().upgrade_security(raw_conn, is_initiator, peer_id)
        raw: Any = raw_conn
        conn.wire = raw.stream
        return conn  # type: ignore[no-any-return]

    async def upgrade_connection(self, conn: ISecureConn, peer_id: ID) -> IMuxedConn:
        """As libp2p's, for peers that are admitted, and with our yamux: libp2p would ignore it for its own."""
        if not self.admits(peer_id):
            if self.on_knock is not None and not conn.is_initiator:
                await answer_knock(conn, peer_id, self.on_knock)
            log.info("%s is not admitted", peer_id)
            raise MuxerUpgradeFailure(f"{peer_id} is not admitted")
        paced: Any = PacedReads(conn)
        try:
            await self.muxer_multistream.select_transport(paced)
        except MultiselectError as error:
            raise MuxerUpgradeFailure(f"no multiplexer in common with {peer_id}") from error
        return BoundedYamux(paced, peer_id, is_initiator=conn.is_initiator)


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

    def welcome(self, answer: Answer) -> None:
        """Answer strangers that knock."""
        upgrader: Any = self.upgrader
        upgrader.on_knock = answer

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
        """Does nothing: the end was reported when the connection was forgotten."""

    async def _do_handle_inbound_connection(
        self, read_write_closer: ReadWriteCloser, maddr: Multiaddr, failure_event: Any
    ) -> None:
        raw = RawConnection(Wire(read_write_closer, self.limits), False)
        host, _ = raw.get_remote_address() or ("", 0)
        if (evicted := self.handshakes.add(raw, host)) is not None:
            log.info("too many connections in the handshake; one is closed")
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
        self.multiselect = BoundedMultiselect(self.multiselect.handlers)
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
                log.warning("%s opened too many streams", net_stream.muxed_conn.peer_id)
                await reset_quietly(net_stream)
                return
            await super()._swarm_stream_handler(net_stream)
        except Exception as error:
            log.warning("a stream of %s broke: %r", net_stream.muxed_conn.peer_id, error)
            await reset_quietly(net_stream)

    def _schedule_identify(self, peer_id: ID, *, reason: str) -> None:
        """Members know which protocols members speak."""


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


async def _refuse(stream: INetStream) -> None:
    await reset_quietly(stream)
