"""The database file: how it is built and opened, which chain it holds, and what its errors mean."""

import os
import shlex
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from fedchain.chain.exceptions import (
    DiskRefused,
    InvalidEncoding,
    InvalidGenesis,
    StoreCorrupt,
    StoreMismatch,
)
from fedchain.chain.genesis import Genesis
from fedchain.chain.storage.content_files import FILE_MODE
from fedchain.chain.storage.rows import GENESIS, SCHEMA_OF_CHANGES, schema_of
from fedchain.crypto.durable import sync_folder
from fedchain.crypto.hashing import sha256
from fedchain.files.layout import DATABASE as DATABASE
from fedchain.wording import printable

STORE_VERSION = 2
"""Layout of the folder; SQLite's ``user_version``."""

PAGE_SIZE = 4096
"""Bytes of a page of the databases that are built here."""

READ_SIZE = 2**20
"""Bytes that are read at a time of a database that may lie on a failing disk."""

LOG_SIZE_MAX = 8 * 2**20
"""Bytes of SQLite's log that are kept, twice as many as it takes before its pages go to the database. While somebody
reads for long, as an audit does, it grows, and it would never shrink."""

COMPANIONS = ("-wal", "-shm")
"""Endings of the files that SQLite keeps beside a database: its log, and shared memory."""

Stillness = tuple[int, int]
"""Bytes of a database that nobody writes, and when it changed, in nanoseconds."""


def modified_s(chain: Path) -> float:
    """When a chain last changed, in Unix seconds. Raises OSError.

    A reader leaves an empty log and shared memory beside the database; this changes the folder, but not the chain.
    """
    path = chain / DATABASE
    log = path.with_name(f"{path.name}-wal")
    files = [path, log] if log.exists() and log.stat().st_size else [path]
    return max(file.stat().st_mtime for file in files)


def repair_hint(folder: Path) -> str:
    """The command that the operator of a damaged folder should run next."""
    return f"run: fedchain node repair {shlex.quote(str(folder))}"


def build_database(path: Path, genesis: Genesis) -> None:
    """Write a database that holds nothing but ``genesis``; an earlier one of this name is deleted."""
    for name in (path.name, *(path.name + suffix for suffix in COMPANIONS)):
        (path.parent / name).unlink(missing_ok=True)
    # SQLite gives its log the mode of the database.
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        with transaction(connection):
            for statement in schema_of(genesis):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {STORE_VERSION}")
            GENESIS.insert(connection, (genesis.chain_id, genesis.encode()))


def take_place(path: Path, folder: Path) -> None:
    """Make the closed database at ``path`` the folder's; a database without a genesis document is never visible.

    SQLite would replay the log of an earlier database into it, so that log is deleted first.
    """
    for suffix in COMPANIONS:
        (folder / f"{DATABASE}{suffix}").unlink(missing_ok=True)
    sync_folder(folder)
    path.replace(folder / DATABASE)
    sync_folder(folder)


def connect(path: Path, *, read_only: bool, still: Stillness | None = None) -> sqlite3.Connection:
    """Open a database; one thread uses a connection at a time. Raises StoreCorrupt: something else has its name.

    Where it is read and :func:`stillness` says that nobody writes it, the connection sees nothing of what is written
    later.
    """
    if path.exists() and not path.is_file():  # SQLite would wait for a pipe for ever, deaf to Ctrl-C
        raise StoreCorrupt(f"{path} is no file; {repair_hint(path.parent)}")
    mode = "mode=rw"
    if read_only:
        # Reading a log needs shared memory beside it, for which a read-only folder has no place.
        mode = "mode=ro" if still is None else "immutable=1"
    # A caller may run the slow fsync in any of its worker threads.
    uri = f"{path.absolute().as_uri()}?{mode}"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
    # Only a damaged row holds text, which need not be UTF-8.
    connection.text_factory = bytes
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def stillness(path: Path) -> Stillness | None:
    """Size and time of change of a database in a read-only folder that nobody writes; None of any other.

    Raises OSError.
    """
    if os.access(path.parent, os.W_OK) or not _is_still(path):
        return None
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def _is_still(path: Path) -> bool:
    """Whether nobody writes a database in a read-only folder: it has no log, or an empty one that a reader left, and no
    shared memory, which it has while somebody has it open."""
    log, memory = (path.with_name(path.name + suffix) for suffix in COMPANIONS)
    try:
        return log.stat().st_size == 0 and not memory.exists()
    except FileNotFoundError:
        return True


def read_genesis(folder: Path, connection: sqlite3.Connection, expected: Genesis | None) -> Genesis:
    """The document in the database. Raises StoreMismatch or StoreCorrupt."""
    _expect_version(folder, connection)
    place = folder / DATABASE
    for fault in foreign_objects(connection, SCHEMA_OF_CHANGES):  # before a table is read, which may be a view
        raise StoreCorrupt(f"{place}: {fault}; {repair_hint(folder)}")
    row = connection.execute(GENESIS.select).fetchone()
    if row is None:
        raise StoreCorrupt(f"{place}: the genesis document is missing; {repair_hint(folder)}")
    try:
        chain_id, data = GENESIS.read(row)
    except StoreCorrupt as error:
        raise StoreCorrupt(f"{place}: {error}; {repair_hint(folder)}") from None
    try:
        genesis = Genesis.decode(data)
    except (InvalidEncoding, InvalidGenesis) as error:
        if isinstance(error, InvalidEncoding) and sha256(data) != chain_id:
            raise StoreCorrupt(f"{place}: genesis row was altered: {error}; {repair_hint(folder)}") from None
        # The bytes are as they were written, so another version of the program wrote them.
        raise StoreMismatch(f"{folder}: the genesis document cannot be read by this program: {error}") from None
    if genesis.chain_id != chain_id:
        raise StoreCorrupt(f"{place}: chain {chain_id.hex()} is stored as {genesis.chain_id.hex()}")
    for fault in foreign_objects(connection, schema_of(genesis)):
        raise StoreCorrupt(f"{place}: {fault}; {repair_hint(folder)}")
    if expected is not None and genesis.chain_id != expected.chain_id:
        raise StoreMismatch(
            f"{folder} holds chain {genesis.chain_id.hex()} ({genesis.name}), "
            f"not {expected.chain_id.hex()} ({expected.name})"
        )
    return genesis


def foreign_objects(connection: sqlite3.Connection, schema: Iterable[str]) -> Iterator[str]:
    """Tables, indexes, triggers and views that are not as a chain's are made, whose statements are ``schema``.

    Checksums say what is in a row. That a height has one row, and that nothing else happens when a row is added, the
    schema alone says; a chain's folder may come from somebody else. A view in a table's place may be a query without
    end, which nothing interrupts.
    """

    def form(statement: str) -> str:  # readers of a row find missing values themselves
        return " ".join(statement.replace(" NOT NULL", "").split())

    ours = set(map(form, schema))
    for row in connection.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL"):
        kind, name, statement = (text.decode(errors="replace") for text in row)
        if form(statement) not in ours:
            yield f"{kind} {printable(name)} is not one of a chain's"


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Write everything inside, or nothing; at the end it is on the disk."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Read the state of one moment inside, even while another process writes."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("COMMIT")


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turn errors into DiskRefused if the disk refuses, or StoreCorrupt if its data are wrong.

    SQLite calls a database malformed, too, of which the disk refuses to read a page.
    """
    try:
        yield
    except sqlite3.OperationalError as error:
        if str(error).startswith("no such "):  # table, column or index
            raise _corrupt(folder, error) from None
        # SQLite's own index of its log is the first file that finds no room, and its words for that are others.
        is_full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_IOERR_SHMSIZE
        raise DiskRefused(f"{folder / DATABASE}: {'database or disk is full' if is_full else error}") from None
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        try:
            _read_all(folder)
        except OSError as refusal:
            raise _refused(folder, refusal) from None
        raise _corrupt(folder, error) from None
    except OSError as error:
        raise _refused(folder, error) from None


def _read_all(folder: Path) -> None:
    """Read the database and its log to their ends; raises OSError where the disk does not give them.

    Where SQLite has a file open, its own descriptor is read: to close another one would let go of its locks.
    """
    for path in (folder / DATABASE, folder / f"{DATABASE}-wal"):
        if not path.is_file():
            continue
        held, offset = _descriptor_of(path), 0
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC) if held is None else held
        try:
            while data := os.pread(descriptor, READ_SIZE, offset):
                offset += len(data)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from None
        finally:
            if held is None:
                os.close(descriptor)


def _descriptor_of(path: Path) -> int | None:
    """A descriptor by which this process has a file open; None if it has not."""
    wanted = path.stat()
    with suppress(FileNotFoundError):  # a system without such a list
        for name in os.listdir("/dev/fd"):
            with suppress(OSError):  # of the list itself, which is closed by now
                if os.path.samestat(os.fstat(int(name)), wanted):
                    return int(name)
    return None


def _refused(folder: Path, error: OSError) -> DiskRefused:
    return DiskRefused(f"{error.filename or folder}: {error.strerror}")


def _corrupt(folder: Path, error: Exception) -> StoreCorrupt:
    # SQLite quotes the data that it found, which may have several lines.
    return StoreCorrupt(f"{folder / DATABASE}: {' '.join(str(error).split())}; {repair_hint(folder)}")


def _expect_version(folder: Path, connection: sqlite3.Connection) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == STORE_VERSION:
        return
    if version == 0:
        raise StoreCorrupt(f"{folder / DATABASE}: nothing is in it; {repair_hint(folder)}")
    found = f"{folder} has store version {version}, this program reads version {STORE_VERSION}"
    if version < STORE_VERSION:
        raise StoreMismatch(
            f"{found}: a chain of an older protocol is not carried over; "
            "found a new federation (fedchain genesis new) and give it an empty folder"
        )
    raise StoreMismatch(f"{found}: a later program wrote it; use that one")
