"""A start cuts a damaged store back to what is whole."""

import sqlite3
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fedchain.chain.encoding import decode, encode
from fedchain.chain.exceptions import StoreCorrupt, StoreMismatch
from fedchain.chain.membership.amendment import amendment_of
from fedchain.chain.membership.change import propose_amendment
from fedchain.chain.membership.member import Member, Standing
from fedchain.chain.state import decode_state
from fedchain.chain.storage import recovery
from fedchain.chain.storage.database import DATABASE
from fedchain.chain.storage.repair import repair
from fedchain.chain.storage.rows import FINALS, STATES, from_row, to_row
from fedchain.chain.storage.sqlite import Store
from fedchain.chain.storage.store import Final
from fedchain.chain.transition import judge_stored
from fedchain.crypto.keys import is_valid_signature
from tests.support.campaigns import some
from tests.support.chain.builders import ChainBuilder, keys
from tests.support.chain.changes import approved, joining, living
from tests.support.chain.stored import (
    BLOCKS,
    DAMAGE,
    GENESIS,
    execute,
    expect_whole,
    finals_of,
    recovery_connection,
    warnings,
)
from tests.support.chain.stored import chain as chain
from tests.support.chain.stored import folder as folder


def test_a_start_reads_no_block_but_the_head(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = list[tuple[Any, ...]]()

    def count(table: Any, row: tuple[Any, ...], real: Callable[..., Any] = from_row) -> Any:
        read.append(row)
        return real(table, row)

    monkeypatch.setattr(recovery, "from_row", count)
    monkeypatch.setattr(recovery, "_read_block", None)
    with Store.open(folder) as store:
        assert (store.base(), [row[0] for row in read]) == (1, [BLOCKS])


@pytest.mark.parametrize("last", [BLOCKS - 1, BLOCKS - 4])
@pytest.mark.parametrize("statement", [f"UPDATE finals SET {DAMAGE}", "DELETE FROM finals"])
def test_a_damaged_head_is_cut_back_to_the_last_block_that_is_whole(
    folder: Path, chain: ChainBuilder, caplog: pytest.LogCaptureFixture, statement: str, last: int
) -> None:
    execute(folder, f"{statement} WHERE height > ?", last)
    records = finals_of(chain)
    with Store.open(folder, GENESIS) as store:
        assert (store.head(), store.base()) == (records[last - 1], 1)
        assert len(warnings(caplog)) == 1
        store.append(records[last:])
        assert store.head() == records[-1]
        expect_whole(store)
    caplog.clear()
    Store.open(folder).close()
    assert warnings(caplog) == []


def test_the_height_that_was_reached_and_the_one_that_is_left_are_named(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    execute(folder, "DELETE FROM finals WHERE height = ?", BLOCKS - 1)
    execute(folder, "DELETE FROM states")
    Store.open(folder).close()
    message = f"{folder}: block 8 is missing or damaged: cut back from height 9 to 7, the rest is fetched"
    assert warnings(caplog) == [message]
    Store.open(folder).close()
    assert warnings(caplog) == [message], "it is done once"


@pytest.mark.parametrize("statement", ["UPDATE states SET data = x'00'", "DELETE FROM states"])
def test_a_damaged_state_is_computed_again(
    folder: Path, chain: ChainBuilder, caplog: pytest.LogCaptureFixture, statement: str
) -> None:
    execute(folder, statement)
    with Store.open(folder) as store:
        assert (store.head(), store.base()) == (finals_of(chain)[-1], 1)
    assert [f"{folder}: the state before the head at height 9 was damaged and is computed again"] == warnings(caplog)


def test_a_stored_state_of_another_height_leads_nowhere(folder: Path, chain: ChainBuilder) -> None:
    """An audit begins with what it finds under a height, and so it would with a block that stands on such a state."""
    third, fifth = finals_of(chain)[2], finals_of(chain)[4]
    header = replace(third.block.header, state_root=fifth.block.header.state_root)
    with closing(sqlite3.connect(folder / DATABASE)) as connection, connection:
        STATES.insert(connection, (3, fifth.state), replace=True)
        FINALS.insert(connection, to_row(replace(third, block=replace(third.block, header=header)))[1], replace=True)
    with Store.open(folder, read_only=True) as store:  # which drops no block
        assert store.stored_state(3) is None
        assert store.state_before(3) == chain.states[finals_of(chain)[1].block.hash]


def test_a_stored_state_that_its_block_does_not_stand_on_leads_nowhere(folder: Path, chain: ChainBuilder) -> None:
    """Anybody that writes to the disk computes its checksum; explorers show times and members by it."""
    real = chain.states[finals_of(chain)[1].block.hash]
    forged = replace(real, settled_time_ms=real.settled_time_ms + 10**9)
    with Store.open(folder, read_only=True) as store:
        time_ms = store.time_before(3)
    with closing(sqlite3.connect(folder / DATABASE)) as connection, connection:
        STATES.insert(connection, (3, forged.encode()), replace=True)
    with Store.open(folder) as store:
        assert store.stored_state(3) is None
        assert store.state_before(3) == real
        assert store.time_before(3) == time_ms
        assert list(store.damage()) == ["states row with height 3 is not the state that its block stands on"]


def test_a_stored_block_of_many_small_items_is_not_built(folder: Path, chain: ChainBuilder) -> None:
    """A folder may be somebody else's, whose checksums are right; each empty list takes sixty bytes and more."""
    third, count = finals_of(chain)[2], 1_000_000
    row = list(to_row(third)[1])
    parts = [encode(part) for part in third.block.to_record()]
    parts[2] = b"\xdd" + count.to_bytes(4, "big") + b"\x90" * count
    row[-2] = bytes([0x90 + len(parts)]) + b"".join(parts)
    with closing(sqlite3.connect(folder / DATABASE)) as connection, connection:
        FINALS.insert(connection, tuple(row), replace=True)
    with Store.open(folder, read_only=True) as store:
        tracemalloc.start()
        found = store.time_before(4), store.stored_state(3), store.state_before(5)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert found == (None, None, None)
        assert peak < 20 * count


def test_a_state_without_a_block_is_dropped(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    execute(folder, "DELETE FROM finals")
    with Store.open(folder) as store:
        assert (store.head(), store.base()) == (None, 1)
    assert warnings(caplog) == [f"{folder}: a state without a block is dropped"]


def test_a_hole_below_the_head_costs_nothing_but_the_hole(
    folder: Path, chain: ChainBuilder, caplog: pytest.LogCaptureFixture
) -> None:
    records = finals_of(chain)
    execute(folder, "DELETE FROM finals WHERE height = 4")
    with Store.open(folder) as store:
        assert (store.head(), store.base()) == (records[-1], 5)
        expect_whole(store)
        store.append([replace(records[3], state=b"")])
        assert store.base() == 1
        expect_whole(store)
    message = "block 4 is missing: the chain is kept from height 5 on, the rest is fetched again"
    assert warnings(caplog) == [f"{folder}: {message}"]


def test_a_block_that_is_no_parent_is_dropped(
    folder: Path, chain: ChainBuilder, caplog: pytest.LogCaptureFixture
) -> None:
    other = ChainBuilder(GENESIS)
    other.extend_many(3, payload_of=9)
    with closing(recovery_connection(folder)) as connection:
        FINALS.insert(connection, to_row(other.final(other.extend()))[1], replace=True)
    records = finals_of(chain)
    with Store.open(folder) as store:
        assert (store.head(), store.base(), store.final(4)) == (records[-1], 5, None)
        store.append([replace(records[3], state=b"")])
        assert store.base() == 1
    assert warnings(caplog) == [f"{folder}: block 4 is not the parent of block 5: it is dropped and fetched again"]


def test_a_damaged_index_is_built_again(folder: Path, chain: ChainBuilder) -> None:
    path, fourth = folder / DATABASE, finals_of(chain)[3].block.hash
    data = bytearray(path.read_bytes())
    places = [place for place in range(len(data)) if data.startswith(fourth, place)]
    in_index = [place for place in places if data[place // 4096 * 4096] == 0x0A]
    assert len(in_index) == 2, "as a hash and as a parent's"
    data[in_index[0]] ^= 0xFF
    path.write_bytes(data)
    with Store.open(folder, read_only=True) as store:
        assert store.base() == 5
    with Store.open(folder) as store:
        assert store.base() == 1


def test_a_head_is_of_one_moment(folder: Path, chain: ChainBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    next_head = chain.final(chain.blocks[chain.tip])
    with Store.open(folder) as writer, Store.open(folder, read_only=True) as reader:

        def interrupt(connection: sqlite3.Connection) -> int:
            height = recovery_head_height(connection)
            writer.append([next_head])
            return height

        recovery_head_height = recovery.head_height
        with monkeypatch.context() as patch:
            patch.setattr(recovery, "head_height", interrupt)
            assert reader.head() == finals_of(chain)[-1]
        assert reader.head() == next_head


def test_who_joined_late_is_cut_back_to_what_its_first_state_leads_to(tmp_path: Path, chain: ChainBuilder) -> None:
    records = finals_of(chain)
    with Store.create(tmp_path, GENESIS) as store:
        store.append(records[3:])
    execute(tmp_path, "DELETE FROM finals WHERE height = 8")
    execute(tmp_path, "DELETE FROM states WHERE height = 9")
    with Store.open(tmp_path) as store:
        assert (store.head(), store.base()) == (records[6], 4)


def test_blocks_that_no_state_leads_to_wait_for_the_head_that_is_joined(
    tmp_path: Path, chain: ChainBuilder, caplog: pytest.LogCaptureFixture
) -> None:
    records = finals_of(chain)
    with Store.create(tmp_path, GENESIS) as store:
        store.append(records[3:])
    execute(tmp_path, "DELETE FROM states")
    with Store.open(tmp_path) as store:
        assert (store.head(), store.base(), store.final(6)) == (None, 1, None)
        assert len(warnings(caplog)) == 1
        store.append([records[6]])
        assert (store.head(), store.base()) == (records[6], 4)
        assert (store.final(4), store.final(8)) == ((records[3].block, records[3].certificate), None)
        store.append(records[7:])
        assert (store.head(), store.base()) == (records[8], 4)


@pytest.mark.parametrize("bits", [2**63 - 1, 0x1F7FFFFF])
def test_a_block_of_another_difficulty_is_not_replayed(folder: Path, chain: ChainBuilder, bits: int) -> None:
    tip = chain.blocks[chain.tip]
    wrong = replace(tip, header=replace(tip.header, bits=bits))
    with closing(recovery_connection(folder)) as connection:
        FINALS.insert(connection, to_row(Final(wrong, chain.certificate(tip), b""))[1])
    with Store.open(folder) as store:
        assert store.head() == finals_of(chain)[-1]


def test_a_stored_state_that_its_own_block_does_not_follow_is_passed_over(folder: Path, chain: ChainBuilder) -> None:
    records = finals_of(chain)
    block = records[-1].block
    wrong = replace(block, header=replace(block.header, bits=0x1F7FFFFF))
    with closing(recovery_connection(folder)) as connection:
        FINALS.insert(connection, to_row(replace(records[-1], block=wrong, state=b""))[1], replace=True)
    with Store.open(folder) as store:
        assert store.head() == records[-2]


def test_a_reader_refuses_a_damaged_head_and_changes_nothing(folder: Path) -> None:
    execute(folder, f"UPDATE finals SET {DAMAGE} WHERE height = {BLOCKS}")
    before = (folder / DATABASE).read_bytes()
    advice = f"finals row with height {BLOCKS} was altered: .*; start the node, or run: fedchain node repair {folder}"
    with Store.open(folder, read_only=True) as store, pytest.raises(StoreCorrupt, match=advice):
        store.head()
    assert (folder / DATABASE).read_bytes() == before


@pytest.mark.long
@pytest.mark.parametrize("seed", some(range(40), first=8))
def test_whatever_rows_are_lost_a_start_ends_with_a_whole_chain(tmp_path: Path, chain: ChainBuilder, seed: int) -> None:
    rng, records = Random(seed), finals_of(chain)
    first = rng.choice((0, 0, 3))
    with Store.create(tmp_path, GENESIS) as store:
        for record in records[first:]:
            store.append([record])
    for _ in range(rng.randint(1, 4)):
        height = rng.randint(1, BLOCKS)
        statement = rng.choice(
            (
                "DELETE FROM finals WHERE height = ?",
                "DELETE FROM states WHERE height = ?",
                f"UPDATE finals SET {DAMAGE} WHERE height = ?",
                "UPDATE finals SET parent_hash = zeroblob(32) WHERE height = ?",
                "UPDATE states SET data = x'00' WHERE height = ?",
            )
        )
        with closing(recovery_connection(tmp_path)) as connection:
            connection.execute(statement, (height,))
    with Store.open(tmp_path, GENESIS) as store:
        head = store.head()
        assert head is None or head in records
        for height in range(store.base(), 0 if head is None else head.block.header.height):
            store.final(height)  # a damaged row is noticed here
        expect_whole(store)
        known = 0 if head is None else head.block.header.height
        store.append([replace(record, state=b"") for record in records[:known]])
        store.append(records[known:])
        for record in records:
            store.final(record.block.header.height)
        store.append([replace(record, state=b"") for record in records])
        assert (store.head(), store.base()) == (records[-1], 1)
        expect_whole(store)


def test_members_that_were_written_into_a_store_are_not_believed(tmp_path: Path) -> None:
    """They vouch for a block of their own, but the founders never let them in."""
    chain, folder = living(4), tmp_path / "chain"
    blocks = chain.extend_many(3)
    parent = blocks[-1].header.parent_hash
    fields = decode(chain.states[parent].encode(), 2**24)
    standings = [Standing.LEFT] * 4 + [Standing.ACTIVE] * 4
    records = [Member(key.public_key, said, said, 0, 1) for key, said in zip(keys(8), standings, strict=True)]
    fields[11] = [record.to_record() for record in records]
    fields[12] += b"\x02" * 4
    fields[14] = bytes(4) + b"\x01" * 4
    forger = ChainBuilder(chain.genesis)
    forger.blocks, forger.contents, forger.tip = dict(chain.blocks), dict(chain.contents), parent
    forger.states |= {parent: decode_state(chain.genesis, encode(fields))}
    forged = forger.extend(certificate=forger.certificate(parent, sorted(key.public_key for key in keys(8)[4:])))
    judge_stored(chain.genesis, forger.states[parent], forged, forger.certificate(forged), is_valid_signature)
    with Store.create(folder, chain.genesis) as store:
        store.append([chain.final(block) for block in blocks[:2]])
        store.append([Final(forged, forger.certificate(forged), forger.states[parent].encode())])
    with Store.open(folder, chain.genesis) as store:
        head = store.head()
        assert head is not None
        assert head.block == blocks[1]


def test_members_that_the_chain_let_in_are_found_again_at_a_start(tmp_path: Path) -> None:
    chain, folder = living(4), tmp_path / "chain"
    blocks = [chain.extend(), chain.extend(changes=[joining(chain, 4)]), *chain.extend_many(4)]
    parent = chain.states[blocks[-1].header.parent_hash]
    assert parent.bits_of(blocks[-1].header.miner) != parent.bits, "one of them has mined more than the others"
    with Store.create(folder, chain.genesis) as store:
        store.append([chain.final(block) for block in blocks])
    with Store.open(folder, chain.genesis) as store:
        head = store.head()
        assert head is not None
        assert head.block == blocks[-1]
    with Store.open(folder, chain.genesis, read_only=True) as store:
        for height, block in enumerate(blocks, 1):
            assert store.state_before(height) == chain.states[block.header.parent_hash]


def test_a_program_that_is_too_old_for_a_chain_leaves_it_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It dropped all final blocks of the later version, which other members may have dropped as well."""
    chain, folder = living(5), tmp_path / "chain"
    amendment = propose_amendment(amendment_of({"version": 4}), "", sequence=0, until=20)
    chain.extend(changes=[approved(chain, amendment)])
    chain.extend_many(5)
    with Store.create(folder, chain.genesis) as store:
        store.append([*map(chain.final, chain.blocks.values())])
    expected = f"^{folder}: the chain has come to version 4 of the protocol, this program speaks versions up to 3: "
    with pytest.raises(StoreMismatch, match=expected):
        Store.open(folder, chain.genesis)
    with pytest.raises(StoreMismatch, match="version 4 of the protocol"):
        repair(folder)
    for module in ("chain.validation", "chain.light.verification", "chain.storage.recovery"):
        monkeypatch.setattr(f"fedchain.{module}.NEWEST_VERSION", 4)
    with Store.open(folder, chain.genesis) as store:
        assert (store.base(), store.height()) == (1, 6)


def test_a_later_version_that_too_few_signed_for_is_cut_off(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    chain, folder = living(5), tmp_path / "chain"
    chain.extend_many(3)
    forged = chain.remake(chain.blocks[chain.tip], version=4)
    finals = [chain.final(block) for block in chain.blocks.values() if block.hash != chain.tip]
    with Store.create(folder, chain.genesis) as store:
        store.append([*finals, chain.final(forged, chain.certificate(forged, chain.genesis.members[:1]))])
    with Store.open(folder, chain.genesis) as store:
        assert store.height() == 2
    (line,) = warnings(caplog)
    assert line.endswith(": cut back from height 3 to 2, the rest is fetched")
