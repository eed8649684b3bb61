"""The storage on disk: its folder, what every start checks, and what damage costs."""

import logging
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedchain.chain.exceptions import NotFound, StoreCorrupt, StoreError, StoreMismatch
from fedchain.chain.state import State
from fedchain.chain.storage import sqlite
from fedchain.chain.storage.database import DATABASE
from fedchain.chain.storage.rows import GENESIS as GENESIS_TABLE
from fedchain.chain.storage.sqlite import Store
from fedchain.chain.storage.store import Candidate, Contents, Final
from fedchain.crypto.hashing import sha256
from tests.support.chain.builders import ChainBuilder, genesis
from tests.support.chain.contents import contents
from tests.support.chain.stored import (
    BLOCKS,
    DAMAGE,
    GENESIS,
    OWN,
    SMALL,
    ask,
    execute,
    expect_whole,
    finals_of,
    warnings,
)
from tests.support.chain.stored import chain as chain
from tests.support.chain.stored import folder as folder
from tests.support.paths import ROOT

# --- the folder


def test_a_store_opens_with_its_genesis_or_without(folder: Path) -> None:
    with Store.open(folder) as store:
        assert store.genesis == GENESIS
    with Store.open(folder, GENESIS) as store:
        assert store.genesis == GENESIS


def test_create_refuses_a_folder_with_a_chain(folder: Path) -> None:
    with pytest.raises(StoreError, match="holds a chain already"):
        Store.create(folder, GENESIS)
    with Store.open(folder) as store:
        assert store.head() is not None


@pytest.mark.parametrize("name", ["", "nowhere"])
def test_a_folder_without_a_chain_is_not_found(tmp_path: Path, name: str) -> None:
    with pytest.raises(NotFound, match="holds no chain"):
        Store.open(tmp_path / name)


def test_another_chain_is_named_with_both_ids(folder: Path) -> None:
    other = genesis(4, name="other")
    with pytest.raises(StoreMismatch) as caught:
        Store.open(folder, other)
    message = str(caught.value)
    for part in (str(folder), GENESIS.chain_id.hex(), other.chain_id.hex()):
        assert part in message
    assert "\n" not in message


def test_a_genesis_of_another_version_is_a_mismatch(folder: Path) -> None:
    later = GENESIS.encode().replace(b"\x02", b"\x04", 1)
    with closing(sqlite3.connect(folder / DATABASE)) as connection, connection:
        connection.execute("DELETE FROM genesis")
        GENESIS_TABLE.insert(connection, (GENESIS.chain_id, later))
    with pytest.raises(StoreMismatch, match="version is 4"):
        Store.open(folder)


def test_one_writer_at_a_time_and_any_number_of_readers(folder: Path, chain: ChainBuilder) -> None:
    with Store.open(folder) as writer, Store.open(folder, read_only=True) as reader:
        with pytest.raises(StoreError, match="in use by another process"):
            Store.open(folder)
        with pytest.raises(StoreError, match="in use by another process"):
            Store.create(folder, GENESIS)
        final = chain.final(chain.blocks[chain.tip])
        writer.append([final])
        assert (reader.head(), reader.base()) == (final, 1)
        late = chain.final(chain.extend_many(3)[-1])
        writer.append([late])
        assert (reader.head(), reader.base()) == (late, BLOCKS + 4)
        with pytest.raises(StoreError, match="readonly"):
            reader.append([final])
    Store.open(folder).close()


@pytest.mark.parametrize("left", [(), ("-wal",)])
def test_a_chain_on_a_read_only_disk_is_read_without_the_memory_that_a_log_takes(
    folder: Path, left: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for suffix in left:  # as a reader leaves it
        (folder / f"{DATABASE}{suffix}").touch()
    before = {path.name for path in folder.iterdir()}
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    with Store.open(folder, read_only=True) as store:
        assert store.base() == 1
        assert {path.name for path in folder.iterdir()} == before


@pytest.mark.parametrize("is_writable", [True, False])
def test_a_log_that_its_writer_removes_while_a_reader_looks_for_it_is_none(
    folder: Path, is_writable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, stat = folder / f"{DATABASE}-wal", Path.stat
    log.touch()

    def look(path: Path, **options: bool) -> os.stat_result:
        found = stat(path, **options)
        if path == log:
            log.unlink()
        return found

    monkeypatch.setattr(Path, "stat", look)
    monkeypatch.setattr(os, "access", lambda path, mode: is_writable or mode != os.W_OK)
    with Store.open(folder, read_only=True) as store:
        assert store.base() == 1


def test_a_chain_in_a_folder_that_others_may_write_in_is_read_as_it_grows(
    folder: Path, chain: ChainBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log may be empty: the memory beside that says that somebody has it open."""
    log, final = folder / f"{DATABASE}-wal", chain.final(chain.blocks[chain.tip])
    with Store.open(folder) as writer:
        assert log.stat().st_size == 0
        assert (folder / f"{DATABASE}-shm").exists()
        monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
        with Store.open(folder, read_only=True) as reader:
            writer.append([final])
            assert reader.head() == final


def test_a_log_with_something_in_it_is_read_wherever_it_lies(
    folder: Path, chain: ChainBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(folder) as writer:
        final = chain.final(chain.blocks[chain.tip])
        writer.append([final])
        monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
        with Store.open(folder, read_only=True) as reader:
            assert reader.head() == final


def test_the_log_is_small_again_when_a_long_look_at_the_chain_is_over(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While an audit reads, the log cannot be used anew; it kept the size that it had then for as long as the node ran,
    and was in no number that an operator sees."""
    monkeypatch.setattr(sqlite, "LOG_SIZE_MAX", 2**19)
    log_file, numbers = folder / f"{DATABASE}-wal", iter(range(1_000))

    def write(count: int) -> int:
        """Append so many contents; how large the log is then."""
        for _ in range(count):
            store.append([contents(next(numbers).to_bytes(2, "big") * 20_000)])
        return log_file.stat().st_size

    with Store.open(folder) as store, closing(sqlite3.connect(folder / DATABASE)) as reader:
        cursor = reader.execute("SELECT height FROM finals")
        cursor.fetchone()
        assert write(150) > 6 * 2**20
        cursor.close()
        assert write(2) <= 2**19


def test_an_append_is_all_or_nothing(folder: Path, chain: ChainBuilder) -> None:
    final, wrong = chain.final(chain.blocks[chain.tip]), Contents({sha256(b"one thing"): b"another thing"})
    with Store.open(folder) as store:
        with pytest.raises(AssertionError):
            store.append([final, contents(b"before it"), wrong])
        assert store.content(sha256(b"before it")) is None
        assert (store.head(), store.base(), store.final(BLOCKS + 1)) == (finals_of(chain)[-1], 1, None)
        store.append([final, contents(b"after it")])
        assert (store.head(), store.content(sha256(b"after it"))) == (final, b"after it")


def test_one_thread_reads_while_another_writes(folder: Path) -> None:
    with Store.open(folder) as store:
        store._writer.execute("BEGIN IMMEDIATE")
        store._contents.insert(contents(b"not yet").by_hash)
        assert store.content(sha256(b"not yet")) is None, "what is not committed may still be lost"
        store._writer.execute("COMMIT")
        assert store.content(sha256(b"not yet")) == b"not yet"


def test_of_closed_heights_only_own_candidates_stay_on_the_disk(folder: Path, chain: ChainBuilder) -> None:
    tip = chain.blocks[chain.tip]
    rival = chain.extend(tip.header.parent_hash, payload_of=7)
    with Store.open(folder) as store:
        store.append([Candidate(rival, False)])
        assert list(store.candidates()) == [tip, rival]
        store.append([chain.final(rival)])
        assert list(store.candidates()) == []
    assert ask(folder, "SELECT hash FROM candidates") == [tip.hash]


def test_states_are_kept_at_intervals_and_at_the_head(
    tmp_path: Path, chain: ChainBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "STATE_INTERVAL", 4)
    with Store.create(tmp_path, GENESIS) as store:
        for record in finals_of(chain):
            store.append([record])
        for record in finals_of(chain):
            state = store.state_before(record.block.header.height)
            assert state is not None
            assert state.encode() == record.state
        assert store.state_before(BLOCKS + 1) == chain.states[finals_of(chain)[-1].block.hash]
        assert store.state_before(BLOCKS + 2) is None
    assert ask(tmp_path, "SELECT height FROM states") == [4, 8, 9]


def test_who_joins_late_keeps_the_first_state(tmp_path: Path, chain: ChainBuilder) -> None:
    records = finals_of(chain)
    with Store.create(tmp_path, GENESIS) as store:
        for record in records[3:]:
            store.append([record])
        store.append([replace(records[2], state=b"")])
        store.append([chain.final(chain.blocks[chain.tip])])
        assert (store.base(), store.state_before(3), store.state_before(7)) == (3, None, state_of(records[6], chain))
    assert ask(tmp_path, "SELECT height FROM states") == [4, BLOCKS + 1]


def test_a_reader_looks_at_new_blocks_alone_for_the_base(tmp_path: Path, chain: ChainBuilder) -> None:
    """An explorer asks with each change, also over a chain of months. A base falls, and it rises where one is lost."""
    records, rows = finals_of(chain), list[tuple[Any, ...]]()

    def note(_: sqlite3.Cursor, row: tuple[Any, ...]) -> tuple[Any, ...]:
        rows.append(row)
        return row

    def base_of(store: Store) -> tuple[int, int]:
        """The base, and the number of rows that it took."""
        rows.clear()
        store._reader.row_factory = note
        return store.base(), len(rows)

    with Store.create(tmp_path, GENESIS) as node, Store.open(tmp_path, read_only=True) as reader:
        assert base_of(reader)[0] == 1
        node.append(records[3:])
        (base, first), (again, second) = base_of(reader), base_of(reader)
        assert (base, again) == (4, 4)
        assert second < first - 2
        node.append([chain.final(chain.blocks[chain.tip]), replace(records[2], state=b"")])
        assert base_of(reader) == (3, second + 2)
        node.append([replace(record, state=b"") for record in records[:2]])
        assert base_of(reader)[0] == 1
        execute(tmp_path, "DELETE FROM finals WHERE height = 5")
        assert base_of(reader)[0] == 6
        execute(tmp_path, "DELETE FROM finals WHERE height = ?", BLOCKS + 1)
        assert base_of(reader)[0] == BLOCKS + 2
        node.append([replace(chain.final(chain.blocks[chain.tip]), state=b""), replace(records[4], state=b"")])
        assert base_of(reader)[0] == 1


def state_of(record: Final, chain: ChainBuilder) -> State:
    return chain.states[record.block.header.parent_hash]


# --- damage that shows later


def test_a_damaged_block_that_was_noticed_is_a_hole_for_the_next_start(
    folder: Path, chain: ChainBuilder, caplog: pytest.LogCaptureFixture
) -> None:
    records = finals_of(chain)
    execute(folder, f"UPDATE finals SET {DAMAGE} WHERE height IN (4, 6)")
    with Store.open(folder) as store:
        assert (store.final(6), store.final(4), store.base()) == (None, None, 7)
        store.append([chain.vote(OWN, chain.tip)])
        assert (store.base(), store.head()) == (7, records[-1])
        expect_whole(store)
    caplog.clear()
    with Store.open(folder) as store:
        assert store.base() == 7
        assert len(warnings(caplog)) == 1
        store.append([replace(records[5], state=b"")])
        assert store.base() == 5
        store.append([replace(records[3], state=b"")])
        assert store.base() == 1
        expect_whole(store)


def test_a_head_that_is_damaged_while_the_node_runs_does_not_stop_it(folder: Path, chain: ChainBuilder) -> None:
    records = finals_of(chain)
    with Store.open(folder) as store:
        execute(folder, f"UPDATE finals SET {DAMAGE} WHERE height = {BLOCKS}")
        assert (store.final(BLOCKS), store.base()) == (None, BLOCKS + 1)
        store.append([chain.vote(OWN, chain.tip)])
        assert store.base() == BLOCKS + 1
        following = chain.final(chain.blocks[chain.tip])
        store.append([following])
        assert (store.head(), store.base()) == (following, BLOCKS + 1)
        store.append([replace(records[-1], state=b"")])
        assert store.base() == 1
        expect_whole(store)


# --- damage that only a repair can deal with


def read_everything(folder: Path) -> list[object]:
    with Store.open(folder, read_only=True) as store:
        blocks = [store.final(height) for height in range(1, BLOCKS + 1)]
        return [store.head(), *blocks, *store.candidates(), *store.votes(BLOCKS + 1), *store.posts(0)]


@pytest.mark.long
def test_every_flipped_byte_is_noticed_or_harmless(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    path = folder / DATABASE
    original, expected = path.read_bytes(), read_everything(folder)
    messages, left_out = list[str](), 0
    for place in range(0, len(original), 127):
        damaged = bytearray(original)
        damaged[place] ^= 0xFF
        path.write_bytes(damaged)
        try:
            found = read_everything(folder)
        except StoreError as error:
            messages.append(str(error))
            continue
        assert all(record is None or record in expected for record in found)
        left_out += sum(record is not None for record in expected) - sum(record is not None for record in found)
    assert len(messages) > 20
    assert left_out > 50
    assert all(str(folder) in message and message.isprintable() for message in messages)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("DELETE FROM genesis", "genesis document is missing"),
        ("UPDATE genesis SET data = x'00'", "genesis row .* was altered"),
        ("DROP TABLE contents", "no such table"),
        ("DROP TABLE states", "no such table"),
        ("DROP INDEX outline", "no such index"),
    ],
)
def test_what_a_start_cannot_do_without_is_named_with_what_to_do(folder: Path, statement: str, message: str) -> None:
    execute(folder, statement)
    with (
        pytest.raises(StoreCorrupt, match=f"{message}.*; run: fedchain node repair {folder}"),
        Store.open(folder) as store,
    ):
        store.content(sha256(SMALL))


# --- kill -9

CHILD = """
import sys
import tracemalloc
from pathlib import Path
from fedchain.chain.storage.contents import ROW_SIZE_MAX
from fedchain.chain.storage.sqlite import Store
from fedchain.chain.storage.store import Candidate, Contents
from fedchain.crypto.hashing import sha256
from tests.support.chain.stored import GENESIS, OWN
from tests.support.chain.builders import ChainBuilder

chain = ChainBuilder(GENESIS)
with Store.open(Path(sys.argv[1]), GENESIS) as store:
    head = store.head()
    start = 0 if head is None else head.block.header.height
    chain.extend_many(start)
    while True:
        block = chain.extend()
        number = block.header.height
        data = number.to_bytes(8, "big") * (ROW_SIZE_MAX // 8 + number % 2)
        store.append([Candidate(block, True), chain.vote(OWN, block), Contents({sha256(data): data})])
        store.append([chain.final(block)])
        print(number, sha256(data).hex(), flush=True)
"""

KILLS = 5


@pytest.mark.long
def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    folder, acknowledged = tmp_path / "chain", dict[int, bytes]()
    Store.create(folder, GENESIS).close()
    root = ROOT
    for kill in range(KILLS):
        command = [sys.executable, "-c", CHILD, str(folder)]
        child = subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        # A kill follows the acknowledgement of a different record each time, and hits the child at its next one.
        lines = [child.stdout.readline() for _ in range(3 + 2 * kill)]
        child.send_signal(signal.SIGKILL)
        # It may have acknowledged more before the signal arrived.
        lines += child.stdout.read().splitlines(keepends=True)
        for line in lines:
            if line.endswith("\n"):
                number, name = line.split()
                acknowledged[int(number)] = bytes.fromhex(name)
        assert child.wait() == -signal.SIGKILL
        child.stdout.close()
    assert len(acknowledged) >= sum(3 + 2 * kill for kill in range(KILLS))
    with Store.open(folder, GENESIS) as store:
        expect_whole(store)
        assert store.base() == 1
        for height, content_hash in acknowledged.items():
            found = store.final(height)
            assert found is not None
            assert [vote.block_hash for vote in store.votes(height)] == [found[0].hash]
            assert store.content(content_hash) is not None
