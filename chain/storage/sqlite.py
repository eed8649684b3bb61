"""The storage on disk: a folder whose database holds all records but large contents.

What is in the folder::

    chain.sqlite                 SQLite in WAL mode, synchronous=FULL: a commit has reached the disk
    contents/ab/abcd…            contents too large for a row, under the hexadecimal of their SHA-256
    lock                         held by the one process that writes
"""

import os
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from enum import IntEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fedchain.chain.block import Block
from fedchain.chain.encoding import decode, encode
from fedchain.chain.exceptions import (
    InvalidEncoding,
    InvalidGenesis,
    NotFound,
    StoreCorrupt,
    StoreError,
    StoreMismatch,
)
from fedchain.chain.genesis import Genesis
from fedchain.chain.storage.content_files import (
    drop_contents,
    read_content,
    read_content_part,
    sync_folder,
    take_lock,
    write_content,
)
from fedchain.chain.storage.store import Content, Record
from fedchain.chain.transaction import Transaction
from fedchain.chain.vote import Vote
from fedchain.crypto.hashing import Hash, sha256

STORE_VERSION = 1
"""Layout of the folder; SQLite's ``user_version``."""

ROW_SIZE_MAX = 64 * 2**10
"""Contents up to this many bytes live in a row, larger ones in a file.

A row shares the commit's one fsync where a file costs three of its own, and below about 100 kB SQLite reads a row
faster than a file. Larger ones would bloat the database, which the log copies once more.
"""

DATABASE = "chain.sqlite"


class _Kind(IntEnum):
    """Kind of a row; the order in which :meth:`Storage.records` gives them."""

    GENESIS = 0
    BLOCK = 1
    VOTE = 2
    POST = 3


_RECORDS: dict[int, type[Block] | type[Vote] | type[Transaction]] = {
    _Kind.BLOCK: Block,
    _Kind.VOTE: Vote,
    _Kind.POST: Transaction,
}

_SCHEMA = (
    # The checksum covers all of the data: a block's hash does not cover its miner's signature.
    """CREATE TABLE records (
        sequence INTEGER PRIMARY KEY, kind INTEGER NOT NULL, height INTEGER NOT NULL,
        hash BLOB NOT NULL, checksum BLOB NOT NULL, data BLOB NOT NULL, UNIQUE (kind, hash))""",
    "CREATE INDEX records_in_order ON records (kind, height, sequence)",
    # data is NULL where the bytes are in a file
    "CREATE TABLE contents (hash BLOB PRIMARY KEY, size INTEGER NOT NULL, data BLOB) WITHOUT ROWID",
    f"PRAGMA user_version = {STORE_VERSION}",
)


class Store:
    """A folder on disk. One process writes, any number read; in each, one thread writes and one reads at a time."""

    def __init__(
        self,
        folder: Path,
        reader: sqlite3.Connection,
        writer: sqlite3.Connection | None,
        genesis: Genesis,
        lock: int | None,
    ) -> None:
        """Use :meth:`create` or :meth:`open`."""
        self.folder = folder
        self.genesis = genesis
        """The document that founded the chain in the folder."""
        self._reader = reader
        self._writer = reader if writer is None else writer
        self._lock = lock
        self._verified: set[Hash] = set()  # files whose hash was seen to be right, of which parts may be read

    @classmethod
    def create(cls, folder: Path, genesis: Genesis) -> Self:
        """Make ``folder`` if needed and begin a chain in it.

        Raises:
            StoreError: there is a chain already, another process writes there, or the disk refuses.
        """
        with _disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            lock = take_lock(folder)
            try:
                if (folder / DATABASE).exists():
                    raise StoreError(f"{folder} holds a chain already")
                _build(folder, genesis)
            finally:
                os.close(lock)
        return cls.open(folder, genesis)

    @classmethod
    def open(cls, folder: Path, genesis: Genesis | None = None, *, read_only: bool = False) -> Self:
        """Open the chain in ``folder``, and insist that it is ``genesis``'s where one is given.

        Raises:
            NotFound: no chain there.
            StoreMismatch: another chain, or written by another version.
            StoreCorrupt: truncated, tampered with, or not a database.
            StoreError: another process writes there, or the disk refuses.
        """
        with _disk_errors(folder):
            if not (folder / DATABASE).exists():
                raise NotFound(f"{folder} holds no chain: there is no {DATABASE}")
            lock = None if read_only else take_lock(folder)
            reader = writer = None
            try:
                reader = _connect(folder, read_only)
                found = _read_genesis(folder, reader, genesis)
                if not read_only:
                    writer = _connect(folder, read_only)
                    writer.execute("PRAGMA temp_store = MEMORY")
                return cls(folder, reader, writer, found, lock)
            except BaseException:
                for connection in (reader, writer):
                    if connection is not None:
                        connection.close()
                if lock is not None:
                    os.close(lock)
                raise

    def append(self, records: Sequence[Record]) -> None:
        """See :class:`Storage`."""
        with _disk_errors(self.folder):
            for record in records:
                # A crash after this leaves files without a row, which nobody asks for.
                if isinstance(record, Content) and len(record.data) > ROW_SIZE_MAX:
                    write_content(self.folder, record)
            with _transaction(self._writer):
                for record in records:
                    self._insert(record)

    def records(self) -> Iterator[Block | Vote | Transaction]:
        """See :class:`Storage`."""
        with _disk_errors(self.folder):
            query = "SELECT kind, hash, checksum, data FROM records WHERE kind > 0 ORDER BY kind, height, sequence"
            for row in self._reader.execute(query):
                yield _read_record(self.folder, row)

    def content(self, content_hash: Hash) -> bytes | None:
        """See :class:`Storage`."""
        with _disk_errors(self.folder):
            query = "SELECT size, data FROM contents WHERE hash = ?"
            row = self._reader.execute(query, (content_hash,)).fetchone()
            if row is None:
                return None
            size, data = _expect_types(self.folder, "content", row, (int, bytes | None))
            if data is None:
                found = read_content(self.folder, content_hash, size)
                if found is not None:
                    self._verified.add(content_hash)
                return found
            if sha256(data) != content_hash:
                place = self.folder / DATABASE
                raise StoreCorrupt(f"content {content_hash.hex()} hashes to {sha256(data).hex()}: {place}")
            return bytes(data)

    def content_part(self, content_hash: Hash, start: int, size: int) -> bytes | None:
        """See :class:`Storage`. A file is checked whole before its first part is read, and then no more."""
        if content_hash in self._verified:
            with _disk_errors(self.folder):
                return read_content_part(self.folder, content_hash, start, size)
        data = self.content(content_hash)
        return None if data is None else data[start : start + size]

    def retain(self, needed: Collection[Hash]) -> None:
        """See :class:`Storage`. A crash half-way leaves files without a row, which the next call deletes."""
        with _disk_errors(self.folder):
            with _transaction(self._writer):
                self._writer.execute("CREATE TEMP TABLE needed (hash BLOB PRIMARY KEY) WITHOUT ROWID")
                self._writer.executemany("INSERT OR IGNORE INTO needed VALUES (?)", ((item,) for item in needed))
                self._writer.execute("DELETE FROM contents WHERE hash NOT IN (SELECT hash FROM needed)")
                self._writer.execute("DROP TABLE needed")
            drop_contents(self.folder, needed)
            self._verified.intersection_update(needed)

    def close(self) -> None:
        """Hand back the files and the lock; closing twice is harmless."""
        self._reader.close()
        self._writer.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _insert(self, record: Record) -> None:
        if isinstance(record, Content):
            assert sha256(record.data) == record.hash, "content is kept under its own hash"
            size = len(record.data)
            row = (record.hash, size, record.data if size <= ROW_SIZE_MAX else None)
            self._writer.execute("INSERT OR IGNORE INTO contents VALUES (?, ?, ?)", row)
        elif isinstance(record, Block):
            _insert_row(self._writer, _Kind.BLOCK, record.hash, record.encode(), record.header.height)
        else:
            kind = _Kind.VOTE if isinstance(record, Vote) else _Kind.POST
            _insert_row(self._writer, kind, record.hash, encode(record.to_record()))


def _build(folder: Path, genesis: Genesis) -> None:
    """Write the database under another name first: a database without a genesis document is never seen."""
    temporary = folder / f"{DATABASE}.new"
    for leftover in (temporary.name, f"{DATABASE}-wal", f"{DATABASE}-shm"):
        # SQLite would replay a log that an earlier database left behind.
        (folder / leftover).unlink(missing_ok=True)
    with closing(sqlite3.connect(temporary, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        with _transaction(connection):
            for statement in _SCHEMA:
                connection.execute(statement)
            _insert_row(connection, _Kind.GENESIS, genesis.chain_id, genesis.encode())
    temporary.rename(folder / DATABASE)
    sync_folder(folder)
    sync_folder(folder.parent)


def _connect(folder: Path, read_only: bool) -> sqlite3.Connection:
    mode = "mode=rw"
    if read_only:
        # Reading a log needs shared memory beside it. Without a log and without the right to write, nobody writes.
        still = not os.access(folder, os.W_OK) and not (folder / f"{DATABASE}-wal").exists()
        mode = "immutable=1" if still else "mode=ro"
    # One thread at a time, but a shell may hand the slow fsync to any of its worker threads.
    uri = f"{(folder / DATABASE).absolute().as_uri()}?{mode}"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
    # Only a damaged row holds text, and it need not be UTF-8.
    connection.text_factory = bytes
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def _read_genesis(folder: Path, connection: sqlite3.Connection, expected: Genesis | None) -> Genesis:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version != STORE_VERSION:
        raise StoreMismatch(f"{folder} has store version {version}, this program reads version {STORE_VERSION}")
    # Truncation and broken pages show here, not in the middle of a run.
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != b"ok":
        raise StoreCorrupt(f"{folder / DATABASE}: {' '.join(verdict.decode(errors='replace').split())}")
    query = "SELECT hash, checksum, data FROM records WHERE kind = ?"
    row = connection.execute(query, (_Kind.GENESIS,)).fetchone()
    if row is None:
        raise StoreCorrupt(f"{folder / DATABASE}: the genesis document is missing")
    chain_id, checksum, data = _expect_types(folder, "genesis", row, (bytes, bytes, bytes))
    _expect_checksum(folder, "genesis", chain_id, checksum, data)
    try:
        genesis = Genesis.decode(data)
    except (InvalidEncoding, InvalidGenesis) as error:
        # The bytes are as they were written, so another version of the program wrote them.
        raise StoreMismatch(f"{folder}: the genesis document cannot be read by this program: {error}") from None
    if genesis.chain_id != chain_id:
        raise StoreCorrupt(f"{folder / DATABASE}: chain {chain_id.hex()} is stored as {genesis.chain_id.hex()}")
    if expected is not None and genesis.chain_id != expected.chain_id:
        raise StoreMismatch(
            f"{folder} holds chain {genesis.chain_id.hex()} ({genesis.name}), "
            f"not {expected.chain_id.hex()} ({expected.name})"
        )
    return genesis


def _read_record(folder: Path, row: tuple[Any, ...]) -> Block | Vote | Transaction:
    kind, record_hash, checksum, data = _expect_types(folder, "record", row, (int, bytes, bytes, bytes))
    if kind not in _RECORDS:
        raise StoreCorrupt(f"{folder / DATABASE}: record {record_hash.hex()} is of the unknown kind {kind}")
    name = _Kind(kind).name.lower()
    _expect_checksum(folder, name, record_hash, checksum, data)
    try:
        record = _RECORDS[kind].from_record(decode(data, len(data)))
    except InvalidEncoding as error:
        raise StoreCorrupt(f"{folder / DATABASE}: {name} {record_hash.hex()}: {error}") from None
    if record.hash != record_hash:
        raise StoreCorrupt(f"{folder / DATABASE}: {name} {record_hash.hex()} hashes to {record.hash.hex()}")
    return record


def _expect_types(folder: Path, name: str, row: tuple[Any, ...], kinds: tuple[Any, ...]) -> tuple[Any, ...]:
    """SQLite types values, not columns: a flipped bit can turn bytes into a number."""
    for value, kind in zip(row, kinds, strict=True):
        if not isinstance(value, kind):
            raise StoreCorrupt(f"{folder / DATABASE}: {name} row holds {type(value).__name__}, not {kind}")
    return row


def _expect_checksum(folder: Path, name: str, record_hash: Hash, checksum: Hash, data: bytes) -> None:
    found = sha256(data)
    if found != checksum:
        raise StoreCorrupt(
            f"{folder / DATABASE}: {name} {record_hash.hex()} was altered: checksum {found.hex()} found, "
            f"{checksum.hex()} written"
        )


def _insert_row(connection: sqlite3.Connection, kind: _Kind, record_hash: Hash, data: bytes, height: int = 0) -> None:
    connection.execute(
        "INSERT OR IGNORE INTO records (kind, height, hash, checksum, data) VALUES (?, ?, ?, ?, ?)",
        (kind, height, record_hash, sha256(data), data),
    )


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    """Say whether the disk refuses or what is on it is wrong."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise StoreError(f"{folder / DATABASE}: {error}") from None
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        # SQLite quotes what it found, which need not be UTF-8.
        raise StoreCorrupt(f"{folder / DATABASE}: {' '.join(str(error).split())}") from None
    except OSError as error:
        raise StoreError(f"{error.filename or folder}: {error.strerror}") from None
