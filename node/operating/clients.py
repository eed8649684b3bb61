"""Answers to the clients of a node's own ports: one question each, a bound on their number, and one on their time."""

import logging
import socket
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

import anyio
from anyio.abc import Listener, SocketAttribute, SocketStream, TaskGroup

from fedchain.connections import Connections, connections_max

log = logging.getLogger("fedchain.node")

CLIENTS_MAX = 32
"""Most clients of a port that are answered at the same time; the operator and a monitoring system are two."""

CLIENT_TIMEOUT_S = 5.0
"""Time limit of one client, its question and its answer included."""

REQUEST_SIZE_MAX = 8_192
"""Most bytes of a question, its end included; what comes behind them is not read."""

ACCEPTED_MAX = 128
"""Most clients that are accepted at once."""

RETRY_S = 1.0
"""Pause after a client could not be accepted, as when the process has no more files."""


async def answer_clients(
    listeners: Sequence[Listener[SocketStream]], end: bytes, answer: Callable[[bytes], bytes]
) -> None:
    """Answer each client in a task of its own until cancelled. No client can end it or keep others out.

    A crowd that connects faster than tasks are made costs little: of the clients that came together, all that have
    sent their question are served, and the newest of the others.

    Args:
        listeners: where clients connect; closed at the end.
        end: the bytes with which a question ends.
        answer: (question with its end) -> answer.
    """
    clients = Connections(connections_max(CLIENTS_MAX, under_way=ACCEPTED_MAX * len(listeners)))

    async def serve(client: socket.socket) -> None:
        with client, anyio.move_on_after(CLIENT_TIMEOUT_S) as scope:
            clients.opened(scope, scope.cancel)
            try:
                question = await _read(client, end)
                clients.asked(scope)
                await _send(client, answer(question))
            except OSError as error:
                log.debug("a client did not wait for the answer: %s", error)
            except Exception:
                # A fault of ours, which a question must not turn into the end of the node.
                log.exception("a question could not be answered")
            finally:
                clients.closed(scope)

    async def accept(listener: socket.socket, tasks: TaskGroup) -> None:
        while True:
            await anyio.wait_readable(listener)
            try:
                arrived = accept_all(listener)
            except OSError as error:
                log.debug("a client cannot be accepted: %s", error)
                await anyio.sleep(RETRY_S)
                continue
            waiting = [client for client in arrived if not _has_asked(client, end)]
            for client in waiting[:-CLIENTS_MAX]:
                client.close()
                arrived.remove(client)
            for client in arrived:
                tasks.start_soon(serve, client)

    async with AsyncExitStack() as stack:
        for listener in listeners:
            await stack.enter_async_context(listener)
        tasks = await stack.enter_async_context(anyio.create_task_group())
        for listener in listeners:
            tasks.start_soon(accept, listener.extra(SocketAttribute.raw_socket), tasks)


def accept_all(listener: socket.socket) -> list[socket.socket]:
    """The clients that wait to be accepted, at most `ACCEPTED_MAX`, the oldest first.

    Raises OSError if the first of them cannot be accepted.
    """
    found = list[socket.socket]()
    while len(found) < ACCEPTED_MAX:
        try:
            client, _ = listener.accept()
        except ConnectionAbortedError:  # it has left already
            continue
        except OSError as error:
            if found or isinstance(error, BlockingIOError):
                break
            raise
        client.setblocking(False)
        found.append(client)
    return found


def _has_asked(client: socket.socket, end: bytes) -> bool:
    try:
        return end in client.recv(REQUEST_SIZE_MAX, socket.MSG_PEEK)
    except OSError:
        return False


async def _read(client: socket.socket, end: bytes) -> bytes:
    """The question; without a wait if it is here."""
    question = b""
    while end not in question and len(question) < REQUEST_SIZE_MAX:
        try:
            more = client.recv(REQUEST_SIZE_MAX - len(question))
        except BlockingIOError:
            await anyio.wait_readable(client)
            continue
        if not more:
            raise ConnectionAbortedError("it has left")
        question += more
    return question


async def _send(client: socket.socket, answer: bytes) -> None:
    """Send the answer; without a wait if there is room for it, so that no later client can take this one's place."""
    rest = memoryview(answer)
    while rest:
        try:
            rest = rest[client.send(rest) :]
        except BlockingIOError:
            await anyio.wait_writable(client)
