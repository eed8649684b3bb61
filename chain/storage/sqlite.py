"""The storage on disk: a folder whose database holds all records but large contents.

The folder contains::

    chain.sqlite                 SQLite in WAL mode, synchronous=FULL: a commit has reached the disk
    contents/ab/abcd…            contents too large for a row, under the hexadecimal of their SHA-256
    contents/spool               contents that are put together, until they are whole and appended
    lock                         held by the one process that writes

A damaged record or content counts as not held, so that it is fetched again and replaced.
"""

import logging
import os
import sqlite3
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self, assert_never

from fedchain.chain.exceptions import NotFound, StoreError, StoreMismatch
from fedchain.chain.genesis import Genesis
from fedchain.chain.light.light_block import LightBlock
from fedchain.chain.post import Post
from fedchain.chain.storage.content_files import make_folder, spool_path, take_lock
from fedchain.chain.storage.contents import ContentTable
from fedchain.chain.storage.database import (
    LOG_SIZE_MAX,
    PAGE_SIZE,
    Stillness,
    build_database,
    connect,
    disk_errors,
    read_genesis,
    snapshot,
    stillness,
    take_place,
    transaction,
)
from fedchain.chain.storage.records import Records
from fedchain.chain.storage.recovery import STATE_INTERVAL, Linked, find_base, find_linked, head_height, recover
from fedchain.chain.storage.rows import FINALS, STATES, RowRecord, to_row
from fedchain.chain.storage.store import Candidate, Contents, Final, Record
from fedchain.chain.vote import Vote
from fedchain.crypto.durable import sync_file_system, sync_folder
from fedchain.crypto.hashing import Hash
from fedchain.files.layout import DATABASE
from fedchain.files.spool import SpoolFolder, Spools

log = logging.getLogger("fedchain.store")


class Store(Records):
    """A folder on disk. One process writes, any number read; in each, one thread writes and one reads at a time."""

    def __init__(
        self,
        folder: Path,
        reader: sqlite3.Connection,
        writer: sqlite3.Connection | None,
        genesis: Genesis,
        lock: int | None,
        *,
        is_durable: bool = True,
    ) -> None:
        """Use :meth:`create` or :meth:`open`."""
        super().__init__(folder, genesis, reader)
        self._writer = reader if writer is None else writer
        self._lock = lock
        self._is_durable = is_durable
        self._still: Stillness | None = None
        self._contents = ContentTable(folder, reader, self._writer, is_durable=is_durable)
        self._spools = SpoolFolder(spool_path(folder))
        self._base = 1  # a read-only store looks it up each time: the writer goes on
        self._linked: Linked | None = None  # what it found there last
        if writer is not None:
            self._recover()

    @classmethod
    def create(cls, folder: Path, genesis: Genesis, *, is_durable: bool = True) -> Self:
        """Make ``folder`` if needed and begin a chain in it. For ``is_durable`` see :meth:`open`.

        Raises:
            StoreError: there is a chain already, another process writes there, or the disk refuses.
        """
        with disk_errors(folder):
            make_folder(folder)
            lock = take_lock(folder)
            try:
                if (folder / DATABASE).exists():
                    raise StoreError(f"{folder} holds a chain already")
                build_database(folder / f"{DATABASE}.new", genesis)
                take_place(folder / f"{DATABASE}.new", folder)
                sync_folder(folder.parent)
            finally:
                os.close(lock)
        return cls.open(folder, genesis, is_durable=is_durable)

    @classmethod
    def open(
        cls, folder: Path, genesis: Genesis | None = None, *, read_only: bool = False, is_durable: bool = True
    ) -> Self:
        """Open the chain in ``folder``; if ``genesis`` is given, it must be the chain that this document founded.

        A chain that is opened to write is first made one that can be continued: see
        :mod:`fedchain.chain.storage.recovery`. One that could be made again need not be durable until it is closed:
        nothing waits for the disk before, and what was written may be lost with the machine's power, though not with
        the process.

        Raises:
            NotFound: no chain there.
            StoreMismatch: another chain, or written by another version.
            StoreCorrupt: truncated, tampered with, or not a database; the message names the command that repairs it.
            StoreError: another process writes there, or the disk refuses.
        """
        with disk_errors(folder), ExitStack() as undo:
            if not (folder / DATABASE).exists():
                raise NotFound(f"{folder} holds no chain: there is no {DATABASE}")
            lock = writer = None
            if not read_only:
                lock = take_lock(folder)
                undo.callback(os.close, lock)
            still = stillness(folder / DATABASE) if read_only else None
            reader = connect(folder / DATABASE, read_only=read_only, still=still)
            undo.callback(reader.close)
            found = read_genesis(folder, reader, genesis)
            if not read_only:
                SpoolFolder(spool_path(folder)).clear()  # a process that was killed may have left some
                writer = connect(folder / DATABASE, read_only=False)
                undo.callback(writer.close)
                writer.execute("PRAGMA temp_store = MEMORY")
                writer.execute(f"PRAGMA journal_size_limit = {LOG_SIZE_MAX}")
                if not is_durable:
                    writer.execute("PRAGMA synchronous = OFF")
            store = cls(folder, reader, writer, found, lock, is_durable=is_durable)
            store._still = still
            undo.pop_all()
            return store

    @property
    def is_outdated(self) -> bool:
        """Whether somebody writes, or has written, since this was opened to read a folder that is read-only here, and
        that nobody wrote: it sees nothing of that."""
        with disk_errors(self.folder):
            return self._still is not None and self._still != stillness(self.folder / DATABASE)

    @property
    def spools(self) -> Spools:
        """See :class:`Storage`."""
        return self._spools

    def append(self, records: Sequence[Record]) -> None:
        """See :class:`Storage`."""
        contents = dict[Hash, bytes]()
        for record in records:
            if isinstance(record, Contents):
                contents.update(record.by_hash)
        with disk_errors(self.folder):
            lost = self._contents.delete_damaged_files()
            self._contents.write_files(contents)
            base, damaged = self._base, [key for key in tuple(self._damaged) if key[0] == FINALS.name]
            with transaction(self._writer):
                for _, height in damaged:  # then the next start sees the hole without reading the block
                    self._writer.execute("DELETE FROM finals WHERE height = ?", (height,))
                    base = max(base, height + 1)
                self._contents.delete_damaged_rows(lost)
                added = self._contents.insert(contents)
                for record in records:
                    base = self._insert(record, base)
                if damaged or any(isinstance(record, Final) for record in records):
                    base = find_base(self._writer, min(base, head_height(self._writer)))
            self._base = base
            self._damaged.difference_update(damaged)
            self._contents.settle(lost, added)
            self._forget_damage(records)

    def base(self) -> int:
        """See :class:`Storage`."""
        base = self._base
        if self._reader is self._writer:
            with disk_errors(self.folder), snapshot(self._reader):
                self._linked = find_linked(self._reader, self._linked)
            base = self._linked.base
        return max([base, *(int(key) + 1 for table, key, *_ in tuple(self._damaged) if table == FINALS.name)])

    def content(self, content_hash: Hash) -> bytes | None:
        """See :class:`Storage`."""
        with disk_errors(self.folder):
            return self._contents.read(content_hash)

    def holds_content(self, content_hash: Hash) -> bool:
        """See :class:`Storage`."""
        with disk_errors(self.folder):
            return self._contents.holds(content_hash)

    def content_part(self, content_hash: Hash, start: int, size: int) -> bytes | None:
        """See :class:`Storage`."""
        with disk_errors(self.folder):
            return self._contents.read_part(content_hash, start, size)

    def retain(self, needed: Collection[Hash]) -> None:
        """See :class:`Storage`."""
        with disk_errors(self.folder):
            with transaction(self._writer):
                removed = self._contents.delete_rows(needed)
            self._contents.settle((), -removed)  # before files, which the system may refuse to delete
            self._contents.delete_files(needed)

    def size_bytes(self) -> int:
        """See :class:`Storage`."""
        with disk_errors(self.folder):
            (pages,) = self._reader.execute("PRAGMA page_count").fetchone()
            return int(pages) * PAGE_SIZE + self._contents.file_bytes()

    def close(self) -> None:
        """Release the files and the lock; closing twice is harmless. Nothing is left to be made durable."""
        try:
            self._reader.close()
            if not self._is_durable and self._lock is not None:
                self._sync()
        finally:
            self._writer.close()
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None

    def _sync(self) -> None:
        """Bring all to the disk for which nothing waited while it was written."""
        with disk_errors(self.folder):
            sync_file_system(self.folder)
            self._writer.execute("PRAGMA synchronous = FULL")
            self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _recover(self) -> None:
        """Step back to a block that the chain can continue from, and log the steps. Raises StoreMismatch."""
        try:
            done = recover(self._writer, self.genesis)
        except StoreMismatch as error:
            raise StoreMismatch(f"{self.folder}: {error}") from None
        for line in done:
            log.warning("%s: %s", self.folder, line)
        self._base = find_base(self._writer, head_height(self._writer))

    def _insert(self, record: Record, base: int) -> int:
        """Write one record; return the base as far as this record alone moves it."""
        match record:
            case Final():
                return self._insert_final(record, base)
            case Candidate(block, is_own):
                if is_own or block.header.height > head_height(self._writer):
                    self._insert_row(record)
            case Vote() | Post() | LightBlock():
                self._insert_row(record)
            case Contents():
                pass  # all of them were written before
            case _:
                assert_never(record)
        return base

    def _insert_final(self, record: Final, base: int) -> int:
        height, head = record.block.header.height, head_height(self._writer)
        if height <= head:
            self._insert_row(record)
            return base
        # If there was no head, older blocks may lie here; those from this height on are dropped and fetched again.
        self._writer.execute("DELETE FROM finals WHERE height >= ?", (height,))
        self._insert_row(record)
        STATES.insert(self._writer, (height, record.state), replace=True)
        if head % STATE_INTERVAL and not self._is_first_state(head, base):
            self._writer.execute("DELETE FROM states WHERE height = ?", (head,))
        self._writer.execute("DELETE FROM candidates WHERE is_own = 0 AND height <= ?", (height,))
        return base if height == head + 1 and head > 0 else height

    def _is_first_state(self, height: int, base: int) -> bool:
        """Whether no other state of a chain that was joined late leads to the later ones."""
        query = "SELECT 1 FROM states WHERE height >= ? AND height < ?"
        return base > 1 and self._writer.execute(query, (base, height)).fetchone() is None

    def _insert_row(self, record: RowRecord) -> None:
        table, values = to_row(record)
        table.insert(self._writer, values, replace=table.key(values) in self._damaged)

    def _forget_damage(self, records: Sequence[Record]) -> None:
        """Forget the damage to records that were written again."""
        for record in records:
            if not isinstance(record, Contents) and self._damaged:
                table, values = to_row(record)
                self._damaged.discard(table.key(values))
