"""The full look at a folder that no start takes: every row and every file against what was written."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from fedchain.chain.exceptions import StoreCorrupt
from fedchain.chain.genesis import Genesis
from fedchain.chain.storage.content_files import read_content
from fedchain.chain.storage.database import snapshot
from fedchain.chain.storage.recovery import fault_of_head, head_height
from fedchain.chain.storage.rows import GENESIS, RECORD_TABLES, STATES
from fedchain.crypto.hashing import sha256

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
    with snapshot(connection):  # without any head the node joins anew, whatever blocks lie there
        fault = fault_of_head(connection, genesis) if head_height(connection) > 0 else ""
    if fault:
        yield f"the head cannot be gone on from: {fault}"
    for table in _TABLES:
        for row in connection.execute(table.select):
            try:
                table.read(row)
            except StoreCorrupt as error:
                yield str(error)
    for content_hash, size, data in connection.execute("SELECT hash, size, data FROM contents"):
        if not isinstance(content_hash, bytes) or not isinstance(size, int) or not isinstance(data, bytes | None):
            yield f"content row {content_hash!r:.40} is not one"
        elif data is not None and (sha256(data), len(data)) != (content_hash, size):
            yield f"content {content_hash.hex()} was altered"
        elif data is None:
            try:
                read_content(folder, content_hash, size)
            except StoreCorrupt as error:
                yield str(error)
