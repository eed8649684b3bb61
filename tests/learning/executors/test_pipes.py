"""Pipes keep messages whole and in order, make no sender wait, and show their end."""

import os
import threading
from collections.abc import Iterator

import pytest

from fedchain.learning.executors.pipes import HEADER, READ_SIZE, Inlet, Outlet
from tests.support.hanging import no_hang

MESSAGES = [b"", b"a", bytes(range(256)) * 3000, b"b" * READ_SIZE, b"c" * (READ_SIZE - HEADER.size), b"", b"end"]
"""Some are larger than a pipe, or fill it exactly."""


@pytest.fixture
def ends() -> Iterator[tuple[Outlet, Inlet]]:
    read, written = os.pipe()
    outlet, inlet = Outlet(written), Inlet(read)
    yield outlet, inlet
    outlet.close()
    inlet.close()


def received(inlet: Inlet, count: int) -> list[bytes]:
    found: list[bytes] = []
    with no_hang():
        while len(found) < count:
            found += inlet.read()
    return found


def test_messages_of_any_size_arrive_whole_and_in_order_though_nobody_reads_yet(ends: tuple[Outlet, Inlet]) -> None:
    outlet, inlet = ends
    with no_hang():
        for message in MESSAGES * 3:
            outlet.send(message)
    assert received(inlet, 3 * len(MESSAGES)) == MESSAGES * 3
    assert not inlet.is_in_a_message
    outlet.send(b"again")
    assert received(inlet, 1) == [b"again"], "what was written by a thread has gone before"


def test_a_message_waits_for_the_one_before_it_though_there_is_room_by_now(
    ends: tuple[Outlet, Inlet], monkeypatch: pytest.MonkeyPatch
) -> None:
    outlet, inlet = ends
    monkeypatch.setattr(Outlet, "_wake", lambda self: None)  # its thread is not given a turn
    outlet.send(MESSAGES[2])
    sent = os.read(inlet.fileno(), READ_SIZE)
    outlet.send(b"later")
    while inlet.has_more():
        sent += os.read(inlet.fileno(), READ_SIZE)
    assert (HEADER.pack(len(MESSAGES[2])) + MESSAGES[2]).startswith(sent)


def test_what_the_pipe_has_room_for_needs_no_thread(ends: tuple[Outlet, Inlet]) -> None:
    before = threading.active_count()
    for message in (b"one", b"two"):
        ends[0].send(message)
    assert threading.active_count() == before
    assert received(ends[1], 2) == [b"one", b"two"]


def test_half_a_message_and_the_end_are_seen() -> None:
    read, written = os.pipe()
    inlet = Inlet(read)
    os.write(written, HEADER.pack(3) + b"yes" + HEADER.pack(9) + b"half")
    assert inlet.read() == [b"yes"]
    assert inlet.is_in_a_message
    os.close(written)
    with pytest.raises(EOFError):
        inlet.read()
    inlet.close()


def test_nobody_who_reads_is_no_error_and_closing_does_not_wait_for_room(ends: tuple[Outlet, Inlet]) -> None:
    outlet, inlet = ends
    with no_hang():
        outlet.send(b"x" * 4 * READ_SIZE)
        outlet.close()
        outlet.close()
        inlet.close()
    read, written = os.pipe()
    os.close(read)
    gone = Outlet(written)
    with no_hang():
        for message in MESSAGES:
            gone.send(message)
        gone.close()


def test_a_reader_sees_whether_it_would_wait(ends: tuple[Outlet, Inlet]) -> None:
    outlet, inlet = ends
    assert not inlet.has_more()
    outlet.send(b"message")
    assert inlet.has_more()
    assert inlet.read() == [b"message"]
    assert not inlet.has_more()
