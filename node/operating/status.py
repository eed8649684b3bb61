"""The local socket on which a running node answers its operator: one JSON object asks, one answers, then it is closed.

``{"ask": "status"}`` is answered with the state of the node, ``{"ask": "bans"}`` with the bans, and ``{"ask": "unban",
"address": …}`` with whether there was a ban to lift. The desk (``node/membership/desk.py``) answers about members. Any
other question is answered with an ``error``.
"""

import json
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import anyio
from anyio.abc import Listener, SocketStream

from fedchain.crypto.address import address, public_key_from_address
from fedchain.crypto.exceptions import InvalidAddress
from fedchain.crypto.keys import PublicKey
from fedchain.files.json_text import from_json, to_json
from fedchain.files.layout import SOCKET
from fedchain.network.bans import Ban
from fedchain.node.config import NodeConfigError, NodeFailed
from fedchain.node.operating.clients import CLIENT_TIMEOUT_S, answer_clients
from fedchain.node.operating.socket_path import socket_path

FINISHED = "nothing, it is finished"
"""The text for a node that waits for nothing, since the last round is closed."""

UNKNOWN = "this question has no answer here"
"""The answer to any other question."""

NEW_SOCKET = "status.next"
"""Name of the socket until the node listens on it."""

TRIES = 3
"""How often a question is put to a node that closes the connection unanswered: a crowd may have come with it."""

WATCH_S = 10.0
"""Seconds between two looks whether the socket is still there."""


class Reporting(Protocol):
    """A running node that reports its state."""

    def status(self) -> dict[str, Any]:
        """Everything that an operator needs to know, as plain values."""


class Doorkeeper(Protocol):
    """Keeps the bans of a running node."""

    def bans(self) -> tuple[Ban, ...]:
        """The bans in force."""

    def pardon(self, peer: PublicKey) -> bool:
        """Lift a ban; returns whether there was one."""


class Desk(Protocol):
    """Answers about members."""

    def answer(self, asked: Mapping[str, Any]) -> dict[str, Any] | None:
        """The answer as plain values; None to a question about something else. Raises NodeConfigError."""


async def answer_status(
    folder: Path, service: Reporting, doorkeeper: Doorkeeper | None = None, desk: Desk | None = None
) -> None:
    """Answer every question on the socket in ``folder`` until cancelled.

    Raises NodeConfigError, and NodeFailed if the socket is gone: nobody can reach the node any more, and what it stores
    in a folder that was removed is lost.
    """
    path = socket_path(folder)

    def answer(request: bytes) -> bytes:
        return to_json(answer_request(request.partition(b"\n")[0], service, doorkeeper, desk)).encode()

    listener = await _listen(path)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_watch, path)
            await answer_clients([listener], b"\n", answer)
    finally:
        with suppress(OSError):  # as a disk that takes nothing any more: what is left answers nobody
            path.unlink()


async def _listen(path: Path) -> Listener[SocketStream]:
    """A listener at a path, where connections are accepted as soon as the path is there; raises NodeFailed."""
    new = path.with_name(NEW_SOCKET)
    try:
        new.unlink(missing_ok=True)
        listener = await anyio.create_unix_listener(new, mode=0o600)
        try:
            new.rename(path)
        except OSError:
            await listener.aclose()
            raise
    except OSError as error:
        raise NodeFailed(f"{path}: the node's local socket cannot be made: {error.strerror or error}") from None
    return listener


async def _watch(path: Path) -> None:
    """Look from time to time whether the socket is still there; raises NodeFailed."""
    while path.exists():
        await anyio.sleep(WATCH_S)
    raise NodeFailed(f"{path} is gone: the node's folder was removed or emptied while the node ran")


def answer_request(
    request: bytes, service: Reporting, doorkeeper: Doorkeeper | None, desk: Desk | None = None
) -> dict[str, Any]:
    """The answer to one question. Only the operator can ask, but still no question may end the node."""
    try:
        asked = json.loads(request)
        json.dumps(asked, ensure_ascii=False).encode()  # half a character, as a command line may hold, is no text
    except (ValueError, RecursionError):
        return {"error": "the question is not JSON"}
    match asked:
        case {"ask": "status"}:
            return service.status()
        case {"ask": "bans"} if doorkeeper is not None:
            return {"bans": [shown(ban) for ban in doorkeeper.bans()]}
        case {"ask": "unban", "address": str(name)} if doorkeeper is not None:
            try:
                return {"unbanned": doorkeeper.pardon(public_key_from_address(name))}
            except InvalidAddress as error:
                return {"error": str(error)}
        case {"ask": str()} if desk is not None:
            try:
                found = desk.answer(asked)
            except NodeConfigError as error:
                return {"error": str(error)}
            return {"error": UNKNOWN} if found is None else found
        case _:
            return {"error": UNKNOWN}


def shown(ban: Ban) -> dict[str, Any]:
    """A ban in plain values; times are Unix seconds."""
    return {"address": address(ban.peer), "reason": ban.reason, "since": ban.since_s, "until": ban.until_s}


def ask_status(folder: Path) -> dict[str, Any] | None:
    """State of the node in ``folder``; None if no node answers."""
    try:
        return ask(folder, {"ask": "status"})
    except NodeConfigError:
        return None


def look_for_node(folder: Path) -> tuple[dict[str, Any] | None, str]:
    """State of the node in ``folder``, None without an answer, and why there is none although a node is there.

    It hangs, or is another user's. An operator that takes it for a stopped one may start it a second time.
    """
    try:
        return (ask(folder, {"ask": "status"}) if (folder / SOCKET).exists() else None), ""
    except NodeConfigError as error:
        return None, str(error)


def ask(folder: Path, request: Mapping[str, Any]) -> dict[str, Any] | None:
    """Ask the node that runs in ``folder``; None if none runs there.

    Raises:
        NodeConfigError: a node runs there but gives no answer, or answers with an error.
    """
    answer: Any = None
    for _ in range(TRIES):
        if (connection := _connect(folder)) is None:
            return None
        with connection:
            try:
                connection.sendall(json.dumps(request).encode() + b"\n")
                with connection.makefile("rb") as file:
                    answer = from_json(file.read())
                break
            except TimeoutError:
                break
            except (OSError, ValueError):  # it was closed before the whole answer came
                continue
    if answer is None:
        raise NodeConfigError(f"the node in {folder} gave no answer within {CLIENT_TIMEOUT_S:.0f} s")
    if not isinstance(answer, dict) or "error" in answer:
        raise NodeConfigError(
            f"the node in {folder} answered: {answer['error'] if isinstance(answer, dict) else answer}"
        )
    return answer


def _connect(folder: Path) -> socket.socket | None:
    """A connection to the node in ``folder``; None if none runs there. Raises NodeConfigError."""
    path = socket_path(folder)
    try:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(CLIENT_TIMEOUT_S)
            connection.connect(str(path))
        except BaseException:
            connection.close()
            raise
    except (FileNotFoundError, ConnectionRefusedError):
        return None
    except OSError as error:  # also if this process may open no more files
        raise NodeConfigError(f"the node in {folder} cannot be asked: {error.strerror or error}") from None
    return connection
