"""The full check of a folder, which no start makes: each row and file is compared with its checksum or hash."""

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedchain.chain.exceptions import InvalidEncoding, StoreCorrupt
from fedchain.chain.genesis import Genesis
from fedchain.chain.state import decode_state
from fedchain.chain.storage.content_files import read_content
from fedchain.chain.storage.contents import ROW_SIZE_MAX
from fedchain.chain.storage.database import foreign_objects, snapshot
from fedchain.chain.storage.recovery import fault_of_head, state_root_at
from fedchain.chain.storage.rows import RECORD_TABLES, STATES, Table, from_row, schema_of, tables_of
from fedchain.crypto.hashing import HASH_SIZE, sha256

_HELD = "SELECT upper(type) || ' ' || name FROM sqlite_master"


def count_rows(connection: sqlite3.Connection, genesis: Genesis) -> tuple[int, int]:
    """Numbers of records and of contents that :func:`find_damage` reads."""
    names = (*(table.name for table in tables_of(genesis)), "contents")
    sizes = [connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in names]
    return sum(sizes[:-1]), sizes[-1]


@dataclass(frozen=True, slots=True)
class DamagedRow:
    """A row that is not as it was written, or whose file is not."""

    fault: str
    """Description of the damage, for people."""
    table: str
    number: int
    """Its place in the table; SQLite's ``rowid``."""
    content_hash: bytes | None = None
    """Name of the file that the row stands for; None if there is none."""


def find_damage(folder: Path, connection: sqlite3.Connection, genesis: Genesis) -> Iterator[str]:
    """Read all rows and files, and describe those that are not as they were written."""
    yield from broken_structure(connection, genesis)
    yield from broken_head(connection, genesis)
    yield from (row.fault for row in damaged_rows(folder, connection, genesis))


def broken_structure(connection: sqlite3.Connection, genesis: Genesis) -> Iterator[str]:
    """Foreign and missing tables and indexes, and the faults that SQLite itself finds in its pages and indexes."""
    yield from foreign_objects(connection, schema_of(genesis))
    held = {text.decode(errors="replace") for (text,) in connection.execute(_HELD)}
    for name in (" ".join(statement.split()[1:3]) for statement in schema_of(genesis)):
        if name not in held:
            yield f"{name} is missing"
    for (verdict,) in connection.execute("PRAGMA integrity_check(100)"):
        if verdict != b"ok":
            yield " ".join(verdict.decode(errors="replace").split())


def broken_head(connection: sqlite3.Connection, genesis: Genesis) -> Iterator[str]:
    """Why the chain cannot continue from the highest block; nothing if it can."""
    with snapshot(connection):
        fault = fault_of_head(connection, genesis)
    if fault:
        yield f"the chain cannot continue from its head: {fault}"


def damaged_rows(folder: Path, connection: sqlite3.Connection, genesis: Genesis) -> Iterator[DamagedRow]:
    """Read all rows and files; yield the rows that are not as they were written, or whose files are not."""
    for table in tables_of(genesis):
        for number, *row in connection.execute(f"SELECT rowid, {table.names} FROM {table.name}"):
            try:
                _read(connection, table, tuple(row), genesis)
            except StoreCorrupt as error:
                yield DamagedRow(str(error), table.name, number)
    for number, content_hash, size, data in connection.execute("SELECT sequence, hash, size, data FROM contents"):
        try:
            _read_content(folder, content_hash, size, data)
        except StoreCorrupt as error:
            is_file = data is None and isinstance(content_hash, bytes) and len(content_hash) == HASH_SIZE
            yield DamagedRow(str(error), "contents", number, content_hash if is_file else None)


def _read(connection: sqlite3.Connection, table: Table, row: tuple[Any, ...], genesis: Genesis) -> None:
    """Raises StoreCorrupt if a row is not as it was written, or if its columns do not fit its record or its block."""
    if table in RECORD_TABLES:
        from_row(table, row)
        return
    values = table.read(row)
    if table is STATES:
        try:
            height = decode_state(genesis, values[1]).height + 1
        except InvalidEncoding as error:
            raise StoreCorrupt(f"{table.describe(row)}: {error}") from None
        if height != values[0]:
            raise StoreCorrupt(f"{table.describe(row)} holds the state before height {height}")
        if state_root_at(connection, height) not in (None, sha256(values[1])):
            raise StoreCorrupt(f"{table.describe(row)} is not the state that its block stands on")


def _read_content(folder: Path, content_hash: object, size: object, data: object) -> None:
    """Raises StoreCorrupt if a row, or the file that it stands for, does not hold the content with its hash."""
    if not isinstance(content_hash, bytes) or not isinstance(size, int) or not isinstance(data, bytes | None):
        raise StoreCorrupt(f"content row {content_hash!r:.40} is not one")
    name = content_hash.hex()
    if len(content_hash) != HASH_SIZE or size < 0:
        raise StoreCorrupt(f"content row {name:.40} has a hash of {len(content_hash)} bytes, and size {size}")
    if data is None and size <= ROW_SIZE_MAX:
        raise StoreCorrupt(f"content {name} was altered: its {size} bytes are not in its row")
    if data is None:
        read_content(folder, content_hash, size)
    elif (sha256(data), len(data)) != (content_hash, size):
        raise StoreCorrupt(f"content {name} was altered")
