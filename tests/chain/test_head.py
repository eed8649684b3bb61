"""The head of a store is judged when a node starts, as a block from the network is."""

import logging
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from fedchain.chain.block import Block
from fedchain.chain.certificate import Certificate
from fedchain.chain.exceptions import StoreCorrupt
from fedchain.chain.state import State, decode_state
from fedchain.chain.storage import recovery
from fedchain.chain.storage.database import DATABASE
from fedchain.chain.storage.repair import repair
from fedchain.chain.storage.rows import FINALS, STATES, to_row
from fedchain.chain.storage.sqlite import Store
from fedchain.chain.storage.store import Final
from tests.support.chain.builders import ChainBuilder, double_vote, genesis, keys
from tests.support.chain.forgeries import FORGED, Forge

GENESIS = genesis(4)
BLOCKS = 6


@pytest.fixture
def chain() -> ChainBuilder:
    builder = ChainBuilder(GENESIS)
    builder.extend_many(BLOCKS)
    return builder


def finals(chain: ChainBuilder) -> list[Final]:
    return [chain.final(block) for block in chain.blocks.values()]


def write(folder: Path, chain: ChainBuilder, certificates: dict[int, Certificate], first: int = 1) -> None:
    """A store as a bug or its operator may have written it: all checksums are right."""
    with Store.create(folder, GENESIS) as store:
        for record in finals(chain)[first - 1 :]:
            store.append([record])
    for height, certificate in certificates.items():
        put(folder, chain.final(finals(chain)[height - 1].block, certificate))


def put(folder: Path, record: Final) -> None:
    with closing(sqlite3.connect(folder / DATABASE)) as connection, connection:
        FINALS.insert(connection, to_row(record)[1], replace=True)


def put_state(folder: Path, height: int, data: bytes) -> None:
    with closing(sqlite3.connect(folder / DATABASE)) as connection, connection:
        STATES.insert(connection, (height, data), replace=True)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    caplog.clear()
    return found


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
def test_a_head_that_its_certificate_does_not_make_final_is_stepped_back_from(
    tmp_path: Path, chain: ChainBuilder, caplog: pytest.LogCaptureFixture, forge: Forge
) -> None:
    records = finals(chain)
    write(tmp_path, chain, {BLOCKS: forge(chain, records[-1].block)})
    caplog.clear()
    with Store.open(tmp_path, GENESIS) as store:
        assert (store.head(), store.base(), store.final(BLOCKS)) == (records[-2], 1, None)
        (line,) = lines(caplog)
        assert f"block {BLOCKS} is not final by what is stored (" in line
        assert line.endswith(f"): cut back from height {BLOCKS} to {BLOCKS - 1}, the rest is fetched")
    with Store.open(tmp_path, GENESIS) as store:
        assert lines(caplog) == [], "it is done once"
        store.append([records[-1]])
        assert store.head() == records[-1]
    with Store.open(tmp_path, GENESIS) as store:
        assert (store.head(), lines(caplog)) == (records[-1], [])


def test_a_certificate_that_is_another_one_and_right_is_left(
    tmp_path: Path, chain: ChainBuilder, caplog: pytest.LogCaptureFixture
) -> None:
    tip = finals(chain)[-1].block
    write(tmp_path, chain, {BLOCKS: chain.certificate(tip, GENESIS.members, attempt=3)})
    caplog.clear()
    with Store.open(tmp_path) as store:
        head = store.head()
        assert head is not None
        assert (head.block, head.certificate.attempt, lines(caplog)) == (tip, 3, [])


@pytest.mark.parametrize("interval", [64, 2])
@pytest.mark.parametrize("last", [0, 1, 3])
def test_all_that_is_not_final_goes(
    tmp_path: Path,
    chain: ChainBuilder,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    last: int,
    interval: int,
) -> None:
    monkeypatch.setattr(recovery, "STATE_INTERVAL", interval)
    records, forge = finals(chain), FORGED["prevotes"]
    write(tmp_path, chain, {height: forge(chain, records[height - 1].block) for height in range(last + 1, BLOCKS + 1)})
    caplog.clear()
    with Store.open(tmp_path) as store:
        assert store.head() == (records[last - 1] if last else None)
        assert [store.final(height) for height in range(last + 1, BLOCKS + 1)] == [None] * (BLOCKS - last)
        (line,) = lines(caplog)
        assert f"block {last + 1} is not final" in line
        store.append(records[last:])
        assert (store.head(), store.base()) == (records[-1], 1)


def test_who_joined_late_steps_back_no_further_than_its_first_state(tmp_path: Path, chain: ChainBuilder) -> None:
    records, forge = finals(chain), FORGED["prevotes"]
    write(tmp_path / "some", chain, {BLOCKS: forge(chain, records[-1].block)}, first=4)
    with Store.open(tmp_path / "some") as store:
        assert (store.head(), store.base()) == (records[-2], 4)
    wrong = {height: forge(chain, records[height - 1].block) for height in range(4, BLOCKS + 1)}
    write(tmp_path / "all", chain, wrong, first=4)
    with Store.open(tmp_path / "all") as store:
        assert (store.head(), store.base()) == (None, 1)
        store.append([records[-1]])
        assert (store.head(), store.base()) == (records[-1], BLOCKS)


def test_a_missing_block_below_one_that_is_not_final(
    tmp_path: Path, chain: ChainBuilder, caplog: pytest.LogCaptureFixture
) -> None:
    records, forge = finals(chain), FORGED["fewer than a quorum"]
    write(tmp_path, chain, {4: forge(chain, records[3].block)})
    with closing(sqlite3.connect(tmp_path / DATABASE)) as connection, connection:
        connection.execute("DELETE FROM finals WHERE height = 5")
        connection.execute("DELETE FROM states")
    caplog.clear()
    with Store.open(tmp_path) as store:
        assert (store.head(), store.final(6)) == (records[2], None)
    (line,) = lines(caplog)
    assert "block 4 is not final by what is stored (quorum: 2 votes found" in line


def another_miner(chain: ChainBuilder, block: Block) -> Block:
    return replace(block, signature=bytes(64))


def another_body(chain: ChainBuilder, block: Block) -> Block:
    return replace(block, transactions=chain.posts(block.header.parent_hash, payload_of=50))


def another_parents_proof(chain: ChainBuilder, block: Block) -> Block:
    parent = chain.blocks[block.header.parent_hash]
    return replace(block, certificate=chain.certificate(parent, GENESIS.members, attempt=1))


@pytest.mark.parametrize("alter", [another_miner, another_body, another_parents_proof])
def test_a_head_with_another_body_is_stepped_back_from(tmp_path: Path, chain: ChainBuilder, alter: object) -> None:
    assert callable(alter)
    records = finals(chain)
    write(tmp_path, chain, {})
    put(tmp_path, replace(records[-1], block=alter(chain, records[-1].block)))
    with Store.open(tmp_path) as store:
        assert store.head() == records[-2]


def test_crimes_in_the_state_before_the_head_are_judged_too(tmp_path: Path, chain: ChainBuilder) -> None:
    """A member that a state calls convicted has no vote: the state may not say so without the signatures."""
    records = finals(chain)
    write(tmp_path, chain, {})
    crimes = (double_vote(key, genesis(4, name="other"), 2) for key in keys(4)[1:])
    state: State = replace(decode_state(GENESIS, records[-1].state), convicted=tuple(crimes))
    block, first = records[-1].block, keys(4)[0]
    posts = chain.posts(block.header.parent_hash, members=[first.public_key])
    alone = chain.remake(block, state_root=state.root, key=first, transactions=posts)
    put(tmp_path, Final(alone, chain.certificate(alone, GENESIS.members[:1]), b""))
    put_state(tmp_path, BLOCKS, state.encode())
    with Store.open(tmp_path) as store:
        assert store.head() == records[-2]


@pytest.mark.parametrize("step", ["_last_final", "_mend_links", "find_base"])
def test_a_start_that_is_killed_is_taken_up_by_the_next(
    tmp_path: Path, chain: ChainBuilder, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    records, forge = finals(chain), FORGED["prevotes"]
    write(tmp_path, chain, {height: forge(chain, records[height - 1].block) for height in (5, 6)})

    def kill(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(recovery, step, kill)
        with pytest.raises(KeyboardInterrupt):
            Store.open(tmp_path)
    for _ in range(2):
        with Store.open(tmp_path) as store:
            assert (store.head(), store.base()) == (records[3], 1)


def test_repair_and_the_full_look_name_a_head_that_is_not_final(tmp_path: Path, chain: ChainBuilder) -> None:
    records = finals(chain)
    write(tmp_path, chain, {BLOCKS: FORGED["prevotes"](chain, records[-1].block)})
    with Store.open(tmp_path, read_only=True) as store:
        (damage,) = store.damage()
    assert damage.startswith("the chain cannot continue from its head: certificate")
    assert repair(tmp_path).faults == (damage,)
    assert not repair(tmp_path).faults
    with Store.open(tmp_path) as store:
        assert store.head() == records[-2]


def test_a_reader_still_refuses_a_head_without_its_state(tmp_path: Path, chain: ChainBuilder) -> None:
    write(tmp_path, chain, {})
    put_state(tmp_path, BLOCKS, b"another")
    with Store.open(tmp_path, read_only=True) as store, pytest.raises(StoreCorrupt, match="stands on"):
        store.head()
