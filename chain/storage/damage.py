"""The full look at a folder that no start takes: every row and every file against what was written."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedchain.chain.exceptions import InvalidEncoding, StoreCorrupt
from fedchain.chain.genesis import Genesis
from fedchain.chain.state import decode_state
from fedchain.chain.storage.content_files import read_content
from fedchain.chain.storage.contents import ROW_SIZE_MAX
from fedchain.chain.storage.database import snapshot
from fedchain.chain.storage.recovery import fault_of_head
from fedchain.chain.storage.rows import GENESIS, RECORD_TABLES, STATES, Table, from_row
from fedchain.crypto.hashing import HASH_SIZE, sha256

_TABLES = (GENESIS, *RECORD_TABLES, STATES)
_NAMES = (*(table.name for table in _TABLES), "contents")


def count_rows(connection: sqlite3.Connection) -> tuple[int, int]:
    """How many records, and how many contents, :func:`find_damage` reads."""
    sizes = [connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in _NAMES]
    return sum(sizes[:-1]), sizes[-1]


def find_damage(folder: Path, connection: sqlite3.Connection, genesis: Genesis) -> Iterator[str]:
    """Read all rows and files, and name what is not as it was written."""
    for (verdict,) in connection.execute("PRAGMA integrity_check(100)"):
        if verdict != b"ok":
            yield " ".join(verdict.decode(errors="replace").split())
    with snapshot(connection):
        fault = fault_of_head(connection, genesis)
    if fault:
        yield f"the head cannot be gone on from: {fault}"
    for table in _TABLES:
        for row in connection.execute(table.select):
            try:
                _read(table, row, genesis)
            except StoreCorrupt as error:
                yield str(error)
    for content_hash, size, data in connection.execute("SELECT hash, size, data FROM contents"):
        if not isinstance(content_hash, bytes) or not isinstance(size, int) or not isinstance(data, bytes | None):
            yield f"content row {content_hash!r:.40} is not one"
        elif len(content_hash) != HASH_SIZE or size < 0:
            yield f"content row {content_hash.hex():.40} has a hash of {len(content_hash)} bytes, and size {size}"
        elif data is None and size <= ROW_SIZE_MAX:
            yield f"content {content_hash.hex()} was altered: its {size} bytes are not in its row"
        elif data is not None and (sha256(data), len(data)) != (content_hash, size):
            yield f"content {content_hash.hex()} was altered"
        elif data is None:
            try:
                read_content(folder, content_hash, size)
            except StoreCorrupt as error:
                yield str(error)


def _read(table: Table, row: tuple[Any, ...], genesis: Genesis) -> None:
    """Raises StoreCorrupt where a row is not as it was written, or holds something else than it says."""
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
