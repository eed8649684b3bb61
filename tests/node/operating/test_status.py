"""The local socket of a node: no client ends it, and a path that the system does not take is named."""

import errno
import json
import math
import os
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from fedchain.chain.vote import NIL
from fedchain.files.layout import SOCKET
from fedchain.node.config import NodeConfigError, NodeFailed
from fedchain.node.operating.clients import REQUEST_SIZE_MAX
from fedchain.node.operating.console import status_lines
from fedchain.node.operating.status import NEW_SOCKET, answer_request, answer_status, ask_status, look_for_node
from tests.support.node.shell import on_trio


class Talker:
    """Has a status that does not fit into a socket's buffer."""

    def status(self) -> dict[str, Any]:
        return {"text": "x" * 2**22}


async def answered(folder: Path) -> dict[str, Any]:
    """The first answer; the node that gives it has to begin first."""
    while (answer := await to_thread.run_sync(ask_status, folder)) is None:
        await anyio.sleep(0.005)
    return answer


@on_trio
async def test_clients_that_hang_up_change_nothing(tmp_path: Path) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answer_status, tmp_path, Talker())
        await answered(tmp_path)
        for _ in range(5):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(tmp_path / SOCKET))
            await anyio.wait_all_tasks_blocked()
        assert await answered(tmp_path) == Talker().status()
        tasks.cancel_scope.cancel()
    assert not (tmp_path / SOCKET).exists()


@on_trio
async def test_numbers_that_are_not_finite_come_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"epsilon": math.inf, "accuracy": None}
    monkeypatch.setattr(Talker, "status", lambda _: told)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answer_status, tmp_path, Talker())
        assert await answered(tmp_path) == told
        tasks.cancel_scope.cancel()


def test_a_question_is_put_again_if_the_connection_is_closed_unanswered(tmp_path: Path) -> None:
    """A node closes it if a crowd connects in the moment before the question has come."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / SOCKET))
        listener.listen()
        answers = [b"", b'{"height": 7', b'{"height": 7}']

        def serve() -> None:
            for answer in answers:
                client, _ = listener.accept()
                with client:
                    client.recv(REQUEST_SIZE_MAX)
                    client.sendall(answer)

        server = threading.Thread(target=serve)
        server.start()
        assert ask_status(tmp_path) == {"height": 7}
        server.join()
        answers[:] = [b""] * 3
        server = threading.Thread(target=serve)
        server.start()
        assert ask_status(tmp_path) is None
        server.join()


BEGINNING = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(0))
"""The moment 0, as this machine's operator reads it."""


def test_members_are_shown_with_their_numbers() -> None:
    one, other, stranger = "12D3KooWone", "12D3KooWother", "12D3KooWstranger"
    answer: dict[str, Any] = {
        "address": one,
        "numbers": {one: 4, other: 0},
        "name": "4",
        "stands": {"lacks": "votes", "needed": 3, "here": 2, "missing": [other, stranger], "since_ms": 0},
        "conflict": {"height": 9, "hashes": ["aa", "bb"], "signers": [other]},
        "missing_posts": [one, other],
        "electors_missing": [],
        "head_age_s": None,
        "clock_offset_ms": -12,
        "elector": True,
        "aggregator": "",
        "catching_up_to": 0,
        "attempt": 0,
        "accuracy": 0.9876,
        "epsilon": 1.23456789,
        "convicted": [[other, "two different votes"]],
        "clocks_off": {other: -1500},
        "refused": {"late": 2},
        "peers": [other, stranger],
        "links": {other: {"heard_s_ago": 0.5, "version": "0.1.0"}},
        "open": {
            "posts": {other: 12345},
            "candidates": [
                {"hash": "9f176f37" + 56 * "0", "miner": one, "posts": 2, "knowledge_root": "aa", "recomputed": ""},
                {"hash": "5e7ab6da" + 56 * "0", "miner": other, "posts": 2}
                | {"knowledge_root": "e901e670" + 56 * "0", "recomputed": "2cfdf4e9" + 56 * "0"},
            ],
            "votes": {"prevote": {one: "9f176f37" + 56 * "0", other: NIL.hex()}, "precommit": {}},
        },
    }
    assert list(status_lines(answer)) == [
        f"stands still      since {BEGINNING}: votes of 3 members needed, 2 are here; missing: peer 0, {stranger}",
        "conflict          height 9 has aa and bb, both signed by 12D3KooWother (peer 0)",
        "address           12D3KooWone (peer 4)",
        "name              4",
        "missing posts     12D3KooWone (peer 4)",
        "                  12D3KooWother (peer 0)",
        "electors missing  -",
        "head age          -",
        "clock offset      -12 ms",
        "elector           yes",
        "aggregator        -",
        "catching up to    -",
        "attempt           1",
        "accuracy          98.8 %",
        "epsilon           1.235",
        "post              12D3KooWother (peer 0): 12,345 bytes",
        "candidate         9f176f37… of 12D3KooWone (peer 4), posts: 2",
        "candidate         5e7ab6da… of 12D3KooWother (peer 0), posts: 2; no vote: 2cfdf4e9… is computed here, not its "
        "knowledge e901e670…",
        "prevotes          1 for 9f176f37…",
        "prevotes          1 for no block",
        "convicted         12D3KooWother (peer 0): two different votes",
        "clock off         12D3KooWother (peer 0): -1.5 s against the others",
        "refused           late: 2",
        "peer              12D3KooWother (peer 0): heard 0.5 s ago, 0.1.0",
        "peer              12D3KooWstranger: not heard yet, an unknown version",
    ]


QUESTIONS = {
    "nothing": b"",
    "an empty line": b"\n",
    "no JSON": b"status\n",
    "no object": b"5\n",
    "another question": b'{"ask": "key"}\n',
    "an unban of nobody": b'{"ask": "unban"}\n',
    "brackets without end": b"[" * 900 + b"\n",
    "a line without end": b"x" * 2 * REQUEST_SIZE_MAX,
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_any_other_question_is_answered_with_an_error_and_ends_nothing(tmp_path: Path, name: str) -> None:
    @on_trio
    async def visit() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer_status, tmp_path, Talker())
            await answered(tmp_path)
            async with await anyio.connect_unix(tmp_path / SOCKET) as client:
                answer = b""
                with suppress(anyio.BrokenResourceError, anyio.EndOfStream):  # it does not read to the end
                    await client.send(QUESTIONS[name])
                    await client.send_eof()
                    while True:
                        answer += await client.receive()
            assert not answer or "error" in json.loads(answer)
            assert await answered(tmp_path) == Talker().status()
            tasks.cancel_scope.cancel()

    visit()


class Clerk:
    """A desk that passes texts on, as bytes."""

    def answer(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        return {"said": str(asked["reason"]).encode().hex()}


def test_half_a_character_reaches_no_desk() -> None:
    question = b'{"ask": "remove", "reason": "\\ud83d%s"}'
    assert answer_request(question % b"", Talker(), None, Clerk()) == {"error": "the question is not JSON"}
    assert answer_request(question % rb"\ude00", Talker(), None, Clerk()) == {"said": "\U0001f600".encode().hex()}


@on_trio
async def test_a_path_that_is_too_long_is_named(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 200)
    folder.mkdir()
    with pytest.raises(NodeConfigError, match="is too long a path"):
        await answer_status(folder, Talker())


@pytest.mark.parametrize("name", [SOCKET, NEW_SOCKET])
def test_a_socket_that_cannot_be_made_is_named_and_leaves_none(tmp_path: Path, name: str) -> None:
    (tmp_path / name / "in the way").mkdir(parents=True)

    @on_trio
    async def refuse() -> None:
        with pytest.raises(NodeFailed, match=f"{SOCKET}: the node's local socket cannot be made: "):
            await answer_status(tmp_path, Talker())

    refuse()
    assert ask_status(tmp_path) is None


def test_who_may_open_no_more_files_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*kinds: int) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    (tmp_path / SOCKET).touch()
    monkeypatch.setattr(socket, "socket", refuse)
    assert look_for_node(tmp_path) == (None, f"the node in {tmp_path} cannot be asked: Too many open files")


@on_trio
async def test_a_disk_that_takes_nothing_any_more_hides_no_other_reason_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answer_status, tmp_path, Talker())
        await answered(tmp_path)
        monkeypatch.setattr(Path, "unlink", refuse)
        tasks.cancel_scope.cancel()
    monkeypatch.undo()
    assert ask_status(tmp_path) is None, "what is left answers nobody"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answer_status, tmp_path, Talker())
        assert await answered(tmp_path) == Talker().status()
        tasks.cancel_scope.cancel()


def test_a_long_path_is_taken_from_where_one_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / ("x" * 200)
    folder.mkdir()
    monkeypatch.chdir(folder)

    @on_trio
    async def ask() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer_status, folder, Talker())
            await answered(folder)
            tasks.cancel_scope.cancel()

    ask()


@on_trio
async def test_a_node_whose_folder_is_removed_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would go on, without an answer to anybody, and store what is lost with the folder."""
    monkeypatch.setattr("fedchain.node.operating.status.WATCH_S", 0.01)

    async def run_and_remove() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer_status, tmp_path, Talker())
            await answered(tmp_path)
            (tmp_path / SOCKET).unlink()

    with pytest.raises(ExceptionGroup) as caught:
        await run_and_remove()
    error: BaseException = caught.value
    while isinstance(error, ExceptionGroup):
        (error,) = error.exceptions
    assert isinstance(error, NodeFailed)
    assert str(error) == f"{tmp_path / SOCKET} is gone: the node's folder was removed or emptied while the node ran"
