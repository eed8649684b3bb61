"""``fedchain explorer serve``: the web server, in a process of its own."""

import logging
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import uvicorn

from fedchain.chain.exceptions import StoreError
from fedchain.web.app import Site
from fedchain.web.chains import RulesOf, open_chains
from fedchain.web.live import Live
from fedchain.web.places import find_places

BACKLOG = 128
"""Most connections that wait to be accepted."""

LAST_ANSWERS_S = 2
"""How long unfinished answers may take once the explorer ends."""


def serve(folders: Sequence[Path], rules_of: RulesOf, host: str, port: int, hosts: Sequence[str]) -> None:
    """Serve the chains in ``folders`` until Ctrl-C, and print the address.

    Args:
        folders: folders of runs, nodes or test networks, or of several runs.
        rules_of: builds the rules of a learning method.
        host: address to listen on.
        port: port to listen on; 0: any that is free.
        hosts: names, beside localhost, under which browsers may ask for the site.

    Raises:
        ChainError: a folder holds no chain, or none that can be read; or the port is not available.
    """
    chains = open_chains(find_places(folders), rules_of)
    try:
        with listen(host, port) as listener:
            site = Site(chains, hosts)
            place = f"[{host}]" if ":" in host else host
            print(f"http://{place}:{listener.getsockname()[1]}/  (Ctrl-C ends it)", flush=True)
            logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s %(message)s")
            with suppress(KeyboardInterrupt):  # the server raises it again once it has ended
                make_server(site).run(sockets=[listener])
    finally:
        for chain in chains:
            chain.close()


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


class Server(uvicorn.Server):
    """A server that ends its streams before it waits for them."""

    def __init__(self, config: uvicorn.Config, live: Live) -> None:
        super().__init__(config)
        self._live = live

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, then the server."""
        self._live.close()
        await super().shutdown(sockets)


def make_server(site: Site) -> Server:
    """A server of the site; ``run(sockets=[…])`` serves until it is stopped."""
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)  # errors are logged where they occur
    config = uvicorn.Config(
        site.app,
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        http="h11",
        loop="asyncio",
        lifespan="on",
        timeout_graceful_shutdown=LAST_ANSWERS_S,
        timeout_keep_alive=15,
        limit_concurrency=2_000,
    )
    return Server(config, site.live)
