"""A row whose checksum is right and whose bytes are no record is damage, too."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from fedchain.chain.encoding import encode
from fedchain.chain.exceptions import StoreCorrupt
from fedchain.chain.storage.rows import FINALS, LIGHTS, SCHEMA_OF_CHANGES, STATES, to_row
from fedchain.chain.storage.sqlite import Store
from tests.support.chain.builders import ChainBuilder
from tests.support.chain.stored import chain as chain
from tests.support.chain.stored import (
    finals_of,
    recovery_connection,
)
from tests.support.chain.stored import folder as folder


def test_a_row_that_holds_no_block_is_damaged_whatever_its_checksum(folder: Path, chain: ChainBuilder) -> None:
    records = finals_of(chain)
    for height, no_block in ((9, encode([1, 2])), (8, b"\xc1"), (7, encode([[], b"", [], [], []]))):
        values = to_row(records[height - 1])[1]
        with closing(recovery_connection(folder)) as connection:
            FINALS.insert(connection, (*values[:-2], no_block, values[-1]), replace=True)
            connection.execute("DELETE FROM states")
        with Store.open(folder) as store:
            assert store.head() == records[height - 2]
    values = to_row(records[1])[1]
    with closing(recovery_connection(folder)) as connection:
        FINALS.insert(connection, (*values[:-2], records[2].block.encode(), values[-1]), replace=True)
    with Store.open(folder) as store:
        assert store.final(2) is None


def test_a_row_of_one_table_is_damaged_in_another_with_the_same_columns() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        for statement in SCHEMA_OF_CHANGES:
            connection.execute(statement)
        STATES.insert(connection, (7, b"state"))
        connection.execute("INSERT INTO lights SELECT * FROM states")
        (row,) = connection.execute(LIGHTS.select).fetchall()
        assert STATES.read(row) == (7, b"state")
        with pytest.raises(StoreCorrupt, match="lights row with height 7 was altered"):
            LIGHTS.read(row)
