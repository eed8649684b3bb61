"""Records read from a chain's database, for its node and for people.

A damaged record is logged once and counts as not held.
"""

import logging
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.chain.exceptions import StoreCorrupt
from fedchain.chain.genesis import Genesis
from fedchain.chain.light.held import prove_held
from fedchain.chain.light.light_block import LightBlock
from fedchain.chain.membership.change import CHANGES_VERSION
from fedchain.chain.post import Post
from fedchain.chain.state import State
from fedchain.chain.storage.damage import count_rows, find_damage
from fedchain.chain.storage.database import disk_errors, repair_hint, snapshot
from fedchain.chain.storage.recovery import (
    StoredLights,
    head_height,
    read_head,
    state_before,
    stored_state,
    time_before,
)
from fedchain.chain.storage.rows import CANDIDATES, FINALS, LIGHTS, POSTS, VOTES, Key, Table, from_row
from fedchain.chain.storage.store import Candidate, Final
from fedchain.chain.vote import Vote
from fedchain.crypto.hashing import Hash
from fedchain.crypto.keys import PublicKey, is_valid_signature
from fedchain.files.layout import DATABASE

log = logging.getLogger("fedchain.store")


class Records:
    """The records in a database, as one thread reads them.

    Args:
        folder: the chain's.
        genesis: the document that founded it.
        reader: connection to its database.
    """

    def __init__(self, folder: Path, genesis: Genesis, reader: sqlite3.Connection) -> None:
        self.folder, self.genesis, self._reader = folder, genesis, reader
        self._damaged: set[Key] = set()  # rows that count as not held until they are written again

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

    def final(self, height: int) -> tuple[Block, Certificate] | None:
        """See :class:`Storage`."""
        found: Iterator[Final] = self._read(
            FINALS, "WHERE height = ? AND height <= (SELECT max(height) FROM states)", height
        )
        return next(((record.block, record.certificate) for record in found), None)

    def light_below(self, height: int) -> LightBlock | None:
        """See :class:`Storage`."""
        return self._light("height <= ? ORDER BY height DESC", height)

    def light_above(self, height: int) -> LightBlock | None:
        """See :class:`Storage`."""
        return self._light("height > ? ORDER BY height", height)

    def _light(self, where: str, height: int) -> LightBlock | None:
        if self.genesis.version < CHANGES_VERSION:
            return None
        # SQLite's integers end there
        found: Iterator[LightBlock] = self._read(LIGHTS, f"WHERE {where} LIMIT 1", min(height, 2**63 - 1))
        return next(found, None)

    def candidates(self) -> Iterator[Block]:
        """See :class:`Storage`."""
        # Own ones are kept for ever: by its index, those of earlier heights are passed over without being read.
        where = "WHERE is_own IN (0, 1) AND height > (SELECT coalesce(max(height), 0) FROM states) ORDER BY sequence"
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
        # The sign has SQLite sort what it finds; otherwise it would read all own posts, which are in order already.
        return self._read(POSTS, "WHERE round >= ? ORDER BY +sequence", round_number)

    # Questions that people ask; a node does not need the answers.

    def changes(self) -> int:
        """A number that changes when another process has written here; it is found without reading a row."""
        with disk_errors(self.folder):
            (number,) = self._reader.execute("PRAGMA data_version").fetchone()
            return int(number)

    def owner(self) -> PublicKey | None:
        """The member whose node keeps its records here, by the key of its own last post; None if it has none."""
        with disk_errors(self.folder):
            row = self._reader.execute("SELECT sender FROM posts ORDER BY sequence DESC LIMIT 1").fetchone()
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

    def heights_of_crimes(self, first: int, last: int) -> tuple[int, ...]:
        """Heights of the final blocks between two heights that prove a crime, each as often as it proves one."""
        found = self._outline("height, crimes", "crimes > 0 AND height BETWEEN ? AND ?", first, last)
        return tuple(height for height, crimes in found for _ in range(crimes))

    def parent_hash(self, height: int) -> Hash | None:
        """The hash that the final block at ``height`` names as its parent's; None if the block is not held."""
        return next((found for (found,) in self._outline("parent_hash", "height = ?", height)), None)

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

    def time_before(self, height: int) -> int | None:
        """Time of the block before the one at ``height``, in milliseconds; None if no stored state leads there."""
        with disk_errors(self.folder):
            return time_before(self._reader, self.genesis, height)

    def stored_state(self, height: int) -> State | None:
        """The same, but None if it was not kept and would have to be computed."""
        with disk_errors(self.folder):
            return stored_state(self._reader, self.genesis, height)

    def path_certificates(self, height: int) -> int:
        """Certificates by which a final block is verified from the founding document on, where members change.

        Raises Refused: it is not proven by what is held.
        """
        if height == 0 or self.genesis.version < CHANGES_VERSION:
            return 0
        with disk_errors(self.folder):
            look = StoredLights(self._reader, self.genesis).look
            return len(prove_held(self.genesis, height, look, is_valid_signature).path)

    def counts(self) -> tuple[int, int]:
        """Numbers of records and of contents that :meth:`damage` reads."""
        with disk_errors(self.folder):
            return count_rows(self._reader, self.genesis)

    def damage(self) -> Iterator[str]:
        """Read everything in the folder, and describe each part that is not as it was written."""
        with disk_errors(self.folder):
            yield from find_damage(self.folder, self._reader, self.genesis)

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

    def _report(self, key: Key, error: StoreCorrupt) -> None:
        if key not in self._damaged:
            self._damaged.add(key)
            log.warning("%s: %s; it counts as not held", self.folder, error)
