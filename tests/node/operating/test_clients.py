"""The clients of a node's own ports: those that send half a question keep nobody from an answer."""

import errno
import socket

import anyio
import pytest
import trio.testing
from anyio.abc import SocketStream

from fedchain.node.operating import clients
from fedchain.node.operating.clients import (
    ACCEPTED_MAX,
    CLIENT_TIMEOUT_S,
    CLIENTS_MAX,
    RETRY_S,
    accept_all,
    answer_clients,
)


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
            tasks.start_soon(answer_clients, listener.listeners, b"\n", bytes)
            crowd = [await half_ask(port) for _ in range(3 * CLIENTS_MAX)]
            assert await ask(port) == b"status\n"
            closed = [await is_closed(client) for client in crowd[:CLIENTS_MAX]]
            assert all(closed)  # the oldest made room
            for client in crowd:
                await client.aclose()
            tasks.cancel_scope.cancel()

    trio.run(main)


def test_a_question_that_cannot_be_answered_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def answer(question: bytes) -> bytes:
        if question == b"stat\n":
            raise TypeError("a fault of ours")
        return question

    async def main() -> None:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer_clients, listener.listeners, b"\n", answer)
            client = await half_ask(port)
            await client.send(b"\n")
            assert await is_closed(client)
            assert await ask(port) == b"status\n"
            tasks.cancel_scope.cancel()

    trio.run(main)
    assert caplog.messages == ["a question could not be answered"]


def test_a_client_has_limited_time() -> None:
    async def main() -> None:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer_clients, listener.listeners, b"\n", bytes)
            client = await half_ask(port)
            begun = anyio.current_time()
            assert await is_closed(client)
            assert anyio.current_time() - begun >= CLIENT_TIMEOUT_S
            tasks.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0.2))


def test_a_crowd_that_came_at_once_makes_room_for_all_that_have_asked() -> None:
    """All wait before the node accepts the first of them."""

    async def main() -> None:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        asking = await anyio.connect_tcp("127.0.0.1", port)
        await asking.send(b"status\n")
        crowd = [await half_ask(port) for _ in range(ACCEPTED_MAX - 1)]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer_clients, listener.listeners, b"\n", bytes)
            assert await asking.receive() == b"status\n"
            assert all([await is_closed(client) for client in crowd[:-CLIENTS_MAX]])
            await crowd[-1].send(b"us\n")
            assert await crowd[-1].receive() == b"status\n"
            for client in (asking, *crowd):
                await client.aclose()
            tasks.cancel_scope.cancel()

    trio.run(main)


def test_all_that_asked_together_are_answered() -> None:
    async def main() -> None:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        crowd = [await anyio.connect_tcp("127.0.0.1", port) for _ in range(3 * CLIENTS_MAX)]
        for client in crowd:
            await client.send(b"status\n")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer_clients, listener.listeners, b"\n", bytes)
            assert [await client.receive() for client in crowd] == [b"status\n"] * len(crowd)
            for client in crowd:
                await client.aclose()
            tasks.cancel_scope.cancel()

    trio.run(main)


class Listener:
    """A listening socket that answers `accept` with what is listed."""

    def __init__(self, *answers: OSError | socket.socket) -> None:
        self._answers = list(answers)

    def accept(self) -> tuple[socket.socket, None]:
        answer = self._answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer, None


def accepted(*answers: OSError | socket.socket) -> int:
    """How many clients a listener is found to have."""
    return len(accept_all(Listener(*answers)))  # type: ignore[arg-type]


def test_what_can_be_accepted_is() -> None:
    full, none, left = OSError(errno.EMFILE, "too many open files"), BlockingIOError(), ConnectionAbortedError()
    with socket.socket() as client:
        assert accepted(none) == 0
        assert accepted(client, none) == 1
        assert accepted(left, client, full) == 1
        assert accepted(*[client] * (ACCEPTED_MAX + 1)) == ACCEPTED_MAX
    with pytest.raises(OSError, match="too many open files"):
        accepted(left, full)


def test_a_process_without_files_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    failures = 3

    def accept(listener: socket.socket) -> list[socket.socket]:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise OSError(errno.EMFILE, "too many open files")
        return accept_all(listener)

    async def main() -> None:
        monkeypatch.setattr(clients, "accept_all", accept)
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer_clients, listener.listeners, b"\n", bytes)
            assert await ask(port) == b"status\n"
            assert anyio.current_time() >= 3 * RETRY_S  # it pauses, so that it does not spin
            tasks.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0.2))
