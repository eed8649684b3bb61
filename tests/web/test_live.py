"""Watching chains: a node that hangs keeps no new block off the pages."""

import errno
import os
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

from fedchain.chain.storage.sqlite import Store
from fedchain.web.chains import Chain, Holder, open_chains
from fedchain.web.live import Live
from fedchain.web.places import find_places
from tests.support.chain.builders import ChainBuilder, genesis
from tests.support.chain.explored import FakeRules, write
from tests.support.web.builders import append

PATIENCE_S = 60.0
"""For a machine that is busy; it takes a fraction of a second."""


def opened(folder: Path) -> tuple[ChainBuilder, Chain]:
    """The builder of a chain of one block, and the chain as an explorer has it open in a folder."""
    chain = ChainBuilder(genesis(4))
    chain.extend()
    with Store.create(folder / "chain", chain.genesis) as store:
        write(store, chain)
    (found,) = open_chains(find_places([folder]), lambda _: FakeRules())
    return chain, found


async def shows_next_block(
    live: Live, found: Chain, folder: Path, builder: ChainBuilder, after: threading.Event | None = None
) -> bool:
    """Whether pages of a chain change with the next block that its folder gets, once the chain is read."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(live.run)
        if after is not None:
            assert await anyio.to_thread.run_sync(after.wait, PATIENCE_S)
        while await live.wait(found, live.version(found), 1.0):
            pass
        version = live.version(found)
        append(folder, builder, builder.extend())
        has_changed = await live.wait(found, version, PATIENCE_S)
        tasks.cancel_scope.cancel()
    return has_changed


def test_a_node_that_hangs_keeps_no_block_off_the_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chain, found = opened(tmp_path / "run")
    live = Live([found], lambda: False)
    is_asked, is_released = threading.Event(), threading.Event()

    def hang(holder: Holder) -> None:
        is_asked.set()
        is_released.wait(PATIENCE_S)

    monkeypatch.setattr(Holder, "ask", hang)

    try:
        assert anyio.run(shows_next_block, live, found, tmp_path / "run", chain, is_asked)
        assert not is_released.is_set()
    finally:
        is_released.set()
        found.close()


@pytest.mark.parametrize("what", ["look", "ask"])
def test_an_error_of_a_moment_leaves_no_page_old_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    """As where the process may open no more files: uvicorn would serve the pages that there are, and say nothing."""
    chain, found = opened(tmp_path / "run")
    live, done = Live([found], lambda: False), getattr(Holder, what)
    fails, is_over = iter([*[True] * 3, *[False] * 4, *[True] * 2]), threading.Event()

    def fail(holder: Holder) -> Any:
        if (failing := next(fails, None)) is True:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        if failing is None:
            is_over.set()
        return done(holder)

    monkeypatch.setattr("fedchain.web.live.ASK_EVERY_S", 0.01)
    monkeypatch.setattr("fedchain.web.live.ASK_SOON_S", 0.01)
    monkeypatch.setattr(Holder, what, fail)

    assert anyio.run(shows_next_block, live, found, tmp_path / "run", chain, is_over)
    found.close()
    told = [record for record in caplog.records if record.name == "fedchain.web"]
    assert [record.levelname for record in told] == ["ERROR", "ERROR"], "once, and once again when it comes back"
    assert all("Too many open files, trying again" in record.message for record in told)


def test_one_chain_that_cannot_be_looked_at_keeps_no_block_of_another_off_the_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = ChainBuilder(genesis(4))
    chain.extend()
    for name in ("a", "b"):
        with Store.create(tmp_path / name / "chain", chain.genesis) as store:
            write(store, chain)
    bad, good = open_chains(find_places([tmp_path / "a", tmp_path / "b"]), lambda _: FakeRules())
    live, look = Live([bad, good], lambda: False), Holder.look

    def fail(holder: Holder) -> Any:
        if holder.place.folder == tmp_path / "a":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return look(holder)

    monkeypatch.setattr("fedchain.web.live.ASK_EVERY_S", 0.01)
    monkeypatch.setattr(Holder, "look", fail)

    assert anyio.run(shows_next_block, live, good, tmp_path / "b", chain)
    for found in (bad, good):
        found.close()


def test_nodes_are_asked_when_they_wrote_and_while_there_is_a_candidate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain, found = opened(tmp_path / "run")
    live, asked = Live([found], lambda: False), threading.Semaphore(0)
    told: dict[str, Any] = {"open": {"candidates": []}}
    monkeypatch.setattr("fedchain.web.live.ASK_EVERY_S", 10 * PATIENCE_S)

    def ask(holder: Holder) -> None:
        holder.status = told
        asked.release()

    monkeypatch.setattr(Holder, "ask", ask)

    async def is_asked() -> bool:
        return await anyio.to_thread.run_sync(asked.acquire, True, PATIENCE_S)

    async def look() -> None:
        while True:
            await live.wait(found, live.version(found), PATIENCE_S)

    async def watch() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(live.run)
            tasks.start_soon(look)
            assert await is_asked()
            for _ in range(2):
                append(tmp_path / "run", chain, chain.extend())
                assert await is_asked()
            told["open"]["candidates"] = [{"hash": "ab" * 32}]
            append(tmp_path / "run", chain, chain.extend())
            assert [await is_asked() for _ in range(3)] == [True] * 3
            tasks.cancel_scope.cancel()

    anyio.run(watch)
    found.close()


def test_an_explorer_that_is_started_again_has_other_versions(tmp_path: Path) -> None:
    """Browsers keep the pages of the one before."""
    _, found = opened(tmp_path / "run")
    one, other = (Live([found], lambda: False) for _ in range(2))
    assert one.version(found) == one.version(found) != other.version(found)
    found.close()


def test_what_pages_left_to_be_done_is_done_at_once(tmp_path: Path) -> None:
    Store.create(tmp_path / "run" / "chain", genesis(4)).close()
    (found,) = open_chains(find_places([tmp_path / "run"]), lambda _: FakeRules())
    left, is_done = [3], threading.Event()

    def work() -> bool:
        if left[0] == 0:
            is_done.set()
            return False
        left[0] -= 1
        return True

    live = Live([found], work)

    async def watch() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(live.run)
            assert await anyio.to_thread.run_sync(is_done.wait, PATIENCE_S)
            tasks.cancel_scope.cancel()

    anyio.run(watch)
    found.close()
    assert left == [0]
