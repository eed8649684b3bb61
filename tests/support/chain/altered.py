"""Stores of which one column has another value."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fedchain.chain.exceptions import ChainError
from fedchain.chain.storage import rows
from fedchain.chain.storage.database import DATABASE
from fedchain.chain.storage.rows import CANDIDATES, FINALS, POSTS, STATES, VOTES, Table
from fedchain.chain.storage.sqlite import Store
from fedchain.chain.storage.store import Candidate
from tests.support.chain.builders import ChainBuilder, genesis
from tests.support.chain.explored import write

GENESIS = genesis(4)


TABLES: dict[str, Table] = {table.name: table for table in (rows.GENESIS, FINALS, STATES, CANDIDATES, VOTES, POSTS)}


COLUMNS = [(table.name, column) for table in TABLES.values() for column in (*dict(table.columns), "checksum")]


VALUES: tuple[Any, ...] = (None, "text", 0, 2**63 - 1, b"\x01", bytes(2**17))


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
