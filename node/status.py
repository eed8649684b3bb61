"""The local socket on which a running node says how it is: one JSON object, then the end."""

import json
import logging
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from anyio.abc import SocketStream

from fedchain.node.config import NodeConfigError

if TYPE_CHECKING:
    from fedchain.node.service import Service

log = logging.getLogger("fedchain.node")

SOCKET = "status.sock"
ANSWER_TIMEOUT_S = 5.0
SOCKET_PATH_MAX = 107
"""Bytes that the system takes as the path of a local socket."""


async def answer_status(folder: Path, service: "Service") -> None:
    """Answer every connection to the socket in ``folder`` until cancelled; raises NodeConfigError."""
    path = _socket_path(folder)
    path.unlink(missing_ok=True)

    async def answer(stream: SocketStream) -> None:
        try:
            with anyio.move_on_after(ANSWER_TIMEOUT_S):
                async with stream:
                    await stream.send(json.dumps(service.status()).encode())
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            log.debug("whoever asked for the status did not wait for the answer")

    async with await anyio.create_unix_listener(path, mode=0o600) as listener:
        try:
            await listener.serve(answer)
        finally:
            path.unlink(missing_ok=True)


def ask_status(folder: Path) -> dict[str, Any] | None:
    """Ask the node that runs in ``folder``; None if none answers."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(ANSWER_TIMEOUT_S)
            connection.connect(str(_socket_path(folder)))
            with connection.makefile("rb") as file:
                answer: dict[str, Any] = json.loads(file.read())
                return answer
    except (OSError, ValueError):
        return None


def _socket_path(folder: Path) -> Path:
    """The socket's path, or the way to it from here where that is shorter; raises NodeConfigError."""
    paths = [folder / SOCKET, Path(os.path.relpath(folder / SOCKET))]
    shortest = min(paths, key=lambda path: len(os.fsencode(path)))
    if len(os.fsencode(shortest)) > SOCKET_PATH_MAX:
        raise NodeConfigError(f"{folder} is too long a path for the node's local socket; choose a shorter one")
    return shortest
