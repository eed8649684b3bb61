"""Rows of the database: its tables, and the checksum by which every row proves that it is as it was written.

A row's checksum covers its table's name and all of its columns. A block's hash would not do: it covers neither the
miner's signature nor the certificate beside it, and an altered height or round would go unnoticed.
"""

import sqlite3
from dataclasses import dataclass
from typing import Any, assert_never

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.chain.encoding import decode, encode
from fedchain.chain.exceptions import InvalidEncoding, StoreCorrupt
from fedchain.chain.genesis import Genesis
from fedchain.chain.light.light_block import LightBlock
from fedchain.chain.membership.change import CHANGES_VERSION
from fedchain.chain.post import Post
from fedchain.chain.storage.store import Candidate, Final
from fedchain.chain.vote import Vote
from fedchain.crypto.hashing import Hash, sha256

SCHEMA = (
    "CREATE TABLE genesis (chain_id BLOB NOT NULL, data BLOB NOT NULL, checksum BLOB NOT NULL)",
    """CREATE TABLE finals (
        height INTEGER PRIMARY KEY, hash BLOB NOT NULL, parent_hash BLOB NOT NULL, round INTEGER NOT NULL,
        posts INTEGER NOT NULL, payload_bytes INTEGER NOT NULL, crimes INTEGER NOT NULL,
        block BLOB NOT NULL, certificate BLOB NOT NULL, checksum BLOB NOT NULL)""",
    # Questions about the whole chain are answered from this index, without reading a block.
    "CREATE INDEX outline ON finals (height, hash, parent_hash, round, posts, payload_bytes, crimes)",
    "CREATE TABLE states (height INTEGER PRIMARY KEY, data BLOB NOT NULL, checksum BLOB NOT NULL)",
    """CREATE TABLE candidates (
        sequence INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE, height INTEGER NOT NULL, is_own INTEGER NOT NULL,
        data BLOB NOT NULL, checksum BLOB NOT NULL)""",
    "CREATE INDEX candidates_of_others ON candidates (is_own, height)",
    """CREATE TABLE votes (
        sequence INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE, height INTEGER NOT NULL, attempt INTEGER NOT NULL,
        kind INTEGER NOT NULL, data BLOB NOT NULL, checksum BLOB NOT NULL)""",
    "CREATE INDEX votes_in_order ON votes (height, attempt, kind)",
    """CREATE TABLE posts (
        sequence INTEGER PRIMARY KEY, round INTEGER NOT NULL, phase INTEGER NOT NULL, sender BLOB NOT NULL,
        data BLOB NOT NULL, checksum BLOB NOT NULL, UNIQUE (round, phase, sender))""",
    # The hash serves as the row's checksum; data is NULL if the bytes are in a file.
    "CREATE TABLE contents (sequence INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE, size INTEGER NOT NULL, data BLOB)",
)
"""All of it fits on the first page, and an empty database always has its tables on the same pages."""

SCHEMA_OF_CHANGES = (
    *SCHEMA,
    "CREATE TABLE lights (height INTEGER PRIMARY KEY, data BLOB NOT NULL, checksum BLOB NOT NULL)",
)
"""The same where members change: light blocks say who decided."""


Key = tuple[Any, ...]
"""Name of a row: its table, and the columns that are unique there."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table whose rows are checked when they are read."""

    name: str
    """Name of the table, as in the schema."""
    columns: tuple[tuple[str, type], ...]
    """Names and kinds, in the order of the checksum, which follows them."""
    key_size: int = 1
    """Number of leading columns that name a row."""
    is_numbered: bool = True
    """Whether another column, before these, numbers the rows in the order in which they were added."""

    @property
    def select(self) -> str:
        """The beginning of a query for rows that :meth:`read` takes."""
        return f"SELECT {self.names} FROM {self.name}"

    def read(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """The columns of a row, without the checksum. Raises StoreCorrupt if they are not as they were written."""
        *values, checksum = row
        for (name, kind), value in zip(self.columns, values, strict=True):
            # SQLite types values, not columns: a flipped bit can turn bytes into a number.
            if type(value) is not kind:
                raise StoreCorrupt(f"{self.describe(row)}: {name} is {type(value).__name__}, not {kind.__name__}")
        found = self._checksum(values)
        if found != checksum:
            written = checksum.hex() if isinstance(checksum, bytes) else repr(checksum)
            raise StoreCorrupt(f"{self.describe(row)} was altered: checksum {found.hex()} found, {written} written")
        return tuple(values)

    def insert(self, connection: sqlite3.Connection, values: tuple[Any, ...], *, replace: bool = False) -> None:
        """Add a row; one with the same key stays as it is unless it is to be replaced."""
        marks = ", ".join("?" * (len(values) + 1))
        verb = "REPLACE" if replace else "IGNORE"
        statement = f"INSERT OR {verb} INTO {self.name} ({self.names}) VALUES ({marks})"
        connection.execute(statement, (*values, self._checksum(values)))

    def key(self, values: tuple[Any, ...]) -> Key:
        """The key that names a row among those of all tables."""
        return self.name, *values[: self.key_size]

    def describe(self, row: tuple[Any, ...]) -> str:
        """Description of the row for people: its table and its first column."""
        (name, _), key = self.columns[0], row[0]
        return f"{self.name} row with {name} {key.hex() if isinstance(key, bytes) else key}"

    @property
    def names(self) -> str:
        """Names of the columns, as a query lists them; the checksum comes last."""
        return ", ".join([*(name for name, _ in self.columns), "checksum"])

    def _checksum(self, values: list[Any] | tuple[Any, ...]) -> Hash:
        return sha256(encode([self.name, *values]))


GENESIS = Table("genesis", (("chain_id", bytes), ("data", bytes)), is_numbered=False)
FINALS = Table(
    "finals",
    (
        ("height", int),
        ("hash", bytes),
        ("parent_hash", bytes),
        ("round", int),
        ("posts", int),
        ("payload_bytes", int),
        ("crimes", int),
        ("block", bytes),
        ("certificate", bytes),
    ),
    is_numbered=False,
)
STATES = Table("states", (("height", int), ("data", bytes)), is_numbered=False)
CANDIDATES = Table("candidates", (("hash", bytes), ("height", int), ("is_own", int), ("data", bytes)))
VOTES = Table("votes", (("hash", bytes), ("height", int), ("attempt", int), ("kind", int), ("data", bytes)))
POSTS = Table("posts", (("round", int), ("phase", int), ("sender", bytes), ("data", bytes)), key_size=3)
LIGHTS = Table("lights", (("height", int), ("data", bytes)), is_numbered=False)

RECORD_TABLES = (FINALS, CANDIDATES, VOTES, POSTS, LIGHTS)
"""Tables whose rows :func:`from_row` turns into records."""

RowRecord = Final | Candidate | Vote | Post | LightBlock
"""A record that lives in a row of its own table; contents may live in a file."""


def schema_of(genesis: Genesis) -> tuple[str, ...]:
    """The statements that make the tables of a chain."""
    return SCHEMA_OF_CHANGES if genesis.version >= CHANGES_VERSION else SCHEMA


def tables_of(genesis: Genesis) -> tuple[Table, ...]:
    """The tables of a chain whose rows have checksums."""
    others = (GENESIS, *(table for table in RECORD_TABLES if table is not LIGHTS), STATES)
    return (*others, LIGHTS) if genesis.version >= CHANGES_VERSION else others


def to_row(record: RowRecord) -> tuple[Table, tuple[Any, ...]]:
    """The table of a record, and its columns there; the state of a final block has a table of its own."""
    if isinstance(record, Final):
        data: tuple[bytes, ...] = record.block.encode(), encode(record.certificate.to_record())
    else:
        data = (record.block.encode() if isinstance(record, Candidate) else encode(record.to_record()),)
    table, values = _outline(record)
    return table, (*values, *data)


def from_row(table: Table, row: tuple[Any, ...]) -> Any:
    """The record in a row of one of :data:`RECORD_TABLES`, without its state. Raises StoreCorrupt."""
    values = table.read(row)
    record = _decode(table, values)
    _, expected = _outline(record)
    if values[: len(expected)] != expected:
        raise StoreCorrupt(f"{table.describe(row)} holds another record")
    return record


def _outline(record: RowRecord) -> tuple[Table, tuple[Any, ...]]:
    """The table of a record, and the values that have columns of their own; the encoded record follows them."""
    match record:
        case Final(block):
            header, posts = block.header, block.transactions
            counts = len(posts), sum(post.payload_size for post in posts), len(block.evidence)
            return FINALS, (header.height, block.hash, header.parent_hash, header.round, *counts)
        case Candidate(block, is_own):
            return CANDIDATES, (block.hash, block.header.height, int(is_own))
        case Vote():
            return VOTES, (record.hash, *record.slot)
        case Post():
            return POSTS, record.key
        case LightBlock():
            return LIGHTS, (record.header.height,)
        case _:
            assert_never(record)


def _decode(table: Table, values: tuple[Any, ...]) -> RowRecord:
    data: bytes = values[-1]
    try:
        if table is FINALS:
            block = Block.decode(values[-2], len(values[-2]))
            return Final(block, Certificate.from_record(decode(data, len(data))), b"")
        if table is CANDIDATES:
            return Candidate(Block.decode(data, len(data)), bool(values[-2]))
        if table is LIGHTS:
            return LightBlock.decode(data, len(data))
        kind: type[Vote] | type[Post] = Vote if table is VOTES else Post
        return kind.from_record(decode(data, len(data)))
    except InvalidEncoding as error:
        raise StoreCorrupt(f"{table.describe(values)}: {error}") from None
