"""The clients of a node's own ports: those that send half a question keep nobody from an answer."""

import errno
from collections.abc import Callable

import anyio
import trio.testing
from anyio.abc import SocketStream

from fedchain.node.operating.clients import CLIENT_TIMEOUT_S, CLIENTS_MAX, RETRY_S, answer_clients


async def echo(stream: SocketStream) -> None:
    """Answers a line with itself."""
    question = b""
    while b"\n" not in question:
        question += await stream.receive()
    await stream.send(question)


async def ask(port: int) -> bytes:
    """The answer to a question."""
    async with await anyio.connect_tcp("127.0.0.1", port) as client:
        await client.send(b"status\n")
        return await client.receive()


async def half_ask(port: int) -> SocketStream:
    """A client that asks half of a question."""
    client = await anyio.connect_tcp("127.0.0.1", port)
    await client.send(b"stat")
    return client


async def is_closed(client: SocketStream) -> bool:
    """Whether the node has ended a client's connection."""
    try:
        await client.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        return True
    return False


def test_half_questions_keep_nobody_out() -> None:
    async def main() -> None:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer_clients, listener.listeners, echo)
            clients = [await half_ask(port) for _ in range(3 * CLIENTS_MAX)]
            assert await ask(port) == b"status\n"
            closed = [await is_closed(client) for client in clients[:CLIENTS_MAX]]
            assert all(closed)  # the oldest made room
            for client in clients:
                await client.aclose()
            tasks.cancel_scope.cancel()

    trio.run(main)


def test_a_client_has_limited_time() -> None:
    async def main() -> None:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer_clients, listener.listeners, echo)
            client = await half_ask(port)
            begun = anyio.current_time()
            assert await is_closed(client)
            assert anyio.current_time() - begun >= CLIENT_TIMEOUT_S
            tasks.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0.2))


class OutOfFiles:
    """A listener whose process has no files for some time."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.accepted = anyio.Event()

    async def accept(self) -> SocketStream:
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EMFILE, "too many open files")
        self.accepted.set()
        await anyio.sleep_forever()
        raise AssertionError

    async def __aenter__(self) -> "OutOfFiles":
        return self

    async def __aexit__(self, *error: object) -> None:
        return None


def test_a_process_without_files_goes_on() -> None:
    async def main() -> None:
        listener = OutOfFiles(3)
        answer: Callable[..., object] = answer_clients
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer, [listener], echo)  # type: ignore[arg-type]
            await listener.accepted.wait()
            assert anyio.current_time() >= 3 * RETRY_S  # it pauses, so that it does not spin
            tasks.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
