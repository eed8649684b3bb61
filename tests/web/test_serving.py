"""The web server: its port, and half requests, which are closed while answers stay quick and nothing is logged."""

import asyncio
import contextlib
import gc
import re
import resource
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
import uvicorn
from starlette.testclient import TestClient
from uvicorn.server import ServerState

from fedchain.chain.exceptions import DiskRefused, NotFound, StoreError
from fedchain.chain.storage.sqlite import Store
from fedchain.connections import Connections
from fedchain.files.layout import DATABASE, GENESIS_FILE
from fedchain.node.founding.task import rules_of
from fedchain.web import serving
from fedchain.web.app import make_templates
from fedchain.web.chains import Chain
from fedchain.web.places import Place, find_places
from fedchain.web.serving import REQUEST_TIMEOUT_S, BoundedProtocol, Server, Untaken, begun, listen
from tests.support.chain.builders import ChainBuilder, genesis
from tests.support.chain.explored import FakeRules, write
from tests.support.web.builders import write_run

FILES_MAX = 256
HALF = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
WHOLE = HALF + b"\r\n"


class Loop:
    """Holds timers until they are let fire."""

    def __init__(self) -> None:
        self.timers: dict[float, Callable[[], None]] = {}

    def call_later(self, delay_s: float, call: Callable[[], None]) -> Any:
        self.timers[delay_s] = call
        loop = self

        class Handle:
            def cancel(self) -> None:
                loop.timers.pop(delay_s, None)

        return Handle()

    def create_task(self, work: Any) -> Any:
        work.close()
        return asyncio.Future(loop=asyncio.new_event_loop())


class Transport:
    """Notes whether the connection was cut."""

    is_cut = False
    size = 0
    """Bytes that the client has not taken."""

    def get_write_buffer_size(self) -> int:
        return self.size

    def write(self, data: bytes) -> None:
        """Nobody reads."""

    def abort(self) -> None:
        self.is_cut = True

    def get_extra_info(self, name: str) -> None:
        return None

    def is_closing(self) -> bool:
        return self.is_cut

    def pause_reading(self) -> None:
        """Nothing is read here."""

    resume_reading = pause_reading


async def answer(connection: "Connection") -> None:
    """Send an answer without a body."""
    await connection.cycle.send({"type": "http.response.start", "status": 204, "headers": []})
    await connection.cycle.send({"type": "http.response.body", "body": b""})


class Connection(BoundedProtocol):
    open_connections = Connections(2)
    untaken = Untaken(100)


@pytest.fixture
def connect() -> Callable[[], tuple[Connection, Transport, Loop]]:
    Connection.open_connections = Connections(2)
    config = uvicorn.Config(lambda: None, ws="none", loop="asyncio", log_config=None)
    config.load()

    def connected() -> tuple[Connection, Transport, Loop]:
        loop, transport = Loop(), Transport()
        connection = Connection(config, ServerState(), {}, loop)  # type: ignore[arg-type]
        connection.connection_made(transport)  # type: ignore[arg-type]
        return connection, transport, loop

    return connected


def test_a_port_that_is_taken_and_a_host_that_is_none_are_said_in_a_line() -> None:
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(StoreError, match=f"port {port} of 127.0.0.1: address already in use; name another"):
            listen("127.0.0.1", port)
    with pytest.raises(StoreError, match="is not an address of this machine"):
        listen("no such host", 0)


def test_a_header_has_limited_time(connect: Callable[[], tuple[Connection, Transport, Loop]]) -> None:
    connection, transport, loop = connect()
    connection.data_received(HALF)
    loop.timers[REQUEST_TIMEOUT_S]()
    assert transport.is_cut


def test_a_whole_header_stops_the_clock(connect: Callable[[], tuple[Connection, Transport, Loop]]) -> None:
    connection, transport, loop = connect()
    connection.data_received(WHOLE)
    assert REQUEST_TIMEOUT_S not in loop.timers
    connect()
    connect()  # one too many: the half request goes, the one that is answered stays
    assert not transport.is_cut


def test_the_header_of_a_later_request_has_limited_time(
    connect: Callable[[], tuple[Connection, Transport, Loop]],
) -> None:
    connection, transport, loop = connect()
    connection.data_received(WHOLE)
    asyncio.run(answer(connection))
    assert REQUEST_TIMEOUT_S not in loop.timers
    connection.data_received(b"GET ")
    loop.timers[REQUEST_TIMEOUT_S]()
    assert transport.is_cut


def test_what_comes_while_an_answer_is_sent_has_no_limited_time(
    connect: Callable[[], tuple[Connection, Transport, Loop]],
) -> None:
    """Else a client that sends its next request early has a long answer cut."""
    connection, _, loop = connect()
    connection.data_received(WHOLE)
    connection.data_received(b"GET ")
    assert REQUEST_TIMEOUT_S not in loop.timers


def test_a_request_that_came_before_the_last_answer_was_sent_is_answered_before_others_make_room(
    connect: Callable[[], tuple[Connection, Transport, Loop]],
) -> None:
    connection, transport, loop = connect()
    connection.data_received(WHOLE + WHOLE)
    asyncio.run(answer(connection))
    assert REQUEST_TIMEOUT_S not in loop.timers
    connect()
    connect()
    assert not transport.is_cut


def test_a_port_is_free_again_as_soon_as_an_explorer_has_ended() -> None:
    """Its last connections may not be over for a minute."""
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            listener.accept()[0].close()
            assert client.recv(1) == b""
    with listen("127.0.0.1", port) as again:
        assert again.getsockname()[1] == port


@pytest.mark.parametrize("is_there", [True, False])
def test_an_explorer_tells_its_address_answers_to_its_names_and_closes_its_chains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_there: bool
) -> None:
    chain, told, closed, close = ChainBuilder(genesis(4)), list[str](), list[Chain](), Chain.close
    chain.extend()
    if is_there:
        write_run(tmp_path / "run", chain)

    def run(server: Server, sockets: Sequence[socket.socket]) -> None:
        for item in sockets:
            item.close()
        client = TestClient(cast(Any, server.config.app), base_url="http://explorer.lan")
        told.append(client.get("/", follow_redirects=True).text)
        if not (tmp_path / "run").exists():
            write_run(tmp_path / "run", chain)
            assert server.until()

    def noted(of: Chain) -> None:
        closed.append(of)
        close(of)

    monkeypatch.setattr(Server, "run", run)
    monkeypatch.setattr(Chain, "close", noted)
    monkeypatch.setattr(serving, "listen", lambda host, port: listen("127.0.0.1", port))
    try:
        serving.serve([tmp_path / "run"], lambda _: FakeRules(), "::1", 0, ["explorer.lan"])
    finally:
        gc.unfreeze()
    assert re.match(r"http://\[::1\]:\d+/  \(Ctrl-C ends it\)\n", capsys.readouterr().out)
    assert ["No chain yet" in text for text in told] == ([False] if is_there else [True, False])
    assert "height" in told[-1]
    assert [of.title for of in closed] == ["run"]


def test_the_oldest_half_request_makes_room(connect: Callable[[], tuple[Connection, Transport, Loop]]) -> None:
    (_, first, _), (_, second, _), _ = connect(), connect(), connect()
    assert (first.is_cut, second.is_cut) == (True, False)


@contextlib.contextmanager
def explorer(folder: Path, log: Path) -> Iterator[tuple[int, Callable[[], str]]]:
    """The port of an explorer's process that may open few files, and a function that reads its next line."""
    command = [sys.executable, "-m", "fedchain", "explorer", "serve", str(folder), "--port", "0"]

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (FILES_MAX, FILES_MAX))

    with log.open("wb") as said:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, preexec_fn=limit)  # noqa: PLW1509
        try:
            assert process.stdout is not None
            lines = process.stdout
            yield int(lines.readline().split(b"/  ")[0].rsplit(b":", 1)[1]), lambda: lines.readline().decode().strip()
        finally:
            process.terminate()
            process.wait(20)


def test_of_clients_that_do_not_read_the_first_makes_room(
    connect: Callable[[], tuple[Connection, Transport, Loop]],
) -> None:
    Connection.open_connections, Connection.untaken = Connections(9), Untaken(100)
    (alone, large, _), (reader, quick, _) = connect(), connect()
    large.size = 1_000
    alone.pause_writing()
    assert not large.is_cut, "it is the only one"
    quick.size = 50
    reader.pause_writing()
    assert (large.is_cut, quick.is_cut) == (True, False)
    reader.resume_writing()
    others = [connect() for _ in range(4)]
    for connection, transport, _ in others:
        transport.size = 40
        connection.pause_writing()
    assert [transport.is_cut for _, transport, _ in others] == [True, True, False, False]
    others[2][0].connection_lost(ConnectionResetError())
    (last, newest, _) = connect()
    newest.size = 60
    last.pause_writing()
    assert not others[3][1].is_cut, "what ended waits no more"
    assert not quick.is_cut, "it was taken"


def test_what_stays_is_made_before_the_first_page_and_no_collection_looks_through_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = ChainBuilder(genesis(4))
    chain.extend()
    ran = list[int]()
    make_templates.cache_clear()

    class Server:
        def run(self, sockets: list[socket.socket]) -> None:
            monkeypatch.setattr("jinja2.PackageLoader.get_source", None)
            ran.append(gc.get_freeze_count())
            assert make_templates().get_template("block.html")

    monkeypatch.setattr(serving, "make_server", lambda site, connections: Server())
    try:
        serving.serve([write_run(tmp_path / "run", chain)], lambda _: FakeRules(), "127.0.0.1", 0, ())
    finally:
        gc.unfreeze()
    assert ran[0] > 10_000


def test_an_explorer_that_is_there_first_shows_the_chain_as_soon_as_it_begins(tmp_path: Path) -> None:
    def page(place: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{place}", timeout=60) as answer:
            return str(answer.read().decode())

    chain = ChainBuilder(genesis(4))
    chain.extend()
    with explorer(tmp_path / "run", tmp_path / "log") as (port, line):
        why = f"{tmp_path / 'run'} is not a folder; a run or a node that begins makes it"
        assert line() == f"waiting: {why}"
        front = page("/")
        assert "No chain yet" in front
        assert why in front
        assert page("/api/v1/chains") == "[]"
        with Store.create(tmp_path / "run" / "chain", chain.genesis) as store:
            write(store, chain)
            assert line() == "shown: run"
        assert 'data-events="/run/events"' in page("/")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/run/events", timeout=60) as events:
            assert events.headers["content-type"].startswith("text/event-stream"), "and pages follow it"
    assert (tmp_path / "log").read_text() == ""


def test_a_folder_from_others_cannot_change_the_terminal_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chain, folder = ChainBuilder(genesis(4)), tmp_path / "from\x1b[2Jothers"
    chain.extend()

    class Server:
        until: Callable[[], bool] | None = None

        def run(self, sockets: list[socket.socket]) -> None:
            if self.until is not None:
                write_run(folder, chain)
                assert self.until()

    monkeypatch.setattr(serving, "make_server", lambda site, connections: Server())
    try:
        serving.serve([folder], lambda _: FakeRules(), "127.0.0.1", 0, ())
    finally:
        gc.unfreeze()
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert said.count("from\N{REPLACEMENT CHARACTER}[2Jothers") == 2, "where it is awaited, and where it is shown"


def test_a_test_network_is_awaited_until_each_node_has_a_chain(tmp_path: Path) -> None:
    for number in (0, 1):
        (tmp_path / f"node-{number}").mkdir()
    for number in (0, 1):
        assert not begun([tmp_path], rules_of)
        Store.create(tmp_path / f"node-{number}" / "chain", genesis(4)).close()
    assert [len(chain.holders) for chain in begun([tmp_path], rules_of)] == [2]
    assert not begun([tmp_path, tmp_path / "none"], rules_of)


def test_a_chain_that_is_replaced_while_it_is_opened_is_awaited_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Resuming deletes the chain and writes it anew: its file is gone after it was found, or after it was opened."""
    Store.create(tmp_path / "run" / "chain", genesis(4)).close()
    database = tmp_path / "run" / "chain" / DATABASE

    def refuse(*arguments: object, **named: object) -> None:
        raise DiskRefused(f"{database}: disk I/O error")

    with monkeypatch.context() as patched:
        patched.setattr(Store, "open", refuse)
        assert not begun([tmp_path / "run"], rules_of)

    def found(folders: Sequence[Path]) -> Sequence[Place]:
        places = find_places(folders)
        database.unlink()
        return places

    with monkeypatch.context() as patched:
        patched.setattr(serving, "find_places", found)
        assert not begun([tmp_path / "run"], rules_of)
    Store.create(tmp_path / "run" / "chain", genesis(4)).close()
    assert begun([tmp_path / "run"], rules_of)


def test_chains_that_are_too_many_are_not_awaited_but_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedchain.web.places.PLACES_MAX", 1)
    served = list[Server]()

    def run(server: Server, sockets: object) -> None:
        served.append(server)
        assert not server.until()
        for name in ("a", "b"):
            Store.create(tmp_path / "runs" / name, genesis(4)).close()
        server.until()

    monkeypatch.setattr(Server, "run", run)
    with pytest.raises(NotFound, match="2 chains found, at most 1 are shown together"):
        serving.serve([tmp_path / "runs"], rules_of, "127.0.0.1", 0, ())
    assert len(served) == 1, "one that waits"


@pytest.mark.long
@pytest.mark.parametrize("nodes", [1, 60])
def test_more_half_requests_than_files_stop_nothing(tmp_path: Path, nodes: int) -> None:
    """Nor those to an explorer that has many databases open."""
    chain = ChainBuilder(genesis(4))
    chain.extend()
    with Store.create(tmp_path / "run" / "node-0" / "chain", chain.genesis) as store:
        write(store, chain)
    (tmp_path / "run" / GENESIS_FILE).write_bytes(chain.genesis.encode())
    for number in range(1, nodes):
        shutil.copytree(tmp_path / "run" / "node-0", tmp_path / "run" / f"node-{number}")
    with explorer(tmp_path / "run", tmp_path / "log") as (port, _), contextlib.ExitStack() as clients:
        for count in range(1, 2 * FILES_MAX + 1):
            client = clients.enter_context(socket.create_connection(("127.0.0.1", port)))
            client.sendall(HALF)
            if count % FILES_MAX == 0:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60) as answer:
                    assert answer.status == 200
    assert len((tmp_path / "log").read_text().splitlines()) < 20
