"""Lines that others cause are limited."""

import errno
import logging
import os
from types import SimpleNamespace

import pytest
import trio
from libp2p.utils import encode_varint_prefixed

from fedchain.chain.encoding import encode
from fedchain.chain.membership.change import ChangeKind
from fedchain.network.libp2p.log import LEFT_OUT, LINE_SIZE_MAX, LINES_PER_MINUTE, Limit
from fedchain.network.messages import ChangeMessage
from tests.support.network.assaults import framed, muxed_of
from tests.support.network.real import MESSAGES, attacker, meshed, on_trio, peer, until, works


def test_lines_of_one_kind_are_limited(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("fedchain.network.libp2p.log.time", SimpleNamespace(monotonic=lambda: now[0]))
    log = logging.getLogger("fedchain.another")
    monkeypatch.setattr(log, "filters", [Limit()])
    caplog.set_level(logging.DEBUG, "fedchain.another")
    for number in range(100):
        log.warning("line %d", number)
    log.info("another kind")
    assert caplog.messages == [*(f"line {number}" for number in range(LINES_PER_MINUTE)), "another kind"]
    now[0] = 61.0
    log.warning("line %d", 100)
    assert caplog.messages[-2:] == [LEFT_OUT % (100 - LINES_PER_MINUTE), "line 100"]
    assert {record.name for record in caplog.records} == {"fedchain.another"}


@on_trio
async def test_what_a_peer_said_makes_no_long_line(caplog: pytest.LogCaptureFixture) -> None:
    async with peer(0) as network, attacker(network) as bad:
        await until(network.peers)
        stream = await muxed_of(bad).open_stream()
        await stream.write(encode_varint_prefixed(b"\xff" * 50_000 + b"\n"))  # it is no text
        await until(lambda: "UnicodeDecodeError" in caplog.text, "a line about it")
        assert caplog.text.count("xff") > 100
        assert max(map(len, caplog.messages)) == LINE_SIZE_MAX + 1 < 2_000
        await works(network)


@on_trio
async def test_what_a_peer_said_neither_adds_a_line_nor_colours_one(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    amendment = [3, "\x1b[31m\nWARNING fedchain.node this member is convicted", 1]
    change = [int(ChangeKind.AMEND), b"", b"", "", 0, 1, amendment, b"", b"", []]
    async with peer(0) as network, attacker(network) as bad:
        await bad.send(MESSAGES, framed(encode([ChangeMessage.KIND, [change]])))
        await until(lambda: "malformed message" in caplog.text, "a line about it")
        assert "\N{REPLACEMENT CHARACTER}WARNING fedchain.node this member is convicted" in caplog.text
        assert all(message.isprintable() for message in caplog.messages)
        await works(network)


def test_lines_of_peers_are_limited() -> None:
    assert any(isinstance(item, Limit) for item in logging.getLogger("fedchain.network").filters)


def test_the_library_does_not_log(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("libp2p"), "propagate", True)
    logging.getLogger("libp2p").setLevel(logging.DEBUG)

    @on_trio
    async def run() -> None:
        async with peer(0) as one, peer(1, one) as two:
            await meshed(one, two)

    run()
    logging.getLogger().handle(logging.LogRecord("root", logging.ERROR, "/x/libp2p/y.py", 1, "to the root", (), None))
    logging.getLogger().handle(logging.LogRecord("root", logging.ERROR, "/x/other/y.py", 1, "of others", (), None))
    assert [record.message for record in caplog.records if not record.name.startswith("fedchain")] == ["of others"]


def test_without_open_files_a_line_now_and_then_says_so(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals, accept = [errno.EMFILE] * 3, trio.SocketListener.accept

    async def take(listener: trio.SocketListener) -> trio.SocketStream:
        if refusals:
            raise OSError(number := refusals.pop(), os.strerror(number))
        return await accept(listener)

    monkeypatch.setattr(trio.SocketListener, "accept", take)
    monkeypatch.setattr(logging.getLogger("fedchain.network"), "filters", [])

    @on_trio
    async def run() -> None:
        async with peer(0) as one, peer(1, one) as two:
            await meshed(one, two)

    run()
    said = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert {(record.name, record.getMessage()) for record in said} == {
        ("fedchain.network", "connections cannot be taken: Too many open files")
    }
    assert [record.exc_info for record in said] == [None] * 3
