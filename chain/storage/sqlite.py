"""The storage on disk: a folder whose database holds all records but large contents.

The folder contains::

    chain.sqlite                 SQLite in WAL mode, synchronous=FULL: a commit has reached the disk
    contents/ab/abcd…            contents too large for a row, under the hexadecimal of their SHA-256
    lock                         held by the one process that writes

A damaged record or content is logged once and counts as not held, so that it is fetched again and replaced.
"""

import logging
import os
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self, assert_never

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.chain.exceptions import NotFound, StoreCorrupt, StoreError
from fedchain.chain.genesis import Genesis
from fedchain.chain.post import Post
from fedchain.chain.state import State
from fedchain.chain.storage.content_files import make_folder, take_lock
from fedchain.chain.storage.contents import ROW_SIZE_MAX, Contents
from fedchain.chain.storage.damage import count_rows, find_damage
from fedchain.chain.storage.database import (
    DATABASE,
    PAGE_SIZE,
    STORE_VERSION,
    build_database,
    connect,
    disk_errors,
    read_genesis,
    repair_hint,
    snapshot,
    take_place,
    transaction,
)
from fedchain.chain.storage.recovery import (
    STATE_INTERVAL,
    find_base,
    head_height,
    read_head,
    recover,
    state_before,
    stored_state,
)
from fedchain.chain.storage.rows import (
    CANDIDATES,
    FINALS,
    POSTS,
    STATES,
    VOTES,
    Key,
    RowRecord,
    Table,
    from_row,
    to_row,
)
from fedchain.chain.storage.store import Candidate, Content, Final, Record
from fedchain.chain.vote import Vote
from fedchain.crypto.durable import sync_folder
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey

__all__ = ["DATABASE", "ROW_SIZE_MAX", "STORE_VERSION", "Store"]

log = logging.getLogger("fedchain.store")


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
        self._contents = Contents(folder, reader, self._writer)
        self._base = 1  # a read-only store looks it up each time: the writer goes on
        self._damaged: set[Key] = set()  # rows that count as not held until they are written again
        if writer is not None:
            self._recover()

    @classmethod
    def create(cls, folder: Path, genesis: Genesis) -> Self:
        """Make ``folder`` if needed and begin a chain in it.

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
        return cls.open(folder, genesis)

    @classmethod
    def open(cls, folder: Path, genesis: Genesis | None = None, *, read_only: bool = False) -> Self:
        """Open the chain in ``folder``; if ``genesis`` is given, it must be the chain that this document founded.

        A chain that is opened to write is first made one that can be continued: see
        :mod:`fedchain.chain.storage.recovery`.

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
            reader = connect(folder / DATABASE, read_only=read_only)
            undo.callback(reader.close)
            found = read_genesis(folder, reader, genesis)
            if not read_only:
                writer = connect(folder / DATABASE, read_only=False)
                undo.callback(writer.close)
                writer.execute("PRAGMA temp_store = MEMORY")
            store = cls(folder, reader, writer, found, lock)
            undo.pop_all()
            return store

    def append(self, records: Sequence[Record]) -> None:
        """See :class:`Storage`."""
        contents = [record for record in records if isinstance(record, Content)]
        with disk_errors(self.folder):
            lost = self._contents.delete_damaged_files()
            self._contents.write_files(contents)
            base, damaged = self._base, [key for key in tuple(self._damaged) if key[0] == FINALS.name]
            with transaction(self._writer):
                for _, height in damaged:  # then the next start sees the hole without reading the block
                    self._writer.execute("DELETE FROM finals WHERE height = ?", (height,))
                    base = max(base, height + 1)
                self._contents.delete_damaged_rows(lost)
                self._contents.insert(contents)
                for record in records:
                    base = self._insert(record, base)
                if damaged or any(isinstance(record, Final) for record in records):
                    base = find_base(self._writer, min(base, head_height(self._writer)))
            self._base = base
            self._damaged.difference_update(damaged)
            self._contents.mend(lost)
            self._forget_damage(records)

    def head(self) -> Final | None:
        """See :class:`Storage`."""
        with disk_errors(self.folder):
            try:
                with snapshot(self._reader):
                    return read_head(self._reader)
            except StoreCorrupt as error:  # a reader cannot mend it
                place = self.folder / DATABASE
                raise StoreCorrupt(f"{place}: {error}; start the node, or {repair_hint(self.folder)}") from None

    def height(self) -> int:
        """Height of the head, damaged or not; 0 if there is none."""
        with disk_errors(self.folder):
            return head_height(self._reader)

    def base(self) -> int:
        """See :class:`Storage`."""
        base = self._base
        if self._reader is self._writer:
            with disk_errors(self.folder):
                base = find_base(self._reader, head_height(self._reader))
        return max([base, *(int(key) + 1 for table, key, *_ in tuple(self._damaged) if table == FINALS.name)])

    def final(self, height: int) -> tuple[Block, Certificate] | None:
        """See :class:`Storage`."""
        found: Iterator[Final] = self._read(
            FINALS, "WHERE height = ? AND height <= (SELECT max(height) FROM states)", height
        )
        return next(((record.block, record.certificate) for record in found), None)

    def candidates(self) -> Iterator[Block]:
        """See :class:`Storage`."""
        where = "WHERE height > (SELECT coalesce(max(height), 0) FROM states) ORDER BY sequence"
        found: Iterator[Candidate] = self._read(CANDIDATES, where)
        return (candidate.block for candidate in found)

    def own_candidates(self, first: int = 0, last: int = 2**63 - 1) -> Iterator[Block]:
        """Blocks that this node mined between two heights, by default all, final or not."""
        where = "WHERE is_own = 1 AND height BETWEEN ? AND ? ORDER BY sequence"
        found: Iterator[Candidate] = self._read(CANDIDATES, where, first, last)
        return (candidate.block for candidate in found)

    def votes(self, height: int) -> Iterator[Vote]:
        """See :class:`Storage`."""
        return self._read(VOTES, "WHERE height = ? ORDER BY attempt, kind, sequence", height)

    def posts(self, round_number: int) -> Iterator[Post]:
        """See :class:`Storage`."""
        return self._read(POSTS, "WHERE round >= ? ORDER BY sequence", round_number)

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
                self._contents.delete_rows(needed)
            self._contents.delete_files(needed)

    def size_bytes(self) -> int:
        """See :class:`Storage`."""
        with disk_errors(self.folder):
            (pages,) = self._reader.execute("PRAGMA page_count").fetchone()
            return int(pages) * PAGE_SIZE + self._contents.file_bytes()

    # Questions that people ask; a node does not need the answers.

    def changes(self) -> int:
        """A number that changes when another process has written here; it is found without reading a row."""
        with disk_errors(self.folder):
            (number,) = self._reader.execute("PRAGMA data_version").fetchone()
            return int(number)

    def owner(self) -> PublicKey | None:
        """The member whose node keeps its records here, found by its own posts; None if it has none."""
        with disk_errors(self.folder):
            row = self._reader.execute("SELECT sender FROM posts ORDER BY sequence LIMIT 1").fetchone()
            return row[0] if row is not None and isinstance(row[0], bytes) else None

    def totals(self, first: int, last: int) -> tuple[int, int]:
        """Posts in the final blocks between two heights, and the bytes of their payloads."""
        sums = "coalesce(sum(posts), 0), coalesce(sum(payload_bytes), 0)"
        ((posts, payload_bytes),) = self._outline(sums, "height BETWEEN ? AND ?", first, last)
        return posts, payload_bytes

    def hashes(
        self, first: int, last: int, between: tuple[bytes, bytes] = (b"", b"\xff" * 33)
    ) -> Iterator[tuple[Hash, int]]:
        """Hashes and heights of the final blocks between two heights whose hash is ``between`` two; by default any."""
        return self._outline("hash, height", "height BETWEEN ? AND ? AND hash BETWEEN ? AND ?", first, last, *between)

    def heights_of_round(self, round_number: int) -> tuple[int, ...]:
        """Heights of the final blocks of a round."""
        if not 0 <= round_number < 2**63:  # SQLite's integers end there
            return ()
        return tuple(height for (height,) in self._outline("height", "round = ?", round_number))

    def heights_of_crimes(self) -> tuple[int, ...]:
        """Heights of the final blocks that convict a member."""
        return tuple(height for (height,) in self._outline("height", "crimes > ?", 0))

    def encoded(self, height: int) -> tuple[bytes, bytes] | None:
        """The final block at ``height`` and its certificate as stored bytes, for callers that need little of them."""
        with disk_errors(self.folder):
            row = self._reader.execute(f"{FINALS.select} WHERE height = ?", (height,)).fetchone()
            try:
                return None if row is None else FINALS.read(row)[-2:]
            except StoreCorrupt as error:
                self._report(FINALS.key(row), error)
                return None

    def state_before(self, height: int) -> State | None:
        """The state that the block at ``height`` stands on; None if no stored one leads there."""
        with disk_errors(self.folder):
            return state_before(self._reader, self.genesis, height)

    def stored_state(self, height: int) -> State | None:
        """The same, but None if it was not kept and would have to be computed."""
        with disk_errors(self.folder):
            return stored_state(self._reader, self.genesis, height)

    def counts(self) -> tuple[int, int]:
        """Numbers of records and of contents that :meth:`damage` reads."""
        with disk_errors(self.folder):
            return count_rows(self._reader)

    def damage(self) -> Iterator[str]:
        """Read everything in the folder, and describe each part that is not as it was written."""
        with disk_errors(self.folder):
            yield from find_damage(self.folder, self._reader, self.genesis)

    def close(self) -> None:
        """Release the files and the lock; closing twice is harmless."""
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

    def _recover(self) -> None:
        """Step back to a block that the chain can continue from, and log the steps."""
        for line in recover(self._writer, self.genesis):
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
            case Vote() | Post():
                self._insert_row(record)
            case Content():
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

    def _read(self, table: Table, where: str, *parameters: int) -> Iterator[Any]:
        """The records in rows; those that are damaged are reported and left out."""
        found = []
        with disk_errors(self.folder):
            for row in self._reader.execute(f"{table.select} {where}", parameters).fetchall():
                try:
                    found.append(from_row(table, row))
                except StoreCorrupt as error:
                    self._report(table.key(row), error)
        return iter(found)

    def _outline(self, columns: str, where: str, *parameters: int | bytes) -> Iterator[Any]:
        """Columns of final blocks from their index, which is small: the blocks themselves are not read."""
        with disk_errors(self.folder):
            query = f"SELECT {columns} FROM finals INDEXED BY outline WHERE {where} ORDER BY height"
            yield from self._reader.execute(query, parameters)

    def _forget_damage(self, records: Sequence[Record]) -> None:
        """Forget the damage to records that were written again."""
        for record in records:
            if not isinstance(record, Content) and self._damaged:
                table, values = to_row(record)
                self._damaged.discard(table.key(values))

    def _report(self, key: Key, error: StoreCorrupt) -> None:
        if key not in self._damaged:
            self._damaged.add(key)
            log.warning("%s: %s; it counts as not held", self.folder, error)
