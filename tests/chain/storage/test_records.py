"""Records as they are read: damaged ones count as not held, and what people ask is answered from an index."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedchain.chain.encoding import encode
from fedchain.chain.exceptions import StoreCorrupt
from fedchain.chain.storage.sqlite import Store
from fedchain.chain.storage.store import Candidate, Final
from tests.support.chain.builders import ChainBuilder
from tests.support.chain.stored import BLOCKS, DAMAGE, execute, finals_of, records_of, warnings
from tests.support.chain.stored import chain as chain
from tests.support.chain.stored import folder as folder


def test_a_damaged_block_counts_as_not_held_until_it_is_fetched_again(
    folder: Path, chain: ChainBuilder, caplog: pytest.LogCaptureFixture
) -> None:
    records = finals_of(chain)
    execute(folder, f"UPDATE finals SET {DAMAGE} WHERE height = 4")
    with Store.open(folder) as store:
        assert (store.base(), warnings(caplog)) == (1, [])
        assert [store.final(4), store.final(4)] == [None, None]
        assert (store.base(), store.head()) == (5, records[-1])
        assert len(warnings(caplog)) == 1
        assert "finals row with height 4 was altered: checksum" in caplog.text
        store.append([replace(records[3], state=b"")])
        assert store.final(4) == (records[3].block, records[3].certificate)
        assert store.base() == 1
    with Store.open(folder) as store:
        assert store.final(4) is not None


@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("votes", "data = substr(data, 1, 8) || x'ff' || substr(data, 10)"),
        ("votes", "attempt = 7"),
        ("votes", "checksum = zeroblob(32)"),
        ("posts", "data = 7"),
        ("posts", "data = 'Ä'"),
        ("posts", "phase = 1"),
        ("candidates", "is_own = 0"),
        ("candidates", "hash = zeroblob(32)"),
    ],
)
def test_a_damaged_statement_is_left_out_and_can_be_written_again(
    folder: Path, chain: ChainBuilder, caplog: pytest.LogCaptureFixture, table: str, change: str
) -> None:
    records = [record for record in records_of(chain) if not isinstance(record, Final)]

    def held(store: Store) -> list[object]:
        return [*store.candidates(), *store.votes(BLOCKS + 1), *store.posts(0)]

    with Store.open(folder) as store:
        before = held(store)
    execute(folder, f"UPDATE {table} SET {change}")
    with Store.open(folder) as store:
        assert len(held(store)) == len(before) - 1
        assert f"{folder}: {table} row with" in warnings(caplog)[0]
        store.append(records)
        assert held(store) == before


def test_a_start_reads_no_own_statement_of_earlier_heights(folder: Path, chain: ChainBuilder) -> None:
    """They are kept for ever, and those of months would take a disk minutes."""
    tip, ran = chain.blocks[chain.tip], list[str]()
    with Store.open(folder) as store:
        store.append([Candidate(record.block, True) for record in finals_of(chain)])
        store.append([post for record in finals_of(chain) for post in record.block.transactions])
        store._reader.set_trace_callback(ran.append)
        assert list(store.candidates()) == [tip]
        assert list(store.posts(tip.header.round))[-1] in tip.transactions
        assert all(vote.block_hash == tip.hash for vote in store.votes(tip.header.height))
        store._reader.set_trace_callback(None)
        steps = [step[3] for statement in ran for step in store._reader.execute(f"EXPLAIN QUERY PLAN {statement}")]
    assert len(ran) == 3
    assert not [step for step in steps if step.startswith(b"SCAN")]


def test_the_index_of_final_blocks_answers_without_the_blocks(folder: Path, chain: ChainBuilder) -> None:
    blocks = [record.block for record in finals_of(chain)]
    execute(folder, f"UPDATE finals SET {DAMAGE}")
    with Store.open(folder, read_only=True) as store:
        assert store.totals(1, BLOCKS)[0] == sum(len(block.transactions) for block in blocks)
        assert list(store.hashes(2, 3)) == [(block.hash, block.header.height) for block in blocks[1:3]]
        assert list(store.hashes(1, BLOCKS, (blocks[4].hash, blocks[4].hash))) == [(blocks[4].hash, 5)]
        closed = blocks[-1].header.round
        assert store.heights_of_round(closed)[-1] == BLOCKS
        assert store.heights_of_round(2**63) == store.heights_of_round(-1) == store.heights_of_crimes(1, BLOCKS) == ()
        assert (store.parent_hash(3), store.parent_hash(BLOCKS + 1)) == (blocks[1].hash, None)


def test_stored_bytes_are_given_if_they_are_as_they_were_written(
    folder: Path, chain: ChainBuilder, caplog: pytest.LogCaptureFixture
) -> None:
    block, certificate = finals_of(chain)[1].block, finals_of(chain)[1].certificate
    execute(folder, f"UPDATE finals SET {DAMAGE} WHERE height = 3")
    with Store.open(folder, read_only=True) as store:
        assert store.encoded(2) == (block.encode(), encode(certificate.to_record()))
        assert [store.encoded(3), store.encoded(3), store.encoded(BLOCKS + 1)] == [None] * 3
    assert len(warnings(caplog)) == 1


def test_a_reader_names_the_command_for_a_head_that_it_cannot_mend(folder: Path) -> None:
    execute(folder, f"UPDATE finals SET {DAMAGE} WHERE height = {BLOCKS}")
    with Store.open(folder, read_only=True) as store:
        assert store.height() == BLOCKS
        with pytest.raises(StoreCorrupt, match="start the node, or run: fedchain node repair"):
            store.head()
