"""Small files are written while the loop goes on, the newest last, and all of them before a network ends."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from fedchain.network.bans import read_bans
from fedchain.network.libp2p.addresses import AddressBook
from fedchain.network.libp2p.saver import Saver
from tests.support.network.real import LIMITS, MEMBERS, TIMEOUT_S, on_trio, peer, until


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> "Disk":
    return Disk(monkeypatch)


class Disk:
    """A disk that does nothing until it may."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.may, self.asked = threading.Event(), 0
        self._sync = os.fsync
        monkeypatch.setattr("os.fsync", self._wait)

    def _wait(self, descriptor: int) -> None:
        self.asked += 1
        # a loop that waits for it could not let it go on
        assert threading.current_thread() is not threading.main_thread() or self.may.is_set(), "the loop waits"
        assert self.may.wait(TIMEOUT_S)
        self._sync(descriptor)


@on_trio
async def test_a_slow_disk_keeps_no_message_waiting_and_has_all_in_the_end(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedchain.network.libp2p.network.SAVE_INTERVAL_S", 0.01)
    async with peer(0, folder=tmp_path) as one:
        one.book.add_told(MEMBERS[3], ["/ip4/127.0.0.1/tcp/9"], by_itself=True)
        await until(lambda: disk.asked, "a write")
        for liar in MEMBERS[1:3]:
            one.blame(liar, LIMITS.blame_max, "it lied")
        assert len(one.bans()) == 2
        assert read_bans(tmp_path) == ()
        disk.may.set()
    assert {ban.peer for ban in read_bans(tmp_path)} == {MEMBERS[1], MEMBERS[2]}
    assert MEMBERS[3] in AddressBook(MEMBERS[0], one._membership, LIMITS, tmp_path).known()


class Writes:
    """Writes that wait until they may."""

    def __init__(self) -> None:
        self.may, self.begun, self.ended = threading.Event(), list[str](), list[str]()

    def of(self, text: str) -> Callable[[], None]:
        def write() -> None:
            self.begun.append(text)
            assert self.may.wait(TIMEOUT_S)
            self.ended.append(text)

        return write


@on_trio
async def test_of_what_waits_for_a_file_the_newest_is_written_and_never_two_at_a_time() -> None:
    saver, writes = Saver(), Writes()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(saver.run)
        saver.put("list", writes.of("list 1"))
        await until(lambda: writes.begun)
        for number in (2, 3):
            saver.put("list", writes.of(f"list {number}"))
            saver.put("book", writes.of(f"book {number}"))
        nursery.start_soon(saver.write_all)  # as at the end
        await trio.testing.wait_all_tasks_blocked()
        assert writes.begun == ["list 1"]
        writes.may.set()
        await until(lambda: len(writes.ended) == 3)
        nursery.cancel_scope.cancel()
    assert writes.ended == ["list 1", "list 3", "book 3"]


@on_trio
async def test_what_was_put_is_written_though_the_network_ends() -> None:
    saver, writes = Saver(), Writes()
    saver.put("list", writes.of("list"))
    writes.may.set()
    async with trio.open_nursery() as nursery:
        nursery.cancel_scope.cancel()
        nursery.start_soon(saver.run)
    with trio.CancelScope(shield=True):
        await saver.write_all()
    assert writes.ended == ["list"]


@on_trio
async def test_a_refusal_is_logged_once_until_it_is_written(caplog: pytest.LogCaptureFixture) -> None:
    saver = Saver()

    def refuse() -> None:
        raise OSError("no space left")

    for write in (refuse, refuse, lambda: None, refuse):
        saver.put("list", write)
        await saver.write_all()
    assert caplog.messages == ["list cannot be saved: no space left"] * 2


@on_trio
async def test_a_machine_that_gives_no_thread_ends_no_node(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The nursery of the network ended with it, and the node with that, on account of a list of bans."""
    saver, written, start = Saver(), list[str](), trio.to_thread.run_sync

    async def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    async with trio.open_nursery() as nursery:
        monkeypatch.setattr("trio.to_thread.run_sync", refuse)
        nursery.start_soon(saver.run)
        saver.put("the list", lambda: written.append("list 1"))
        await until(lambda: caplog.messages, "a line of the log")
        monkeypatch.setattr("trio.to_thread.run_sync", start)
        saver.put("the list", lambda: written.append("list 2"))
        await until(lambda: written, "a write")
        nursery.cancel_scope.cancel()
    assert written == ["list 2"]
    assert caplog.messages == ["the list cannot be saved: can't start new thread"]
