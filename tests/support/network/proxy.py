"""A TCP relay on loopback whose links can be slow, fall silent without a word, stand still, break, and heal.

A client of the relay reaches its target through two links, one each way. A silent link swallows what is sent into it
while both sockets stay open; one that stands still takes nothing any more, so that the sender's buffers fill up.
"""

import socket
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from enum import Enum

import trio

CHUNK_SIZE = 2**14


class State(Enum):
    """Treatment of bytes that are sent into a link."""

    OPEN = "open"
    SILENT = "silent"
    """It swallows everything, ends of connections included."""
    STILL = "still"
    """It takes nothing."""


@dataclass(slots=True)
class Link:
    """One direction."""

    state: State = State.OPEN
    delay_s: float = 0.0
    swallowed: int = 0
    """Bytes that vanished."""
    changed: trio.Event = field(default_factory=trio.Event)

    def turn(self, state: State) -> None:
        """Change what the link does."""
        self.state = state
        self.changed.set()
        self.changed = trio.Event()


class Proxy:
    """Relays to one target; ``place`` is its own address, which the target should announce instead of its own."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.there, self.back = Link(), Link()
        """Towards the target, and from it."""
        self.accepted = 0
        self._target = ("", 0)
        self._open: set[trio.SocketStream] = set()

    def aim(self, address: str) -> str:
        """Relay to a peer's address (``/ip4/…/tcp/…/p2p/…``); the address by which it is reached through the relay."""
        _, _, host, _, port, _, name = address.split("/")
        self._target = (host, int(port))
        return f"{self.place}/p2p/{name}"

    def silence(self, *, there: bool = True, back: bool = True) -> None:
        """Swallow what is sent, in one direction or in both."""
        self.there.turn(State.SILENT if there else State.OPEN)
        self.back.turn(State.SILENT if back else State.OPEN)

    def stand_still(self) -> None:
        """Take nothing any more, in both directions."""
        self.there.turn(State.STILL)
        self.back.turn(State.STILL)

    def heal(self) -> None:
        """Relay again; what was swallowed stays away."""
        self.there.turn(State.OPEN)
        self.back.turn(State.OPEN)

    def cut(self) -> None:
        """Reset all connections."""
        for stream in list(self._open):
            _reset(stream)

    async def handle(self, dialler: trio.SocketStream) -> None:
        """Relay one connection until it ends; one that begins while a link is down gets nowhere, as its SYN would."""
        self.accepted += 1
        with self._kept(dialler):
            if self.there.state is not State.OPEN or self.back.state is not State.OPEN:
                await _swallow(dialler)
                return
            try:
                target = await trio.open_tcp_stream(*self._target)
            except OSError:
                return
            with self._kept(target):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._relay, dialler, target, self.there, self.back)
                    nursery.start_soon(self._relay, target, dialler, self.back, self.there)

    async def _relay(self, source: trio.SocketStream, sink: trio.SocketStream, link: Link, other: Link) -> None:
        """Carry bytes one way. An end is carried too, as a reset, unless it has to vanish."""
        while True:
            while link.state is State.STILL:
                await link.changed.wait()
            try:
                data = await source.receive_some(CHUNK_SIZE)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                data = b""
            if link.state is State.SILENT:
                link.swallowed += len(data)
                if not data:
                    return
                continue
            if not data:
                _reset(sink)
                return
            await trio.sleep(link.delay_s)
            try:
                await sink.send_all(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                if other.state is State.OPEN:  # nobody is there any more, and says so
                    _reset(source)
                    return

    @contextmanager
    def _kept(self, stream: trio.SocketStream) -> Iterator[None]:
        self._open.add(stream)
        try:
            yield
        finally:
            self._open.discard(stream)
            _reset(stream)


@asynccontextmanager
async def proxy() -> AsyncIterator[Proxy]:
    """A relay for as long as the context lasts."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    relay = Proxy(f"/ip4/127.0.0.1/tcp/{listener.socket.getsockname()[1]}")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, relay.handle, [listener])
        try:
            yield relay
        finally:
            nursery.cancel_scope.cancel()


async def _swallow(stream: trio.SocketStream) -> None:
    try:
        while await stream.receive_some(CHUNK_SIZE):
            pass
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return


def _reset(stream: trio.SocketStream) -> None:
    if stream.socket.fileno() != -1:
        stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        stream.socket.close()
