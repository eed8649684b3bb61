"""Every column of every table with every sort of wrong value: ``verify`` ends with 1, and nothing ends in a traceback.

Each is altered as a disk would, and as somebody would that puts the right checksum beside it.
"""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from fedchain.chain.exceptions import ChainError
from fedchain.chain.explorer.explorer import Explorer
from fedchain.chain.storage import rows
from fedchain.chain.storage.database import DATABASE
from fedchain.chain.storage.rows import CANDIDATES, FINALS, POSTS, STATES, VOTES, Table
from fedchain.chain.storage.sqlite import Store
from fedchain.chain.storage.store import Candidate
from tests.chain.test_explorer import write
from tests.cli.test_explorer import explore
from tests.support.chain.builders import ChainBuilder, genesis

pytestmark = pytest.mark.long

GENESIS = genesis(4)
TABLES: dict[str, Table] = {table.name: table for table in (rows.GENESIS, FINALS, STATES, CANDIDATES, VOTES, POSTS)}
COLUMNS = [(table.name, column) for table in TABLES.values() for column in (*dict(table.columns), "checksum")]
COLUMNS += [("contents", "hash"), ("contents", "size"), ("contents", "data")]
"""All but the numbers of rows, which say only in which order they came."""

VALUES: tuple[Any, ...] = (None, "text", 0, 2**63 - 1, b"\x01", bytes(2**17))
POSSIBLE = {("candidates", "is_own", 0)}
"""Values that only the checksum tells from those written: a store does not say which member's node it is."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a row of every sort, which takes no value to be impossible."""
    folder, chain = tmp_path_factory.mktemp("whole") / "chain", ChainBuilder(GENESIS)
    chain.extend_many(3)
    with Store.create(folder, GENESIS) as store:
        write(store, chain)
        candidate = chain.extend()
        store.append([Candidate(candidate, True), candidate.transactions[0], chain.vote(GENESIS.members[0], candidate)])
    with closing(sqlite3.connect(folder / DATABASE)) as connection, connection:
        connection.execute("PRAGMA writable_schema = 1")
        connection.execute("UPDATE sqlite_master SET sql = replace(sql, ' NOT NULL', '')")
    return folder


def values_of(connection: sqlite3.Connection, table: str, column: str) -> tuple[Any, tuple[Any, ...]]:
    """The value of the last row, and values that may be put there: any sort, its neighbour, another row's."""
    found = [value for (value,) in connection.execute(f"SELECT {column} FROM {table} ORDER BY rowid")]
    here, other = found[-1], found[0]
    near = here + 1 if isinstance(here, int) else bytes([here[0] ^ 1]) + here[1:]
    return here, tuple(value for value in (*VALUES, near, other) if value != here or type(value) is not type(here))


def altered(whole: Path, folder: Path, table: str, column: str, *, is_signed: bool) -> Iterator[Any]:
    """The store with one wrong value after the other, as far as the database takes it."""
    with closing(sqlite3.connect(whole / DATABASE)) as connection:
        _, values = values_of(connection, table, column)
    for value in values:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(whole, folder)
        with closing(sqlite3.connect(folder / DATABASE)) as connection, connection:
            (row,) = connection.execute(f"SELECT max(rowid) FROM {table}").fetchone()
            try:
                connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (value, row))
            except sqlite3.Error:
                continue
            if is_signed:
                names = ", ".join(dict(TABLES[table].columns))
                place = value if column == "height" and not TABLES[table].is_numbered else row
                (*here,) = connection.execute(f"SELECT {names} FROM {table} WHERE rowid = ?", (place,)).fetchone()
                try:
                    checksum = TABLES[table]._checksum(here)
                except ChainError:
                    continue
                connection.execute(f"UPDATE {table} SET checksum = ? WHERE rowid = ?", (checksum, place))
        yield value


def expect_no_traceback(result: Result) -> None:
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info


@pytest.mark.parametrize(("table", "column"), COLUMNS, ids=[".".join(item) for item in COLUMNS])
def test_verify_ends_with_1_whatever_stands_in_a_column(whole: Path, tmp_path: Path, table: str, column: str) -> None:
    for is_signed in (False, True):
        if is_signed and (table == "contents" or column == "checksum"):
            continue
        count = 0
        for value in altered(whole, tmp_path / "chain", table, column, is_signed=is_signed):
            count += 1
            if is_signed and (table, column, value) in POSSIBLE:
                continue
            result = explore("verify", tmp_path)
            expect_no_traceback(result)
            assert result.exit_code == 1, (is_signed, value if not isinstance(value, bytes) else value[:40])
            assert result.stderr.count("\n") <= 1
        assert count > 2


@pytest.mark.parametrize(("table", "column"), COLUMNS, ids=[".".join(item) for item in COLUMNS])
def test_no_other_question_ends_in_a_traceback(whole: Path, tmp_path: Path, table: str, column: str) -> None:
    for _ in altered(whole, tmp_path / "chain", table, column, is_signed=table in TABLES and column != "checksum"):
        for words in (("status", tmp_path), ("block", tmp_path, 3), ("members", tmp_path)):
            result = explore(*words)
            expect_no_traceback(result)
            assert result.exit_code in (0, 2)
            assert result.exit_code == 0 or result.stderr.count("\n") == 1


def test_the_store_was_whole(whole: Path) -> None:
    assert explore("verify", whole).exit_code == 0
    with Store.open(whole, read_only=True) as store:
        assert Explorer(store).status().height == 3


def test_all_that_is_wrong_is_counted_where_the_head_is_damaged_too(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "chain")
    with closing(sqlite3.connect(tmp_path / "chain" / DATABASE)) as connection, connection:
        connection.execute("UPDATE finals SET posts = 9 WHERE height IN (1, 3)")
        connection.execute("UPDATE votes SET kind = 1")
    result = explore("verify", tmp_path)
    assert result.exit_code == 1
    assert "3 blocks: 2 invalid, 1 unchecked" in result.stdout or "3 blocks: 2 invalid, 1 recomputed" in result.stdout
    for line in ("the chain cannot continue from its head", "finals row with height 1", "votes row with hash"):
        assert line in " ".join(result.stdout.split())


def test_a_store_of_which_every_state_is_gone_is_not_whole(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "chain")
    with closing(sqlite3.connect(tmp_path / "chain" / DATABASE)) as connection, connection:
        connection.execute("DELETE FROM states")
    result = explore("verify", tmp_path)
    assert result.exit_code == 1
    assert "no state leads to block 3" in " ".join(result.stdout.split())
