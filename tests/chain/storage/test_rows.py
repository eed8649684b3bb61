"""A row whose checksum is right and whose bytes are no record is damage, too."""

from contextlib import closing
from pathlib import Path

from fedchain.chain.encoding import encode
from fedchain.chain.storage.rows import FINALS, to_row
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
