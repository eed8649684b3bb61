"""The socket under a connection: it reads ahead, never writes half a frame, and can be given up at once.

A link may swallow packets silently. The time for which written data may stay unacknowledged is bounded, by the system
and here, so that such a connection ends by itself; ending it never waits for the other side.
"""

import math
import socket
import struct
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import trio
from libp2p.abc import IRawConnection
from libp2p.io.abc import ReadWriteCloser
from libp2p.io.exceptions import ConnectionClosedError
from libp2p.transport.exceptions import OpenConnectionError
from libp2p.transport.tcp.tcp import TCP
from multiaddr import Multiaddr

from fedchain.network.limits import Limits
from fedchain.network.network import Flow

READ_SIZE = 2**16
"""Bytes asked of a socket or stream at once, and most that a reader may ask for: a packet of Noise is shorter."""

KEEPALIVE_PROBES = 3
"""Unanswered probes of the system's after which an idle socket is given up."""

FAMILIES = {"dns": socket.AF_UNSPEC, "dns4": socket.AF_INET, "dns6": socket.AF_INET6}
"""Address families that a name may stand for, by the protocol of a multiaddr."""

ADDRESSES_TRIED = 4
"""Addresses of one name that are dialled."""

NEXT_ADDRESS_S = 0.5
"""How long one address of a peer has before the next one is tried beside it."""

NO_LINGER = struct.pack("ii", 1, 0)
"""Value of SO_LINGER with which closing drops what is unsent and resets the connection."""

TCP_INFO, TCP_INFO_SIZE = getattr(socket, "TCP_INFO", 11), 136
"""Linux's structure of a connection's measurements, up to the bytes that came."""

ROUND_TRIP, BYTES = struct.Struct("=I"), struct.Struct("=QQ")
"""Microseconds, at byte 68 of it; bytes acknowledged and bytes received, at byte 120."""


class Wire(ReadWriteCloser):
    """A socket that reads ahead: a frame's length and body cost one call to the system instead of two or more."""

    def __init__(self, stream: Any, limits: Limits) -> None:
        self._stream = stream
        self._socket = stream.stream.socket
        self._write_timeout_s = limits.unacknowledged_s
        self._buffer = memoryview(b"")
        self._remote = _remote_address(self._socket)
        watch_silence(self._socket, limits)

    async def read(self, n: int | None = None) -> bytes:
        """Up to ``n`` bytes; empty at the end.

        The library believes a stranger about the length of what it says before the handshake, and would hold as much.

        Raises:
            ConnectionClosedError: ``n`` is more than is ever said at once.
        """
        if n is not None and n > READ_SIZE:
            raise ConnectionClosedError(f"{n} bytes are announced, at most {READ_SIZE} are allowed")
        if not self._buffer:
            self._buffer = memoryview(await self._stream.read(READ_SIZE))
        taken = self._buffer[:n]
        self._buffer = self._buffer[len(taken) :]
        return bytes(taken)

    async def write(self, data: bytes) -> None:
        """Write all of ``data``, also if the caller is cancelled: after half of it the rest would be garbage.

        Raises:
            ConnectionClosedError: the connection broke, or the other side took nothing for ``unacknowledged_s``.
        """
        deadline_s = trio.current_time() + self._write_timeout_s
        with trio.CancelScope(shield=True, deadline=deadline_s) as scope:
            await self._stream.write(data)
        if scope.cancelled_caught:
            self.abort()
            raise ConnectionClosedError(f"{len(data)} bytes could not be written within {self._write_timeout_s:.0f} s")

    def flow(self) -> Flow | None:
        """Round trip and bytes so far; None if it is closed, or the system does not tell."""
        try:
            found = self._socket.getsockopt(socket.IPPROTO_TCP, TCP_INFO, TCP_INFO_SIZE)
        except OSError:
            return None
        if len(found) < TCP_INFO_SIZE:
            return None
        (round_trip_us,), (acknowledged, received) = ROUND_TRIP.unpack_from(found, 68), BYTES.unpack_from(found, 120)
        return Flow(round_trip_us / 1000, received, acknowledged)

    def abort(self) -> None:
        """Give the connection up now: its readers and writers are woken, and nothing is waited for."""
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
        except OSError:  # it is closed already
            return
        self._socket.close()

    async def close(self) -> None:
        """Close the socket; the system still sends what was written."""
        await self._stream.close()

    def get_remote_address(self) -> tuple[str, int] | None:
        """Host and port of the other side."""
        return self._remote


class BufferedTcp(TCP):
    """TCP whose outgoing connections are wires; the swarm does it for incoming ones."""

    def __init__(self, limits: Limits) -> None:
        super().__init__()
        self._limits = limits

    async def dial(self, maddr: Multiaddr) -> IRawConnection:
        """Connect to a numeric address. Raises OpenConnectionError."""
        raw: Any = await super().dial(maddr)
        raw.stream = Wire(raw.stream, self._limits)
        return raw  # type: ignore[no-any-return]


async def look_up(maddr: Multiaddr, threads: trio.CapacityLimiter) -> list[Multiaddr]:
    """An address with its name replaced by what the system finds for it; unchanged if it has no name.

    The library would ask a name server: it knows no names of this machine's own, nor those of containers. A name server
    may keep a thread for a minute, whoever waits for it: ``threads`` bounds them, so that none is missed elsewhere.

    Raises:
        OpenConnectionError: the name is not known.
    """
    (first, *_), text = maddr.protocols(), str(maddr)
    if first.name not in FAMILIES:
        return [maddr]
    host, port = str(maddr.value_for_protocol(first.name)), str(maddr.value_for_protocol("tcp"))
    ask = partial(socket.getaddrinfo, host, port, FAMILIES[first.name], socket.SOCK_STREAM)
    try:
        found = await trio.to_thread.run_sync(ask, abandon_on_cancel=True, limiter=threads)  # type: ignore[call-arg]
    except OSError as error:
        raise OpenConnectionError(f"{host} is not known: {error.strerror or error}") from None
    rest = text.partition(f"/tcp/{port}")[2]
    kinds = {socket.AF_INET: "ip4", socket.AF_INET6: "ip6"}
    hosts = [(kinds[family], str(place[0]).partition("%")[0]) for family, _, _, _, place in found]
    places = {f"/{kind}/{host}/tcp/{port}{rest}": None for kind, host in hosts}
    return [Multiaddr(place) for place in [*places][:ADDRESSES_TRIED]]


async def reach(maddr: Multiaddr, threads: trio.CapacityLimiter, dial: Callable[[Multiaddr], Awaitable[Any]]) -> Any:
    """The connection to an address; to the first of its name's addresses that answers. Raises as the last one does.

    One that takes packets and says nothing, as a route that leads nowhere does, keeps the next one waiting for a moment
    alone: whoever asks gives up before it does.
    """
    places, found, failures = await look_up(maddr, threads), list[Any](), dict[int, Exception]()
    async with trio.open_nursery() as nursery:

        async def attempt(number: int, place: Multiaddr, has_failed: trio.Event) -> None:
            try:
                found.append(await dial(place))
            except Exception as error:
                failures[number] = error
                has_failed.set()
            else:
                nursery.cancel_scope.cancel()

        for number, place in enumerate(places):
            has_failed = trio.Event()
            nursery.start_soon(attempt, number, place, has_failed)
            with trio.move_on_after(NEXT_ADDRESS_S):
                await has_failed.wait()
    if not found:
        raise failures[max(failures)]
    return found[0]


def watch_silence(sock: Any, limits: Limits) -> None:
    """Have the system give a socket up if data is not acknowledged in time, or an idle peer does not answer."""
    idle_s = max(1, math.ceil(limits.keepalive_s))
    wanted = {
        "TCP_KEEPIDLE": idle_s,
        "TCP_KEEPINTVL": idle_s,
        "TCP_KEEPCNT": KEEPALIVE_PROBES,
        "TCP_USER_TIMEOUT": round(1000 * limits.unacknowledged_s),
    }
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in wanted.items():
            if (option := getattr(socket, name, None)) is not None:  # not every system has all of them
                sock.setsockopt(socket.IPPROTO_TCP, option, value)
    except OSError:  # it is closed already
        return


def _remote_address(sock: Any) -> tuple[str, int] | None:
    """Host and port of a socket's other end, which the library does not know of IPv6.

    The system writes an IPv4 address as one of IPv6 where a socket listens for both.
    """
    try:
        host, port, *_ = sock.getpeername()
    except OSError:  # it is closed already
        return None
    return host.removeprefix("::ffff:") if "." in host else host, port
