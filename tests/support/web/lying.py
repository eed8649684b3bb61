"""A server that answers like an explorer, except where it lies."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseRequestHandler, ThreadingTCPServer

from starlette.testclient import TestClient

Lie = Callable[[bytes], bytes]
"""A function from an honest answer to a lie."""


@contextmanager
def lying(client: TestClient, lies: Mapping[str, Lie]) -> Iterator[str]:
    """The address of a server that gives the client's answers, each altered by the lie for its path."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            with lock:
                answer = client.get(self.path)
            path = self.path.partition("?")[0]
            body = lies[path](answer.content) if path in lies else answer.content
            self.send_response(answer.status_code)
            self.send_header("content-type", answer.headers.get("content-type", ""))
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with _serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as address:
        yield address


@contextmanager
def flooding(begin: bytes, again: bytes) -> Iterator[str]:
    """The address of a server that answers each question with some bytes, and goes on with others as long as it can; of
    one that falls silent if there are none.
    """

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                self.request.recv(2**16)
                self.request.sendall(begin)
                while again:
                    self.request.sendall(again)
                self.request.recv(1)

    with _serving(ThreadingTCPServer(("127.0.0.1", 0), Handler)) as address:
        yield address


@contextmanager
def _serving(server: ThreadingHTTPServer | ThreadingTCPServer) -> Iterator[str]:
    """The address of a server, which serves meanwhile."""
    server.daemon_threads = True
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join(20)
