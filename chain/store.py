"""What a node keeps across restarts: blocks, votes, its own posts, and content-addressed bytes.

Everything else, the tree, the head and the knowledge, follows from these records. ``MemoryStore`` serves simulated
peers and survives their simulated crashes; ``Store`` is a folder on disk::

    chain.sqlite                 SQLite in WAL mode, synchronous=FULL: a commit has reached the disk
    contents/ab/abcd…            contents too large for a row, under the hexadecimal of their SHA-256
    lock                         held by the one process that writes
"""

import fcntl
import os
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from fedchain.chain.block import Block
from fedchain.chain.difficulty import is_canonical_bits
from fedchain.chain.encoding import decode, encode
from fedchain.chain.exceptions import (
    InvalidEncoding,
    InvalidGenesis,
    LimitReached,
    NotFound,
    StoreCorrupt,
    StoreError,
    StoreMismatch,
)
from fedchain.chain.fork_choice import BlockTree
from fedchain.chain.genesis import Genesis
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

DATABASE, CONTENTS, LOCK = "chain.sqlite", "contents", "lock"


@dataclass(frozen=True, slots=True)
class Content:
    """A payload or knowledge, kept under its hash."""

    hash: Hash
    """32 bytes: SHA-256 of ``data``."""
    data: bytes = field(repr=False)
    """The bytes themselves."""


Record = Block | Vote | Transaction | Content
"""What can be appended. A ``Transaction`` is the node's own post: after a crash the same bytes are sent again."""


class Storage(Protocol):
    """Where a node persists. It does not judge validity: what is appended must have been validated."""

    def append(self, records: Sequence[Record]) -> None:
        """Keep all of ``records`` or none; they are durable on return. A known record changes nothing.

        Raises StoreError if the disk refuses.
        """

    def records(self) -> Iterator[Block | Vote | Transaction]:
        """Blocks by height, so that parents come before their children; then votes, then own posts.

        Raises StoreCorrupt at the first record that is not what was appended.
        """

    def content(self, content_hash: Hash) -> bytes | None:
        """Bytes by their hash, None where they are not held. Raises StoreCorrupt if they were altered."""


def load_tree(genesis: Genesis, records: Iterable[Record]) -> BlockTree:
    """The tree that a node had when it appended the last of its stored ``records``. Nothing is validated again.

    Raises:
        StoreCorrupt: a record cannot be read, or a block has no parent.
    """
    blocks, votes = [], defaultdict[Hash, list[Vote]](list)
    for record in records:
        if isinstance(record, Block):
            blocks.append(record)
        elif isinstance(record, Vote):
            votes[record.block_hash].append(record)
    tree, stored = BlockTree(genesis), {genesis.chain_id, *(block.hash for block in blocks)}
    for block in blocks:
        header = block.header
        # A difficulty that no target has could cost any amount of memory to expand.
        if header.parent_hash not in stored or not is_canonical_bits(header.bits):
            parent, bits = header.parent_hash.hex(), f"{header.bits:#x}"
            raise StoreCorrupt(f"block {block.hash.hex()} follows nothing: parent {parent}, bits {bits}")
        # The tree forgets unaccepted blocks beyond its limits; the disk does not.
        if header.parent_hash not in tree:
            continue
        try:
            tree.add_block(block)
        except LimitReached:
            continue
        # Votes at once: an accepted block no longer counts against the bound on its unaccepted siblings.
        for vote in votes[block.hash]:
            tree.add_vote(vote)
    return tree


class MemoryStore:
    """A storage without a disk. It survives a simulated crash because it outlives the node."""

    def __init__(self) -> None:
        self._blocks: dict[Hash, Block] = {}
        self._votes: dict[Hash, Vote] = {}
        self._posts: dict[Hash, Transaction] = {}
        self._contents: dict[Hash, bytes] = {}

    def append(self, records: Sequence[Record]) -> None:
        """See :class:`Storage`."""
        for record in records:
            if isinstance(record, Block):
                self._blocks.setdefault(record.hash, record)
            elif isinstance(record, Vote):
                self._votes.setdefault(record.hash, record)
            elif isinstance(record, Transaction):
                self._posts.setdefault(record.hash, record)
            else:
                self._contents.setdefault(record.hash, record.data)

    def records(self) -> Iterator[Block | Vote | Transaction]:
        """See :class:`Storage`."""
        yield from sorted(self._blocks.values(), key=lambda block: block.header.height)
        yield from tuple(self._votes.values())
        yield from tuple(self._posts.values())

    def content(self, content_hash: Hash) -> bytes | None:
        """See :class:`Storage`."""
        return self._contents.get(content_hash)


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
    """A folder on disk. One process writes, any number read; a store is used by one thread at a time."""

    def __init__(self, folder: Path, connection: sqlite3.Connection, genesis: Genesis, lock: int | None) -> None:
        """Use :meth:`create` or :meth:`open`."""
        self.folder = folder
        self.genesis = genesis
        """The document that founded the chain in the folder."""
        self._connection = connection
        self._lock = lock

    @classmethod
    def create(cls, folder: Path, genesis: Genesis) -> Self:
        """Make ``folder`` if needed and begin a chain in it.

        Raises:
            StoreError: there is a chain already, another process writes there, or the disk refuses.
        """
        with _disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            lock = _take_lock(folder)
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
            lock = None if read_only else _take_lock(folder)
            connection = None
            try:
                connection = _connect(folder, read_only)
                connection.execute("PRAGMA synchronous = FULL")
                return cls(folder, connection, _read_genesis(folder, connection, genesis), lock)
            except BaseException:
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
                    self._write_file(record)
            with _transaction(self._connection):
                for record in records:
                    self._insert(record)

    def records(self) -> Iterator[Block | Vote | Transaction]:
        """See :class:`Storage`."""
        with _disk_errors(self.folder):
            query = "SELECT kind, hash, checksum, data FROM records WHERE kind > 0 ORDER BY kind, height, sequence"
            for row in self._connection.execute(query):
                yield _read_record(self.folder, row)

    def content(self, content_hash: Hash) -> bytes | None:
        """See :class:`Storage`."""
        with _disk_errors(self.folder):
            query = "SELECT size, data FROM contents WHERE hash = ?"
            row = self._connection.execute(query, (content_hash,)).fetchone()
            if row is None:
                return None
            size, data = _expect_types(self.folder, "content", row, (int, bytes | None))
            place = str(self.folder / DATABASE)
            if data is None:
                path = self._path(content_hash)
                place = f"{path} (delete the file to have it fetched again)"
                try:
                    found = path.stat().st_size
                    data = path.read_bytes() if found == size else b""
                except FileNotFoundError:
                    return None
                if found != size:
                    raise StoreCorrupt(f"content {content_hash.hex()} has {found} bytes, not {size}: {place}")
            if sha256(data) != content_hash:
                raise StoreCorrupt(f"content {content_hash.hex()} hashes to {sha256(data).hex()}: {place}")
            return bytes(data)

    def close(self) -> None:
        """Hand back the files and the lock; closing twice is harmless."""
        self._connection.close()
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
            self._connection.execute("INSERT OR IGNORE INTO contents VALUES (?, ?, ?)", row)
        elif isinstance(record, Block):
            _insert_row(self._connection, _Kind.BLOCK, record.hash, record.encode(), record.header.height)
        else:
            kind = _Kind.VOTE if isinstance(record, Vote) else _Kind.POST
            _insert_row(self._connection, kind, record.hash, encode(record.to_record()))

    def _write_file(self, content: Content) -> None:
        """Let the file appear under its name complete and on disk, or not at all."""
        path, root = self._path(content.hash), self.folder / CONTENTS
        if path.exists() and path.stat().st_size == len(content.data):
            return
        if not path.parent.exists():
            path.parent.mkdir(parents=True)
            _sync_folder(root)
            _sync_folder(self.folder)
        # There is one writer and it writes one file at a time, so one temporary name does and never piles up.
        temporary = root / "incoming"
        with temporary.open("wb") as file:
            file.write(content.data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_folder(path.parent)

    def _path(self, content_hash: Hash) -> Path:
        name = content_hash.hex()
        return self.folder / CONTENTS / name[:2] / name


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
    _sync_folder(folder)
    _sync_folder(folder.parent)


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


def _take_lock(folder: Path) -> int:
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        # The kernel releases it when the process dies, however it dies.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise StoreError(f"{folder} is in use by another process that writes to it") from None
    return descriptor


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
