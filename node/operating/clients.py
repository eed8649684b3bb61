"""Answers to the clients of a node's own ports: one question each, a bound on their number, and one on their time."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack

import anyio
from anyio.abc import Listener, SocketStream, TaskGroup

from fedchain.connections import Connections, connections_max

log = logging.getLogger("fedchain.node")

CLIENTS_MAX = 32
"""Most clients of a port that are answered at the same time; the operator and a monitoring system are two."""

CLIENT_TIMEOUT_S = 5.0
"""Time limit of one client, its question and its answer included."""

RETRY_S = 1.0
"""Pause after a client could not be accepted, as when the process has no more files."""


async def answer_clients(
    listeners: Sequence[Listener[SocketStream]], answer: Callable[[SocketStream], Awaitable[None]]
) -> None:
    """Answer each client in a task of its own until cancelled. No client can end it or keep others out.

    Args:
        listeners: where clients connect; closed at the end.
        answer: reads a question from a client and sends the answer.
    """
    clients = Connections(connections_max(CLIENTS_MAX, under_way=1))

    async def serve(stream: SocketStream) -> None:
        with anyio.move_on_after(CLIENT_TIMEOUT_S) as scope:
            clients.opened(scope, scope.cancel)
            try:
                async with stream:
                    await answer(stream)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
                log.debug("a client did not wait for the answer")
            finally:
                clients.closed(scope)

    async def accept(listener: Listener[SocketStream], tasks: TaskGroup) -> None:
        while True:
            try:
                stream = await listener.accept()  # type: ignore[attr-defined]
            except OSError as error:
                log.debug("a client cannot be accepted: %s", error)
                await anyio.sleep(RETRY_S)
            else:
                tasks.start_soon(serve, stream)

    async with AsyncExitStack() as stack:
        for listener in listeners:
            await stack.enter_async_context(listener)
        tasks = await stack.enter_async_context(anyio.create_task_group())
        for listener in listeners:
            tasks.start_soon(accept, listener, tasks)
