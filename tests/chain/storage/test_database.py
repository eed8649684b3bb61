"""The file of the database: its owner, its version, its lock, its log, and other files in its place."""

import os
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from fedchain.chain.exceptions import DiskRefused, StoreCorrupt, StoreMismatch
from fedchain.chain.storage.content_files import LOCK
from fedchain.chain.storage.database import DATABASE, STORE_VERSION, disk_errors
from fedchain.chain.storage.repair import repair
from fedchain.chain.storage.sqlite import Store
from fedchain.crypto.hashing import sha256
from tests.support.chain.builders import ChainBuilder, genesis
from tests.support.chain.contents import LARGE, contents
from tests.support.chain.stored import (
    GENESIS,
    execute,
    records_of,
)
from tests.support.chain.stored import chain as chain
from tests.support.chain.stored import folder as folder


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o022])
def test_only_its_owner_reads_a_store_whatever_the_umask(tmp_path: Path, chain: ChainBuilder, umask: int) -> None:
    folder, before = tmp_path / "a" / "chain", os.umask(umask)
    try:
        with Store.create(folder, GENESIS) as store:
            store.append([*records_of(chain), contents(LARGE)])
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


@pytest.mark.parametrize(
    ("version", "advice"), [(1, "found a new federation"), (STORE_VERSION + 1, "a later program wrote it")]
)
def test_another_version_is_named_with_what_to_do(folder: Path, version: int, advice: str) -> None:
    execute(folder, f"PRAGMA user_version = {version}")
    with pytest.raises(StoreMismatch, match=f"version {version}, .* version {STORE_VERSION}: .*{advice}") as caught:
        Store.open(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("CREATE TRIGGER eats AFTER INSERT ON votes BEGIN DELETE FROM votes; END", "trigger eats"),
        ("CREATE TABLE more (data BLOB)", "table more"),
        ("CREATE VIEW seen AS SELECT * FROM finals", "view seen"),
        # It is not read: a query in it may have no end.
        ("DROP TABLE genesis; CREATE VIEW genesis AS SELECT * FROM elsewhere", "view genesis"),
        ("DROP INDEX outline; CREATE INDEX outline ON finals (height) WHERE height < 3", "index outline"),
        # Two blocks of one height: one would be judged, and the other one shown.
        ("DROP TABLE states; CREATE TABLE states (height INTEGER, data BLOB, checksum BLOB)", "table states"),
    ],
)
def test_a_database_with_another_schema_is_none_of_ours(folder: Path, statement: str, named: str) -> None:
    with closing(sqlite3.connect(folder / DATABASE)) as connection:
        connection.executescript(statement)
    for read_only in (True, False):
        with pytest.raises(StoreCorrupt, match=f"{named} is not one of a chain's; run: fedchain node repair"):
            Store.open(folder, read_only=read_only)
    assert repair(folder).set_aside_as is not None


def test_a_reader_leaves_no_trace_in_a_folder_it_may_not_write(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sorted(path.name for path in folder.iterdir())
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with Store.open(folder, read_only=True) as store:
        assert store.head() is not None
        assert sorted(path.name for path in folder.iterdir()) == before


def test_the_log_of_a_deleted_store_is_not_replayed(folder: Path) -> None:
    log = folder / f"{DATABASE}-wal"
    with Store.open(folder) as store:
        store.append([contents(b"of the old chain")])
        copy = log.read_bytes()
    assert copy
    (folder / DATABASE).unlink()
    log.write_bytes(copy)
    with Store.create(folder, genesis(2)) as store:
        assert store.content(sha256(b"of the old chain")) is None
        assert store.head() is None


@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.5, 0.9])
def test_a_truncated_database_does_not_open(folder: Path, share: float) -> None:
    path = folder / DATABASE
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(StoreCorrupt, match=f"{DATABASE}: .*; run: fedchain node repair {folder}"):
        Store.open(folder)


def test_another_file_is_not_a_database(folder: Path) -> None:
    (folder / DATABASE).write_bytes(b"a text that is long enough to be a header, and more of it\n" * 100)
    with pytest.raises(StoreCorrupt, match="not a database; run: fedchain node repair"):
        Store.open(folder)


def test_a_disk_that_is_too_full_for_the_index_of_the_log_is_called_full(tmp_path: Path) -> None:
    error = sqlite3.OperationalError("disk I/O error")  # SQLite's words for it
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_SHMSIZE
    with pytest.raises(DiskRefused, match="database or disk is full"), disk_errors(tmp_path):
        raise error


def test_a_database_that_the_disk_does_not_give_is_not_called_malformed(folder: Path) -> None:
    (folder / DATABASE).unlink()
    (folder / DATABASE).symlink_to("/proc/self/mem")  # a file of which no byte can be read from its beginning on
    error = sqlite3.DatabaseError("database disk image is malformed")  # SQLite's words for it
    with pytest.raises(DiskRefused, match=f"{DATABASE}: Input/output error$"), disk_errors(folder):
        raise error


def test_to_look_whether_the_disk_gives_a_database_leaves_its_locks(folder: Path) -> None:
    """POSIX lets go of a process's locks on a file when it closes any descriptor of it."""
    place = "510, 0x40000002"  # of SQLite's shared locks
    opened = f"open({str(folder / DATABASE)!r}, 'rb+')"
    take = f"import fcntl; fcntl.lockf({opened}, fcntl.LOCK_EX | fcntl.LOCK_NB, {place})"
    with Store.open(folder):
        for _ in range(2):
            taken = subprocess.run([sys.executable, "-c", take], capture_output=True, text=True, check=False)
            assert "BlockingIOError" in taken.stderr
            with pytest.raises(StoreCorrupt, match="malformed"), disk_errors(folder):
                raise sqlite3.DatabaseError("database disk image is malformed")
