"""Contents: payloads and knowledge by their hash, small ones in rows and large ones in files."""

import logging
import sqlite3
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from fedchain.chain.exceptions import StoreCorrupt
from fedchain.chain.storage.content_files import (
    content_path,
    drop_contents,
    has_content,
    is_content_whole,
    read_content,
    read_content_part,
    write_content,
)
from fedchain.crypto.hashing import Hash, sha256

log = logging.getLogger("fedchain.store")

ROW_SIZE_MAX = 64 * 2**10
"""Contents up to this many bytes live in a row, larger ones in a file.

A row shares the commit's one fsync, while a file costs three of its own, and below about 100 kB SQLite reads a row
faster than a file. Larger ones would bloat the database, which the log copies once more.
"""


class ContentTable:
    """The contents of a folder. A damaged one is logged once and counts as not held until it is written again."""

    def __init__(
        self, folder: Path, reader: sqlite3.Connection, writer: sqlite3.Connection, *, is_durable: bool
    ) -> None:
        self._folder, self._is_durable = folder, is_durable
        self._reader = reader
        self._writer = writer
        self._damaged: set[Hash] = set()
        self._verified: set[Hash] = set()  # files whose hash was checked; parts of them may be read
        self._file_bytes = 0
        if writer is not reader:
            with suppress(sqlite3.DatabaseError):  # a damaged page keeps no node from starting
                self.count_files()

    def read(self, content_hash: Hash) -> bytes | None:
        """The bytes of a content, checked against the hash; None if it is damaged or not held."""
        row = self._row(content_hash)
        if row is None:
            return None
        try:
            return self._read(content_hash, *row)
        except StoreCorrupt as error:
            self._note_damage(content_hash, error)
            return None

    def read_part(self, content_hash: Hash, start: int, size: int) -> bytes | None:
        """Up to ``size`` bytes from ``start`` on; a file is checked once as a whole, before its first part is read."""
        if content_hash not in self._verified:
            row = self._row(content_hash)
            if row is None:
                return None
            whole_size, data = row
            if data is not None or not isinstance(whole_size, int):
                whole = self.read(content_hash)
                return None if whole is None else whole[start : start + size]
            try:
                if not is_content_whole(self._folder, content_hash, whole_size):
                    return None
            except StoreCorrupt as error:
                self._note_damage(content_hash, error)
                return None
            self._verified.add(content_hash)
        return read_content_part(self._folder, content_hash, start, size)

    def holds(self, content_hash: Hash) -> bool:
        """Whether the bytes are here, as far as can be known without reading them."""
        if content_hash in self._damaged:
            return False
        query = "SELECT size, data IS NULL FROM contents WHERE hash = ?"
        row = self._reader.execute(query, (content_hash,)).fetchone()
        return row is not None and (not row[1] or has_content(self._folder, content_hash, row[0]))

    def file_bytes(self) -> int:
        """Bytes of the contents in files. A writing process keeps count: a node is asked often, and votes wait."""
        if self._reader is self._writer:
            self.count_files()
        return self._file_bytes

    def count_files(self) -> None:
        """Count the bytes of the contents in files anew, in the writing thread: every row is looked at."""
        query = "SELECT coalesce(sum(size), 0) FROM contents WHERE data IS NULL"
        (size,) = self._writer.execute(query).fetchone()
        self._file_bytes = int(size)

    def write_files(self, contents: Mapping[Hash, bytes]) -> None:
        """Write the files before the rows: a crash between the two leaves files without rows, which nobody reads."""
        for content_hash, data in contents.items():
            if len(data) > ROW_SIZE_MAX:
                write_content(self._folder, content_hash, data, is_durable=self._is_durable)

    def delete_damaged_files(self) -> frozenset[Hash]:
        """Delete the files of damaged contents, before their rows; return the hashes of all damaged contents."""
        damaged = frozenset(self._damaged)
        for content_hash in damaged:
            content_path(self._folder, content_hash).unlink(missing_ok=True)
        return damaged

    def delete_damaged_rows(self, damaged: Collection[Hash]) -> None:
        """Delete the rows of ``damaged`` contents, within the caller's transaction.

        The next start then sees that they are missing without reading them.
        """
        self._writer.executemany("DELETE FROM contents WHERE hash = ?", ((item,) for item in damaged))

    def insert(self, contents: Mapping[Hash, bytes]) -> int:
        """Write the rows, within the caller's transaction; returns the bytes of those files that were not known."""
        added, statement = 0, "INSERT OR IGNORE INTO contents (hash, size, data) VALUES (?, ?, ?)"
        for content_hash, data in contents.items():
            assert sha256(data) == content_hash, "content is kept under its own hash"
            size, is_file = len(data), len(data) > ROW_SIZE_MAX
            is_new = self._writer.execute(statement, (content_hash, size, None if is_file else data)).rowcount
            added += size if is_file and is_new else 0
        return added

    def settle(self, damaged: Collection[Hash], added: int) -> None:
        """A transaction is committed: forget the damage to contents whose rows it deleted or replaced.

        Args:
            damaged: their hashes.
            added: bytes of the files for which it wrote rows, less those whose rows it deleted otherwise.
        """
        self._damaged.difference_update(damaged)
        self._file_bytes += added
        if damaged:
            self.count_files()

    def delete_rows(self, needed: Collection[Hash]) -> int:
        """Delete rows that are not ``needed``, within the caller's transaction; returns the bytes of their files.

        One statement for all would read every row with its bytes, while votes wait. Here the index alone is read of
        those that stay.
        """
        size_of = "SELECT coalesce(sum(size), 0) FROM contents WHERE sequence = ? AND data IS NULL"
        kept = frozenset(needed)
        held = self._writer.execute("SELECT sequence, hash FROM contents INDEXED BY sqlite_autoindex_contents_1")
        gone = [(sequence,) for sequence, content_hash in held if content_hash not in kept]
        removed = sum(int(self._writer.execute(size_of, row).fetchone()[0]) for row in gone)
        self._writer.executemany("DELETE FROM contents WHERE sequence = ?", gone)
        return removed

    def delete_files(self, needed: Collection[Hash]) -> None:
        """Delete files that are not ``needed``, after their rows.

        A crash between the two leaves files without a row, which the next call deletes.
        """
        drop_contents(self._folder, needed)
        self._verified.intersection_update(needed)

    def _row(self, content_hash: Hash) -> tuple[object, object] | None:
        """Size and bytes as the row holds them; the bytes are None if they are in a file."""
        if content_hash in self._damaged:
            return None
        query = "SELECT size, data FROM contents WHERE hash = ?"
        row: tuple[object, object] | None = self._reader.execute(query, (content_hash,)).fetchone()
        return row

    def _note_damage(self, content_hash: Hash, error: StoreCorrupt) -> None:
        self._damaged.add(content_hash)
        self._verified.discard(content_hash)
        log.warning("%s: %s; it counts as not held", self._folder, error)

    def _read(self, content_hash: Hash, size: object, data: object) -> bytes | None:
        if not isinstance(size, int) or not isinstance(data, bytes | None):
            raise StoreCorrupt(f"content {content_hash.hex()} has size {size!r} and is {type(data).__name__}")
        if data is None:
            found = read_content(self._folder, content_hash, size, is_verified=content_hash in self._verified)
            if found is not None:
                self._verified.add(content_hash)
            return found
        if sha256(data) != content_hash:
            raise StoreCorrupt(f"content {content_hash.hex()} hashes to {sha256(data).hex()}")
        return data
