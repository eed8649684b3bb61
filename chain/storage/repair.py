"""Repair of a folder that does not open: all that is legible and proves itself goes into a new database.

The damaged database is looked at page by page, without trusting SQLite's own structures, and is kept beside the new
one under another name. What is lost of the chain comes again from other members; of what this node signed itself, its
signing journal knows at least the hash.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedchain.chain.block import Block, block_signing_message
from fedchain.chain.exceptions import InvalidEncoding, InvalidGenesis, NotFound, StoreCorrupt, StoreMismatch
from fedchain.chain.genesis import Genesis
from fedchain.chain.post import Post
from fedchain.chain.storage.content_files import content_files, content_path, read_content, take_lock
from fedchain.chain.storage.damage import find_damage
from fedchain.chain.storage.database import (
    COMPANIONS,
    DATABASE,
    REPAIRED,
    build_database,
    connect,
    disk_errors,
    read_genesis,
    transaction,
)
from fedchain.chain.storage.pages import find_rows
from fedchain.chain.storage.recovery import STATE_INTERVAL, find_base, head_height, recover
from fedchain.chain.storage.rows import (
    CANDIDATES,
    FINALS,
    GENESIS,
    POSTS,
    RECORD_TABLES,
    STATES,
    VOTES,
    Table,
    from_row,
)
from fedchain.chain.storage.store import Candidate, Final
from fedchain.chain.vote import Vote
from fedchain.crypto.durable import sync_folder
from fedchain.crypto.hashing import sha256
from fedchain.crypto.keys import is_valid_signature
from fedchain.wording import counted

FAULTS_MAX = 20
"""Faults that are named; the others are counted."""


@dataclass(frozen=True, slots=True)
class Repair:
    """What a repair found and did."""

    folder: Path
    """The chain's folder."""
    faults: tuple[str, ...]
    """What was wrong, at most ``FAULTS_MAX`` of it; empty: nothing was, and nothing was changed."""
    faults_found: int
    """How much was wrong."""
    done: tuple[str, ...] = ()
    """What was done about a chain with gaps."""
    height: int = 0
    """Height of the head; 0: there is none, the node joins from the network."""
    base: int = 1
    """Lowest height from which on every block is there."""
    blocks: int = 0
    """Final blocks that were kept."""
    candidates: int = 0
    """Open candidates, and all of one's own, that were kept."""
    votes: int = 0
    """Own votes that were kept."""
    posts: int = 0
    """Own posts that were kept."""
    contents: int = 0
    """Payloads and knowledge that were kept."""
    kept_as: Path | None = None
    """Where the damaged database lies now."""


def repair(folder: Path, genesis: Genesis | None = None) -> Repair:
    """Check all of the chain in ``folder``, and put it into a new database if anything is wrong with it.

    Args:
        folder: the chain's own folder.
        genesis: what founded the chain; needed only where the folder does not say it any more.

    Raises:
        NotFound: no chain there.
        StoreMismatch: another chain than ``genesis``'s, or one of another version.
        StoreCorrupt: the genesis document is illegible, and none was given.
        StoreError: a node runs there, or the disk refuses.
    """
    with disk_errors(folder):
        if not (folder / DATABASE).exists() and not (folder / REPAIRED).exists():
            raise NotFound(f"{folder} holds no chain: there is no {DATABASE}")
        lock = take_lock(folder)
        try:
            _swap(folder)
            if faults := list(_find_faults(folder, genesis)):
                return _rebuild(folder, genesis, faults)
            return Repair(folder, (), 0)
        finally:
            os.close(lock)


def describe_repair(repair: Repair) -> str:
    """A repair for its operator, several lines."""
    if not repair.faults:
        return f"{repair.folder}: nothing is damaged, nothing was changed"
    more = repair.faults_found - len(repair.faults)
    lines = [
        f"{repair.folder}: {counted(repair.faults_found, 'fault')} found",
        *(f"  {fault}" for fault in repair.faults),
    ]
    lines += [f"  and {more} more"] if more else []
    lines += repair.done
    chain = f"heights {repair.base} to {repair.height}" if repair.height else "no head, the node joins from the network"
    below = repair.blocks - (repair.height - repair.base + 1)
    chain += f", and {below} below" if repair.height and below else ""
    lines.append(
        f"kept: {repair.blocks} final blocks ({chain}), {repair.candidates} candidates, {repair.votes} own votes, "
        f"{repair.posts} own posts, {repair.contents} contents; start the node, it fetches the rest"
    )
    lines.append(f"the damaged database is kept as {repair.kept_as}; delete it when the node has caught up")
    return "\n".join(lines)


# --- what is wrong


def _find_faults(folder: Path, genesis: Genesis | None) -> Iterator[str]:
    """Everything that is wrong with a folder. Raises StoreMismatch if it is another chain's or version's."""
    try:
        with closing(connect(folder / DATABASE, read_only=True)) as connection:
            yield from find_damage(folder, connection, read_genesis(folder, connection, genesis))
    except StoreMismatch:
        raise
    except (sqlite3.DatabaseError, UnicodeDecodeError, StoreCorrupt) as error:
        yield " ".join(str(error).split())


# --- the new database


def _rebuild(folder: Path, genesis: Genesis | None, faults: list[str]) -> Repair:
    found = _find_genesis(folder, genesis)
    fresh = folder / f"{REPAIRED}.new"
    build_database(fresh, found)
    with closing(connect(fresh, read_only=False)) as connection:
        with transaction(connection):
            _fill(connection, folder, found)
        done = recover(connection, found)
        with transaction(connection):
            _drop_obsolete(connection)
        counts = {table.name: _count(connection, table.name) for table in RECORD_TABLES}
        contents, height = _count(connection, "contents"), head_height(connection)
        base = find_base(connection, height)
    sync_folder(folder)
    fresh.replace(folder / REPAIRED)
    sync_folder(folder)
    kept_as = _swap(folder)
    return Repair(
        folder=folder,
        faults=tuple(faults[:FAULTS_MAX]),
        faults_found=len(faults),
        done=tuple(done),
        height=height,
        base=base,
        blocks=counts[FINALS.name],
        candidates=counts[CANDIDATES.name],
        votes=counts[VOTES.name],
        posts=counts[POSTS.name],
        contents=contents,
        kept_as=kept_as,
    )


def _swap(folder: Path) -> Path | None:
    """Let a finished repair take the damaged database's place; where that lies now. After a crash it goes on here."""
    if not (folder / REPAIRED).exists():
        return None
    number = 1
    while (kept_as := folder / f"{DATABASE}.damaged-{number}").exists():
        number += 1
    # The log goes first: SQLite would replay it into the new database.
    for suffix in COMPANIONS:
        if (part := folder / f"{DATABASE}{suffix}").exists():
            part.rename(f"{kept_as}{suffix}")
    if (folder / DATABASE).exists():
        (folder / DATABASE).rename(kept_as)
    sync_folder(folder)
    (folder / REPAIRED).rename(folder / DATABASE)
    sync_folder(folder)
    return kept_as


def _find_genesis(folder: Path, expected: Genesis | None) -> Genesis:
    for row in find_rows(folder / DATABASE):
        try:
            chain_id, data = GENESIS.read(row)
            found = Genesis.decode(data)
        except (StoreCorrupt, InvalidEncoding, InvalidGenesis, ValueError):
            continue
        if found.chain_id == chain_id and expected in (None, found):
            return found
        raise StoreMismatch(f"{folder} holds chain {chain_id.hex()}, not the one of the given genesis document")
    if expected is None:
        raise StoreCorrupt(
            f"{folder / DATABASE}: the genesis document in it is illegible; "
            f"give it: fedchain node repair {folder} --genesis GENESIS"
        )
    return expected


def _fill(connection: sqlite3.Connection, folder: Path, genesis: Genesis) -> None:
    """Put all rows that prove themselves into the new database, own statements in the order of old."""
    ordered: list[tuple[int, Table, tuple[Any, ...]]] = []
    for row in find_rows(folder / DATABASE):
        if (content := _read_content_row(row)) is not None:
            _insert_content(connection, *content)
        elif (proven := _prove(row)) is not None:
            table, values = proven
            if table.is_numbered:
                ordered.append((row[0], table, values))
            else:
                table.insert(connection, values)
    for _, table, values in sorted(ordered, key=lambda item: item[0]):
        table.insert(connection, values)
    for table in RECORD_TABLES:
        row = connection.execute(table.select).fetchone()
        if row is not None and not _belongs(genesis, from_row(table, row)):
            raise StoreMismatch(f"{folder} holds another chain than {genesis.chain_id.hex()} ({genesis.name})")
    for content_hash, size in content_files(folder):
        try:
            read_content(folder, content_hash, size)
        except StoreCorrupt:
            content_path(folder, content_hash).unlink()
        else:
            _insert_content(connection, content_hash, size, None)


def _prove(row: tuple[Any, ...]) -> tuple[Table, tuple[Any, ...]] | None:
    """The table that a row is of, and its columns there; None if it is of none, or was altered."""
    for table in (*RECORD_TABLES, STATES):
        columns = row[1:] if table.is_numbered else row
        if len(columns) == len(table.columns) + 1:
            try:
                return table, table.read(columns)
            except StoreCorrupt:
                continue
    return None


def _belongs(genesis: Genesis, record: Final | Candidate | Vote | Post) -> bool:
    """Whether a record was signed for this chain."""
    if isinstance(record, Vote | Post):
        signer = record.voter if isinstance(record, Vote) else record.sender
        return is_valid_signature(signer, record.signature, record.signing_message(genesis.chain_id))
    block: Block = record.block
    return is_valid_signature(block.header.miner, block.signature, block_signing_message(genesis.chain_id, block.hash))


def _read_content_row(row: tuple[Any, ...]) -> tuple[bytes, int, bytes] | None:
    match row:
        case (int(), bytes(content_hash), int(size), bytes(data)) if sha256(data) == content_hash:
            return content_hash, size, data
    return None


def _insert_content(connection: sqlite3.Connection, content_hash: bytes, size: int, data: bytes | None) -> None:
    connection.execute("INSERT OR IGNORE INTO contents (hash, size, data) VALUES (?, ?, ?)", (content_hash, size, data))


def _drop_obsolete(connection: sqlite3.Connection) -> None:
    """Deleted rows were found, too: drop what an undamaged database would not have kept."""
    head = head_height(connection)
    connection.execute("DELETE FROM candidates WHERE is_own = 0 AND height <= ?", (head,))
    connection.execute(
        "DELETE FROM states WHERE height % ? AND height != ? "
        "AND EXISTS (SELECT 1 FROM finals WHERE finals.height = states.height - 1)",
        (STATE_INTERVAL, head),
    )


def _count(connection: sqlite3.Connection, table: str) -> int:
    (count,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    return int(count)
