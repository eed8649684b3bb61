"""``fedchain explorer serve``: the web server, in a process of its own."""

import asyncio
import gc
import logging
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from fedchain.allocator import return_large_blocks
from fedchain.chain.exceptions import DiskRefused, StoreError
from fedchain.chain.storage.database import COMPANIONS
from fedchain.connections import Connections, connections_max
from fedchain.web.app import Site, make_templates
from fedchain.web.chains import Chain, RulesOf, open_chains
from fedchain.web.live import Live
from fedchain.web.places import NoChainYet, begins, find_places
from fedchain.wording import printable

BACKLOG = 128
"""Most connections that wait to be accepted."""

ACCEPTED_AT_ONCE = 16
"""Most connections that are accepted before the loop does anything else."""

UNDER_WAY = 6 * ACCEPTED_AT_ONCE
"""Most connections that are open but not counted: asyncio takes some turns of its loop to open and to close one."""

FILES_OF_DATABASE = 1 + len(COMPANIONS)
"""Open files of a database that is read."""

CONNECTIONS_MAX = 2_000
"""Most open connections, if the process may open as many files."""

REQUEST_TIMEOUT_S = 10.0
"""Longest time for a header, from the opening of the connection or from the first byte of a later request."""

UNTAKEN_MAX = 2**26
"""Most bytes that wait for clients to take them, all connections together; the whole answers are in memory as well."""

IDLE_TIMEOUT_S = 15
"""Longest time between two requests of a connection."""

LAST_ANSWERS_S = 2
"""How long unfinished answers may take once the explorer ends."""

LOOK_EVERY = 3
"""Turns of a server, tenths of a second, between two looks for a chain that is awaited."""


def serve(folders: Sequence[Path], rules_of: RulesOf, host: str, port: int, hosts: Sequence[str]) -> None:
    """Serve the chains in ``folders`` until Ctrl-C, and print the address.

    Before a folder holds a chain, the pages say that it is awaited.

    Args:
        folders: folders of runs, nodes or test networks, or of several runs.
        rules_of: builds the rules of a learning method.
        host: address to listen on.
        port: port to listen on; 0: any that is free.
        hosts: names, beside localhost, under which browsers may ask for the site.

    Raises:
        ChainError: a folder is none, or holds a chain that cannot be read; or the port is not available.
    """
    return_large_blocks()  # of answers that clients did not read
    chains, awaited = tuple[Chain, ...](), ""
    try:
        chains = open_chains(find_places(folders), rules_of)
    except NoChainYet as error:
        awaited = str(error)

    def has_begun() -> bool:
        nonlocal chains
        chains = begun(folders, rules_of)
        return bool(chains)

    try:
        with listen(host, port) as listener, suppress(KeyboardInterrupt):  # a server raises it again once it has ended
            make_templates()  # they are kept: no page waits for them
            place = f"[{host}]" if ":" in host else host
            print(f"http://{place}:{listener.getsockname()[1]}/  (Ctrl-C ends it)", flush=True)
            logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s %(message)s")
            if awaited:
                print(f"waiting: {printable(awaited)}", flush=True)
                waiting = make_server(Site((), hosts, awaited=awaited), _connections_beside(chains))
                waiting.until = has_begun
                waiting.run(sockets=[listener.dup()])  # which closes it; who asks meanwhile waits for the next
                print(f"shown: {', '.join(printable(chain.title) for chain in chains)}", flush=True)
            connections = _connections_beside(chains)
            server = make_server(Site(chains, hosts, connections // 2), connections)
            gc.freeze()  # modules and templates stay; a page would wait while a collection looks through them
            server.run(sockets=[listener])
    finally:
        for chain in chains:
            chain.close()


def _connections_beside(chains: Sequence[Chain]) -> int:
    """Connections that leave the chains the files that they are going to open: a database for each folder, and one for
    light blocks of each chain."""
    databases = sum(len(chain.holders) + 1 for chain in chains)
    return connections_max(CONNECTIONS_MAX, UNDER_WAY + FILES_OF_DATABASE * databases)


def begun(folders: Sequence[Path], rules_of: RulesOf) -> tuple[Chain, ...]:
    """The chains in the folders; none before each holds one, and so does each node of a test network in it.

    A run that is resumed replaces its chain: what cannot be read meanwhile is awaited like one that was never there.

    Raises:
        ChainError: there are too many chains, or one cannot be read.
    """
    try:
        places = find_places(folders)
        return () if begins(folders) else open_chains(places, rules_of)
    except (NoChainYet, DiskRefused):
        return ()


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises StoreError with a message for the explorer's user."""
    try:
        family, kind, number, _, place = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, UnicodeError):
        raise StoreError(f"--host {host!r} is not an address of this machine; 127.0.0.1 is for it alone") from None
    listener = socket.socket(family, kind, number)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        reason = (error.strerror or str(error)).lower()
        raise StoreError(f"port {port} of {host}: {reason}; name another with --port, 0 takes any") from None
    return listener


class Untaken:
    """Answers that clients take more slowly than they are made. Beyond the bound, the one that waits longest is cut.

    An honest client reads on while it waits, and is cut only if others let that many bytes wait.

    Args:
        most: bytes.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: dict[asyncio.Transport, None] = {}

    def waits(self, transport: asyncio.Transport) -> None:
        """A client takes less than it is sent."""
        self._waiting[transport] = None
        size = sum(other.get_write_buffer_size() for other in self._waiting)
        while size > self._most and len(self._waiting) > 1:  # a single answer is never too large
            oldest = next(iter(self._waiting))
            size -= oldest.get_write_buffer_size()
            del self._waiting[oldest]
            oldest.abort()

    def ends(self, transport: asyncio.Transport) -> None:
        """A client has taken nearly all that it was sent, or is gone."""
        self._waiting.pop(transport, None)


class BoundedProtocol(H11Protocol):
    """A connection whose requests have to be whole within :data:`REQUEST_TIMEOUT_S`.

    uvicorn bounds the time between two requests of a connection, but neither the time of a header nor, below the
    process's limit of files, the number of connections, nor what waits for clients that do not read.
    """

    open_connections: Connections
    """The connections of its server."""

    untaken: Untaken
    """The answers of its server that wait for their clients."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        super().connection_made(transport)
        self.open_connections.opened(self, transport.abort)
        self._deadline = self.loop.call_later(REQUEST_TIMEOUT_S, transport.abort)

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        before = self.cycle
        if self._deadline is None and (before is None or before.response_complete):
            self._deadline = self.loop.call_later(REQUEST_TIMEOUT_S, self.transport.abort)
        super().data_received(data)
        if self.cycle is not before:
            self._is_whole()

    def on_response_complete(self) -> None:
        """The answer is sent; the next request may have come already."""
        before = self.cycle
        self.open_connections.answered(self)
        super().on_response_complete()
        if self.cycle is not before:
            self._is_whole()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self.open_connections.closed(self)
        self.untaken.ends(self.transport)
        self._stop_clock()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client takes less than it is sent."""
        super().pause_writing()
        self.untaken.waits(self.transport)

    def resume_writing(self) -> None:
        """The client has taken nearly all that it was sent."""
        self.untaken.ends(self.transport)
        super().resume_writing()

    def _is_whole(self) -> None:
        """The header of a request is whole."""
        self.open_connections.asked(self)
        self._stop_clock()

    def _stop_clock(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class Server(uvicorn.Server):
    """A server that accepts few connections at once, and ends its streams before it waits for them."""

    def __init__(self, config: uvicorn.Config, live: Live) -> None:
        super().__init__(config)
        self._live = live
        self.until: Callable[[], bool] = lambda: False
        """Asked a few times a second: whether the server shall end."""

    async def on_tick(self, counter: int) -> bool:
        """Say whether to end; uvicorn asks ten times a second."""
        return await super().on_tick(counter) or (counter % LOOK_EVERY == 0 and self.until())

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections. asyncio has one number for those that wait and those that it accepts at once."""
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(BACKLOG)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, then the server."""
        self._live.close()
        await super().shutdown(sockets)


def make_server(site: Site, connections_max: int = CONNECTIONS_MAX) -> Server:
    """A server of the site with at most so many connections; ``run(sockets=[…])`` serves until it is stopped."""
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)  # errors are logged where they occur

    class Connection(BoundedProtocol):
        """A connection of this server."""

        open_connections = Connections(connections_max)
        untaken = Untaken(UNTAKEN_MAX)

    config = uvicorn.Config(
        site.app,
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        http=Connection,
        loop="asyncio",
        lifespan="on",
        backlog=ACCEPTED_AT_ONCE,
        timeout_graceful_shutdown=LAST_ANSWERS_S,
        timeout_keep_alive=IDLE_TIMEOUT_S,
    )
    return Server(config, site.live)
