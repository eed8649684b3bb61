"""The storage on disk: its folder, what every start checks, and what damage costs."""

import logging
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fedchain.chain.encoding import encode
from fedchain.chain.exceptions import NotFound, StoreCorrupt, StoreError, StoreMismatch
from fedchain.chain.state import State
from fedchain.chain.storage import recovery, sqlite
from fedchain.chain.storage.content_files import LOCK
from fedchain.chain.storage.contents import ROW_SIZE_MAX
from fedchain.chain.storage.database import DATABASE, STORE_VERSION
from fedchain.chain.storage.rows import FINALS, STATES, from_row, to_row
from fedchain.chain.storage.rows import GENESIS as GENESIS_TABLE
from fedchain.chain.storage.sqlite import Store
from fedchain.chain.storage.store import Candidate, Content, Final
from fedchain.crypto.hashing import sha256
from tests.support.chain.builders import ChainBuilder, genesis
from tests.support.chain.contents import LARGE, content
from tests.support.chain.stored import BLOCKS, GENESIS, OWN, SMALL, ask, execute, finals_of, records_of
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


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o022])
def test_only_its_owner_reads_a_store_whatever_the_umask(tmp_path: Path, chain: ChainBuilder, umask: int) -> None:
    folder, before = tmp_path / "a" / "chain", os.umask(umask)
    try:
        with Store.create(folder, GENESIS) as store:
            store.append([*records_of(chain), content(LARGE)])
            modes = {path.name: (path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in folder.glob("**/*")}
    finally:
        os.umask(before)
    assert {DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", LOCK, sha256(LARGE).hex()} < set(modes)
    assert all(mode == (0o700 if is_folder else 0o600) for is_folder, mode in modes.values())
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_folder_that_was_open_to_others_is_closed(tmp_path: Path) -> None:
    (tmp_path / "chain").mkdir(mode=0o755)
    Store.create(tmp_path / "chain", GENESIS).close()
    assert stat.S_IMODE((tmp_path / "chain").stat().st_mode) == 0o700


def test_another_chain_is_named_with_both_ids(folder: Path) -> None:
    other = genesis(4, name="other")
    with pytest.raises(StoreMismatch) as caught:
        Store.open(folder, other)
    message = str(caught.value)
    for part in (str(folder), GENESIS.chain_id.hex(), other.chain_id.hex()):
        assert part in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("version", "advice"), [(1, "found a new federation"), (STORE_VERSION + 1, "a later program wrote it")]
)
def test_another_version_is_named_with_what_to_do(folder: Path, version: int, advice: str) -> None:
    execute(folder, f"PRAGMA user_version = {version}")
    with pytest.raises(StoreMismatch, match=f"version {version}, .* version {STORE_VERSION}: .*{advice}") as caught:
        Store.open(folder)
    assert "\n" not in str(caught.value)


def test_a_genesis_of_another_version_is_a_mismatch(folder: Path) -> None:
    later = GENESIS.encode().replace(b"\x02", b"\x03", 1)
    with closing(sqlite3.connect(folder / DATABASE)) as connection, connection:
        connection.execute("DELETE FROM genesis")
        GENESIS_TABLE.insert(connection, (GENESIS.chain_id, later))
    with pytest.raises(StoreMismatch, match="version is 3"):
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


def test_a_reader_leaves_no_trace_in_a_folder_it_may_not_write(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sorted(path.name for path in folder.iterdir())
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with Store.open(folder, read_only=True) as store:
        assert store.head() is not None
        assert sorted(path.name for path in folder.iterdir()) == before


def test_the_log_of_a_deleted_store_is_not_replayed(folder: Path) -> None:
    log = folder / f"{DATABASE}-wal"
    with Store.open(folder) as store:
        store.append([content(b"of the old chain")])
        copy = log.read_bytes()
    assert copy
    (folder / DATABASE).unlink()
    log.write_bytes(copy)
    with Store.create(folder, genesis(2)) as store:
        assert store.content(sha256(b"of the old chain")) is None
        assert store.head() is None


def test_an_append_is_all_or_nothing(folder: Path, chain: ChainBuilder) -> None:
    final, wrong = chain.final(chain.blocks[chain.tip]), Content(sha256(b"one thing"), b"another thing")
    with Store.open(folder) as store:
        with pytest.raises(AssertionError):
            store.append([final, content(b"before it"), wrong])
        assert store.content(sha256(b"before it")) is None
        assert (store.head(), store.base(), store.final(BLOCKS + 1)) == (finals_of(chain)[-1], 1, None)
        store.append([final, content(b"after it")])
        assert (store.head(), store.content(sha256(b"after it"))) == (final, b"after it")


def test_a_full_disk_is_a_store_error(folder: Path) -> None:
    with Store.open(folder) as store:
        (pages,) = store._writer.execute("PRAGMA page_count").fetchone()
        store._writer.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreError, match="full"):
            store.append([content(bytes([number]) * ROW_SIZE_MAX) for number in range(3)])
        assert store.content(sha256(SMALL)) == SMALL


def test_one_thread_reads_while_another_writes(folder: Path) -> None:
    with Store.open(folder) as store:
        store._writer.execute("BEGIN IMMEDIATE")
        store._contents.insert([content(b"not yet")])
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


def state_of(record: Final, chain: ChainBuilder) -> State:
    return chain.states[record.block.header.parent_hash]


# --- what every start checks


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "fedchain.store"]


def expect_whole(store: Store) -> None:
    """Every block from the base to the head is there and follows the one before it."""
    head, base = store.head(), store.base()
    if head is None:
        assert base == 1
        return
    height, parent = head.block.header.height, None
    for place in range(base, height + 1):
        found = store.final(place)
        assert found is not None
        assert parent in (None, found[0].header.parent_hash)
        parent = found[0].hash
    assert head.block.header.state_root == sha256(head.state)


def test_a_start_reads_no_block_but_the_head(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = list[tuple[Any, ...]]()

    def count(table: Any, row: tuple[Any, ...], real: Callable[..., Any] = from_row) -> Any:
        read.append(row)
        return real(table, row)

    monkeypatch.setattr(recovery, "from_row", count)
    monkeypatch.setattr(recovery, "_read_block", None)
    with Store.open(folder) as store:
        assert (store.base(), [row[0] for row in read]) == (1, [BLOCKS])


DAMAGE = "block = substr(block, 1, 40) || x'ff' || substr(block, 42)"


@pytest.mark.parametrize("last", [BLOCKS - 1, BLOCKS - 4])
@pytest.mark.parametrize("statement", [f"UPDATE finals SET {DAMAGE}", "DELETE FROM finals"])
def test_a_damaged_head_is_cut_back_to_the_last_block_that_is_whole(
    folder: Path, chain: ChainBuilder, caplog: pytest.LogCaptureFixture, statement: str, last: int
) -> None:
    execute(folder, f"{statement} WHERE height > ?", last)
    records = finals_of(chain)
    with Store.open(folder, GENESIS) as store:
        assert (store.head(), store.base()) == (records[last - 1], 1)
        assert len(warnings(caplog)) == 1
        store.append(records[last:])
        assert store.head() == records[-1]
        expect_whole(store)
    caplog.clear()
    Store.open(folder).close()
    assert warnings(caplog) == []


def test_the_height_that_was_reached_and_the_one_that_is_left_are_named(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    execute(folder, "DELETE FROM finals WHERE height = ?", BLOCKS - 1)
    execute(folder, "DELETE FROM states")
    Store.open(folder).close()
    message = f"{folder}: block 8 is missing or damaged: cut back from height 9 to 7, the rest is fetched"
    assert warnings(caplog) == [message]
    Store.open(folder).close()
    assert warnings(caplog) == [message], "it is done once"


@pytest.mark.parametrize("statement", ["UPDATE states SET data = x'00'", "DELETE FROM states"])
def test_a_damaged_state_is_computed_again(
    folder: Path, chain: ChainBuilder, caplog: pytest.LogCaptureFixture, statement: str
) -> None:
    execute(folder, statement)
    with Store.open(folder) as store:
        assert (store.head(), store.base()) == (finals_of(chain)[-1], 1)
    assert [f"{folder}: the state before the head at height 9 was damaged and is computed again"] == warnings(caplog)


def test_a_stored_state_of_another_height_leads_nowhere(folder: Path, chain: ChainBuilder) -> None:
    """An audit begins with what it finds under a height."""
    with closing(sqlite3.connect(folder / DATABASE)) as connection, connection:
        STATES.insert(connection, (3, finals_of(chain)[4].state), replace=True)
    with Store.open(folder) as store:
        assert store.stored_state(3) is None
        assert store.state_before(3) == chain.states[finals_of(chain)[1].block.hash]


def test_a_state_without_a_block_is_dropped(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    execute(folder, "DELETE FROM finals")
    with Store.open(folder) as store:
        assert (store.head(), store.base()) == (None, 1)
    assert warnings(caplog) == [f"{folder}: a state without a block is dropped"]


def test_a_hole_below_the_head_costs_nothing_but_the_hole(
    folder: Path, chain: ChainBuilder, caplog: pytest.LogCaptureFixture
) -> None:
    records = finals_of(chain)
    execute(folder, "DELETE FROM finals WHERE height = 4")
    with Store.open(folder) as store:
        assert (store.head(), store.base()) == (records[-1], 5)
        expect_whole(store)
        store.append([replace(records[3], state=b"")])
        assert store.base() == 1
        expect_whole(store)
    message = "block 4 is missing: the chain is kept from height 5 on, the rest is fetched again"
    assert warnings(caplog) == [f"{folder}: {message}"]


def test_a_block_that_is_no_parent_is_dropped(
    folder: Path, chain: ChainBuilder, caplog: pytest.LogCaptureFixture
) -> None:
    other = ChainBuilder(GENESIS)
    other.extend_many(3, payload_of=9)
    with closing(recovery_connection(folder)) as connection:
        FINALS.insert(connection, to_row(other.final(other.extend()))[1], replace=True)
    records = finals_of(chain)
    with Store.open(folder) as store:
        assert (store.head(), store.base(), store.final(4)) == (records[-1], 5, None)
        store.append([replace(records[3], state=b"")])
        assert store.base() == 1
    assert warnings(caplog) == [f"{folder}: block 4 is not the parent of block 5: it is dropped and fetched again"]


def recovery_connection(folder: Path) -> sqlite3.Connection:
    return sqlite3.connect(folder / DATABASE, isolation_level=None)


def test_a_damaged_index_is_built_again(folder: Path, chain: ChainBuilder) -> None:
    path, fourth = folder / DATABASE, finals_of(chain)[3].block.hash
    data = bytearray(path.read_bytes())
    places = [place for place in range(len(data)) if data.startswith(fourth, place)]
    in_index = [place for place in places if data[place // 4096 * 4096] == 0x0A]
    assert len(in_index) == 2, "as a hash and as a parent's"
    data[in_index[0]] ^= 0xFF
    path.write_bytes(data)
    with Store.open(folder, read_only=True) as store:
        assert store.base() == 5
    with Store.open(folder) as store:
        assert store.base() == 1


def test_a_head_is_of_one_moment(folder: Path, chain: ChainBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    next_head = chain.final(chain.blocks[chain.tip])
    with Store.open(folder) as writer, Store.open(folder, read_only=True) as reader:

        def interrupt(connection: sqlite3.Connection) -> int:
            height = recovery_head_height(connection)
            writer.append([next_head])
            return height

        recovery_head_height = recovery.head_height
        with monkeypatch.context() as patch:
            patch.setattr(recovery, "head_height", interrupt)
            assert reader.head() == finals_of(chain)[-1]
        assert reader.head() == next_head


def test_who_joined_late_is_cut_back_to_what_its_first_state_leads_to(tmp_path: Path, chain: ChainBuilder) -> None:
    records = finals_of(chain)
    with Store.create(tmp_path, GENESIS) as store:
        store.append(records[3:])
    execute(tmp_path, "DELETE FROM finals WHERE height = 8")
    execute(tmp_path, "DELETE FROM states WHERE height = 9")
    with Store.open(tmp_path) as store:
        assert (store.head(), store.base()) == (records[6], 4)


def test_blocks_that_no_state_leads_to_wait_for_the_head_that_is_joined(
    tmp_path: Path, chain: ChainBuilder, caplog: pytest.LogCaptureFixture
) -> None:
    records = finals_of(chain)
    with Store.create(tmp_path, GENESIS) as store:
        store.append(records[3:])
    execute(tmp_path, "DELETE FROM states")
    with Store.open(tmp_path) as store:
        assert (store.head(), store.base(), store.final(6)) == (None, 1, None)
        assert len(warnings(caplog)) == 1
        store.append([records[6]])
        assert (store.head(), store.base()) == (records[6], 4)
        assert (store.final(4), store.final(8)) == ((records[3].block, records[3].certificate), None)
        store.append(records[7:])
        assert (store.head(), store.base()) == (records[8], 4)


@pytest.mark.parametrize("bits", [2**63 - 1, 0x1F7FFFFF])
def test_a_block_of_another_difficulty_is_not_replayed(folder: Path, chain: ChainBuilder, bits: int) -> None:
    tip = chain.blocks[chain.tip]
    wrong = replace(tip, header=replace(tip.header, bits=bits))
    with closing(recovery_connection(folder)) as connection:
        FINALS.insert(connection, to_row(Final(wrong, chain.certificate(tip), b""))[1])
    with Store.open(folder) as store:
        assert store.head() == finals_of(chain)[-1]


def test_a_row_that_holds_no_block_is_damaged_whatever_its_checksum(folder: Path, chain: ChainBuilder) -> None:
    records = finals_of(chain)
    for height, no_block in ((9, encode([1, 2])), (8, b"\xc1"), (7, encode([[], b"", [], [], []]))):
        values = to_row(records[height - 1])[1]
        with closing(recovery_connection(folder)) as connection:
            FINALS.insert(connection, (*values[:-2], no_block, values[-1]), replace=True)
            connection.execute("DELETE FROM states")
        with Store.open(folder) as store:
            assert store.head() == records[height - 2]
    values = to_row(records[1])[1]
    with closing(recovery_connection(folder)) as connection:
        FINALS.insert(connection, (*values[:-2], records[2].block.encode(), values[-1]), replace=True)
    with Store.open(folder) as store:
        assert store.final(2) is None


def test_a_reader_refuses_a_damaged_head_and_changes_nothing(folder: Path) -> None:
    execute(folder, f"UPDATE finals SET {DAMAGE} WHERE height = {BLOCKS}")
    before = (folder / DATABASE).read_bytes()
    advice = f"finals row with height {BLOCKS} was altered: .*; start the node, or run: fedchain node repair {folder}"
    with Store.open(folder, read_only=True) as store, pytest.raises(StoreCorrupt, match=advice):
        store.head()
    assert (folder / DATABASE).read_bytes() == before


@pytest.mark.long
@pytest.mark.parametrize("seed", range(40))
def test_whatever_rows_are_lost_a_start_ends_with_a_whole_chain(tmp_path: Path, chain: ChainBuilder, seed: int) -> None:
    rng, records = Random(seed), finals_of(chain)
    first = rng.choice((0, 0, 3))
    with Store.create(tmp_path, GENESIS) as store:
        for record in records[first:]:
            store.append([record])
    for _ in range(rng.randint(1, 4)):
        height = rng.randint(1, BLOCKS)
        statement = rng.choice(
            (
                "DELETE FROM finals WHERE height = ?",
                "DELETE FROM states WHERE height = ?",
                f"UPDATE finals SET {DAMAGE} WHERE height = ?",
                "UPDATE finals SET parent_hash = zeroblob(32) WHERE height = ?",
                "UPDATE states SET data = x'00' WHERE height = ?",
            )
        )
        with closing(recovery_connection(tmp_path)) as connection:
            connection.execute(statement, (height,))
    with Store.open(tmp_path, GENESIS) as store:
        head = store.head()
        assert head is None or head in records
        for height in range(store.base(), 0 if head is None else head.block.header.height):
            store.final(height)  # a damaged row is noticed here
        expect_whole(store)
        known = 0 if head is None else head.block.header.height
        store.append([replace(record, state=b"") for record in records[:known]])
        store.append(records[known:])
        for record in records:
            store.final(record.block.header.height)
        store.append([replace(record, state=b"") for record in records])
        assert (store.head(), store.base()) == (records[-1], 1)
        expect_whole(store)


# --- damage that shows later


def test_a_damaged_block_counts_as_not_held_until_it_is_fetched_again(
    folder: Path, chain: ChainBuilder, caplog: pytest.LogCaptureFixture
) -> None:
    records = finals_of(chain)
    execute(folder, f"UPDATE finals SET {DAMAGE} WHERE height = 4")
    with Store.open(folder) as store:
        assert (store.base(), warnings(caplog)) == (1, [])
        assert [store.final(4), store.final(4)] == [None, None]
        assert (store.base(), store.head()) == (5, records[-1])
        assert len(warnings(caplog)) == 1
        assert "finals row with height 4 was altered: checksum" in caplog.text
        store.append([replace(records[3], state=b"")])
        assert store.final(4) == (records[3].block, records[3].certificate)
        assert store.base() == 1
    with Store.open(folder) as store:
        assert store.final(4) is not None


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


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("votes", "data = substr(data, 1, 8) || x'ff' || substr(data, 10)"),
        ("votes", "attempt = 7"),
        ("votes", "checksum = zeroblob(32)"),
        ("posts", "data = 7"),
        ("posts", "data = 'Ä'"),
        ("posts", "phase = 1"),
        ("candidates", "is_own = 0"),
        ("candidates", "hash = zeroblob(32)"),
    ],
)
def test_a_damaged_statement_is_left_out_and_can_be_written_again(
    folder: Path, chain: ChainBuilder, caplog: pytest.LogCaptureFixture, table: str, change: str
) -> None:
    records = [record for record in records_of(chain) if not isinstance(record, Final)]

    def held(store: Store) -> list[object]:
        return [*store.candidates(), *store.votes(BLOCKS + 1), *store.posts(0)]

    with Store.open(folder) as store:
        before = held(store)
    execute(folder, f"UPDATE {table} SET {change}")
    with Store.open(folder) as store:
        assert len(held(store)) == len(before) - 1
        assert f"{folder}: {table} row with" in warnings(caplog)[0]
        store.append(records)
        assert held(store) == before


def file_of(folder: Path, data: bytes) -> Path:
    name = sha256(data).hex()
    return folder / "contents" / name[:2] / name


def test_a_damaged_content_row_is_logged_and_can_be_fetched_again(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for change in ("data = x'00'", "size = 'many'"):
        execute(folder, f"UPDATE contents SET {change} WHERE data IS NOT NULL")
        with Store.open(folder) as store:
            assert [store.content(sha256(SMALL)), store.content_part(sha256(SMALL), 0, 1)] == [None, None]
            assert len(warnings(caplog)) == 1
            store.append([content(SMALL)])
            assert store.content(sha256(SMALL)) == SMALL
        with Store.open(folder) as store:
            assert store.content(sha256(SMALL)) == SMALL
        caplog.clear()


@pytest.mark.parametrize(
    "change", [lambda data: data[:-1] + b"!", lambda data: data[:-1], lambda data: data + b"!", lambda data: b""]
)
def test_a_damaged_content_file_is_logged_and_can_be_fetched_again(
    folder: Path, caplog: pytest.LogCaptureFixture, change: Callable[[bytes], bytes]
) -> None:
    file_of(folder, LARGE).write_bytes(change(LARGE))
    with Store.open(folder) as store:
        assert [store.content(sha256(LARGE)), store.content_part(sha256(LARGE), 0, 1)] == [None, None]
        assert len(warnings(caplog)) == 1
        assert str(file_of(folder, LARGE)) in caplog.text
        store.append([content(LARGE)])
        assert store.content(sha256(LARGE)) == LARGE


def test_parts_of_a_file_are_served_without_having_it_in_memory(folder: Path) -> None:
    large = bytes(range(256)) * 2**15  # 8 MiB
    with Store.open(folder) as store:
        store.append([content(large)])
    with Store.open(folder) as store:
        tracemalloc.start()
        parts = [store.content_part(sha256(large), start, 256 * 2**10) for start in range(0, len(large), 2**20)]
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert parts == [large[start : start + 256 * 2**10] for start in range(0, len(large), 2**20)]
        assert peak < len(large) / 2
        file_of(folder, large).unlink()
        assert (store.content_part(sha256(large), 0, 1), store.content(sha256(large))) == (None, None)


def test_a_row_without_a_file_is_missing_and_can_be_appended_again(folder: Path) -> None:
    file_of(folder, LARGE).unlink()
    with Store.open(folder) as store:
        assert (store.content(sha256(LARGE)), store.holds_content(sha256(LARGE))) == (None, False)
        store.append([content(LARGE)])
        assert (store.content(sha256(LARGE)), store.holds_content(sha256(LARGE))) == (LARGE, True)
        assert (store.holds_content(sha256(SMALL)), store.holds_content(sha256(b"other"))) == (True, False)


def test_a_file_without_a_row_is_garbage(folder: Path, tmp_path: Path) -> None:
    with Store.create(tmp_path / "other", GENESIS) as store:
        shutil.copytree(folder / "contents", tmp_path / "other" / "contents")
        assert store.content(sha256(LARGE)) is None
        store.append([content(LARGE)])
        assert store.content(sha256(LARGE)) == LARGE


def test_dropping_takes_the_files_too_also_those_without_a_row(folder: Path) -> None:
    with Store.open(folder) as store:
        store.append([content(LARGE + b"2")])
        store._writer.execute("DELETE FROM contents WHERE hash = ?", (sha256(LARGE),))  # as after a crash
        store.retain({sha256(LARGE + b"2")})
    assert [path.name for path in (folder / "contents").glob("??/*")] == [sha256(LARGE + b"2").hex()]


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
    for place in range(0, len(original), 61):
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
    assert left_out > 100
    assert all(str(folder) in message and message.isprintable() for message in messages)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.5, 0.9])
def test_a_truncated_database_does_not_open(folder: Path, share: float) -> None:
    path = folder / DATABASE
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(StoreCorrupt, match=f"{DATABASE}: .*; run: fedchain node repair {folder}"):
        Store.open(folder)


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


def test_another_file_is_not_a_database(folder: Path) -> None:
    (folder / DATABASE).write_bytes(b"a text that is long enough to be a header, and more of it\n" * 100)
    with pytest.raises(StoreCorrupt, match="not a database; run: fedchain node repair"):
        Store.open(folder)


# --- kill -9

CHILD = """
import sys
import tracemalloc
from pathlib import Path
from fedchain.chain.storage.contents import ROW_SIZE_MAX
from fedchain.chain.storage.sqlite import Store
from fedchain.chain.storage.store import Candidate, Content
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
        store.append([Candidate(block, True), chain.vote(OWN, block), Content(sha256(data), data)])
        store.append([chain.final(block)])
        print(number, sha256(data).hex(), flush=True)
"""

KILLS = 10


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
        lines = [child.stdout.readline() for _ in range(3 + kill)]
        child.send_signal(signal.SIGKILL)
        # It may have acknowledged more before the signal arrived.
        lines += child.stdout.read().splitlines(keepends=True)
        for line in lines:
            if line.endswith("\n"):
                number, name = line.split()
                acknowledged[int(number)] = bytes.fromhex(name)
        assert child.wait() == -signal.SIGKILL
        child.stdout.close()
    assert len(acknowledged) >= sum(3 + kill for kill in range(KILLS))
    with Store.open(folder, GENESIS) as store:
        expect_whole(store)
        assert store.base() == 1
        for height, content_hash in acknowledged.items():
            found = store.final(height)
            assert found is not None
            assert [vote.block_hash for vote in store.votes(height)] == [found[0].hash]
            assert store.content(content_hash) is not None
