"""The repair of a damaged folder, and the reading of a database without SQLite."""

import os
import shutil
import sqlite3
import stat
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fedchain.chain.exceptions import NotFound, StoreCorrupt, StoreError, StoreMismatch
from fedchain.chain.storage.content_files import content_path
from fedchain.chain.storage.database import DATABASE, REPAIRED
from fedchain.chain.storage.pages import PAGE_SIZE, find_rows
from fedchain.chain.storage.repair import FAULTS_MAX, describe_repair, repair
from fedchain.chain.storage.sqlite import Store
from fedchain.chain.storage.store import Candidate, Final, Record
from fedchain.chain.vote import VoteKind
from fedchain.crypto.hashing import sha256
from tests.chain.test_storage import LARGE, content
from tests.chain.test_store import GENESIS, OWN, ask, execute
from tests.support.chain.builders import ChainBuilder, genesis, payload, post

BLOCKS = 12
SMALL = b"small"


@pytest.fixture(scope="module")
def chain() -> ChainBuilder:
    builder = ChainBuilder(GENESIS)
    builder.extend_many(BLOCKS + 1)
    return builder


def records_of(chain: ChainBuilder) -> list[Record]:
    blocks = sorted(chain.blocks.values(), key=lambda block: block.header.height)
    open_block = blocks.pop()
    votes = [
        chain.vote(OWN, block, kind=kind, attempt=attempt)
        for block in blocks
        for attempt in range(3)
        for kind in (VoteKind.PREVOTE, VoteKind.PRECOMMIT)
    ]
    posts = [post(chain.key(OWN), GENESIS, number, payload(number)) for number in range(BLOCKS, 0, -1)]
    candidates = [Candidate(open_block, False), Candidate(blocks[2], True)]
    return [*map(chain.final, blocks), *candidates, *votes, *posts]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, chain: ChainBuilder) -> Path:
    """A closed store whose tables have inner pages."""
    folder = tmp_path_factory.mktemp("written") / "chain"
    with Store.create(folder, GENESIS) as store:
        for record in records_of(chain):
            store.append([record])
        store.append([content(SMALL), content(LARGE)])
    return folder


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(written, tmp_path / "chain")


def held(folder: Path) -> list[object]:
    """All that a storage answers, and what lies in its tables."""
    with Store.open(folder, GENESIS) as store:
        answers = [
            store.head(),
            store.base(),
            *(store.final(height) for height in range(1, BLOCKS + 1)),
            *store.candidates(),
            *(vote for height in range(1, BLOCKS + 1) for vote in store.votes(height)),
            *store.posts(0),
            store.content(sha256(SMALL)),
            store.content(sha256(LARGE)),
        ]
    return [*answers, *ask(folder, "SELECT hash FROM candidates"), *ask(folder, "SELECT height FROM states")]


def destroy(folder: Path, *numbers: int) -> None:
    with (folder / DATABASE).open("r+b") as file:
        for number in numbers:
            file.seek((number - 1) * PAGE_SIZE)
            file.write(b"\xff" * PAGE_SIZE)


def pages_of_kind(folder: Path, *kinds: int) -> list[int]:
    data = (folder / DATABASE).read_bytes()
    return [place // PAGE_SIZE + 1 for place in range(PAGE_SIZE, len(data), PAGE_SIZE) if data[place] in kinds]


# --- repairs


def test_a_sound_folder_is_left_as_it_is(folder: Path) -> None:
    before = held(folder), (folder / DATABASE).read_bytes()
    found = repair(folder)
    assert (found.faults, found.faults_found, found.kept_as) == ((), 0, None)
    assert describe_repair(found) == f"{folder}: nothing is damaged, nothing was changed"
    assert (held(folder), (folder / DATABASE).read_bytes()) == before
    assert not list(folder.glob("*damaged*"))


def test_all_is_kept_where_no_row_is_damaged(folder: Path) -> None:
    before = held(folder)
    destroy(folder, 1, *pages_of_kind(folder, 0x02, 0x05, 0x0A))  # the schema, inner pages, and indexes
    damaged = (folder / DATABASE).read_bytes()
    with pytest.raises(StoreCorrupt, match=f"run: fedchain node repair {folder}"):
        Store.open(folder)
    found = repair(folder, GENESIS)
    assert held(folder) == before
    assert found.kept_as == folder / f"{DATABASE}.damaged-1"
    assert found.kept_as.read_bytes() == damaged
    assert (found.height, found.base, found.blocks, found.candidates) == (BLOCKS, 1, BLOCKS, 2)
    assert (found.votes, found.posts, found.contents) == (6 * BLOCKS, BLOCKS, 2)
    assert stat.S_IMODE((folder / DATABASE).stat().st_mode) == 0o600
    assert repair(folder).faults == ()


def test_the_report_says_what_was_found_and_what_comes_next(folder: Path) -> None:
    destroy(folder, 1)
    assert describe_repair(repair(folder)).splitlines() == [
        f"{folder}: 1 fault found",
        "  file is not a database",
        f"kept: {BLOCKS} final blocks (heights 1 to {BLOCKS}), 2 candidates, {6 * BLOCKS} own votes, "
        f"{BLOCKS} own posts, 2 contents; start the node, it fetches the rest",
        f"the damaged database is kept as {folder / DATABASE}.damaged-1; delete it when the node has caught up",
    ]


def test_many_faults_are_counted(folder: Path) -> None:
    execute(folder, "UPDATE votes SET checksum = zeroblob(32)")
    found = repair(folder)
    assert (len(found.faults), found.faults_found, found.votes) == (FAULTS_MAX, 6 * BLOCKS, 0)
    assert f"  and {6 * BLOCKS - FAULTS_MAX} more" in describe_repair(found).splitlines()


def test_what_is_damaged_is_left_out_and_the_rest_stays(folder: Path, chain: ChainBuilder) -> None:
    execute(folder, "UPDATE finals SET round = 7 WHERE height = 3")
    execute(folder, "UPDATE posts SET data = 7 WHERE round = 2")
    execute(folder, "UPDATE contents SET data = x'00' WHERE data IS NOT NULL")
    found = repair(folder)
    assert found.faults_found == 3
    assert (found.height, found.base, found.blocks, found.posts, found.contents) == (
        BLOCKS,
        4,
        BLOCKS - 1,
        BLOCKS - 1,
        1,
    )
    assert found.done == ("block 3 is missing: the chain is kept from height 4 on, the rest is fetched again",)
    assert f"kept: {BLOCKS - 1} final blocks (heights 4 to {BLOCKS}, and 2 below), " in describe_repair(found)
    assert found.done[0] in describe_repair(found)
    with Store.open(folder) as store:
        store.append([replace(next(r for r in map(chain.final, chain.blocks.values()) if r.block.header.height == 3))])
        assert store.base() == 1


def test_a_head_that_cannot_be_saved_is_cut_back(folder: Path, chain: ChainBuilder) -> None:
    execute(folder, "DELETE FROM states")
    execute(folder, "UPDATE finals SET round = 7 WHERE height = 9")
    found = repair(folder)
    assert (found.height, found.base, found.blocks) == (8, 1, 8)


def test_what_the_log_holds_is_kept(tmp_path: Path, chain: ChainBuilder) -> None:
    folder = tmp_path / "copy"
    with Store.create(tmp_path / "chain", GENESIS) as store:
        for record in records_of(chain):
            store.append([record])
        shutil.copytree(store.folder, folder)
    log = folder / f"{DATABASE}-wal"
    log.write_bytes(b"no log" + log.read_bytes()[6:])  # SQLite takes it for empty
    destroy(folder, 1)
    assert repair(folder, GENESIS).votes == 6 * BLOCKS
    assert held(folder) == held(tmp_path / "chain")
    assert (folder / f"{DATABASE}.damaged-1-wal").exists()


@pytest.mark.long
def test_whatever_byte_is_flipped_a_repaired_folder_opens(folder: Path, tmp_path: Path) -> None:
    original, expected = (folder / DATABASE).read_bytes(), held(folder)
    lost, rng = 0, Random(1)
    for number in range(60):
        place = tmp_path / f"flipped-{number}"
        shutil.copytree(folder, place)
        damaged = bytearray(original)
        damaged[rng.randrange(len(original))] ^= 0xFF
        (place / DATABASE).write_bytes(damaged)
        repair(place, GENESIS)
        found = held(place)
        lost += len(expected) - len(found)
        assert repair(place).faults == ()
        records = [item for item in found if not isinstance(item, int) and item is not None]
        finals = [(item.block, item.certificate) for item in records if isinstance(item, Final)]
        assert all(item in expected for item in (*finals, *records) if not isinstance(item, Final))
        assert len(records) >= len(expected) - 10
        shutil.rmtree(place)
    assert lost > 0, "otherwise nothing was flipped that mattered"


def test_nothing_legible_leaves_an_empty_chain_that_can_be_joined(folder: Path, chain: ChainBuilder) -> None:
    (folder / DATABASE).write_bytes(b"a text that is long enough to be a header, and more of it\n" * 500)
    shutil.rmtree(folder / "contents")
    found = repair(folder, GENESIS)
    assert (found.height, found.base, found.blocks, found.votes, found.contents) == (0, 1, 0, 0, 0)
    assert "(no head, the node joins from the network)" in describe_repair(found)
    with Store.open(folder, GENESIS) as store:
        assert store.head() is None
        store.append([chain.final(chain.blocks[chain.tip])])
        assert store.base() == BLOCKS + 1


def test_files_are_contents_also_without_their_rows(folder: Path) -> None:
    execute(folder, "DELETE FROM contents")
    execute(folder, "UPDATE votes SET checksum = zeroblob(32) WHERE height = 1")
    other = LARGE + b"other"
    path = content_path(folder, sha256(other))
    path.parent.mkdir()
    path.write_bytes(LARGE)
    assert repair(folder).contents >= 1
    assert not path.exists()
    with Store.open(folder) as store:
        assert (store.content(sha256(LARGE)), store.content(sha256(other))) == (LARGE, None)


def test_deleted_rows_do_not_come_back(folder: Path) -> None:
    chain = ChainBuilder(GENESIS)
    block = chain.extend_many(BLOCKS + 1)[-1]
    rivals = [chain.extend(block.header.parent_hash, payload_of=number) for number in range(1, 20)]
    with Store.open(folder) as store:
        store._writer.execute("PRAGMA secure_delete = OFF")  # as most builds of SQLite have it
        store.append([Candidate(rival, False) for rival in rivals])
        store.append([chain.final(block)])  # ends the candidates of others and replaces the state
    before = ask(folder, "SELECT hash FROM candidates"), ask(folder, "SELECT height FROM states")
    found = {column for row in find_rows(folder / DATABASE) for column in row if isinstance(column, bytes)}
    assert found & {rival.hash for rival in rivals}, "otherwise there would be nothing to drop"
    destroy(folder, 1)
    repair(folder)
    assert (ask(folder, "SELECT hash FROM candidates"), ask(folder, "SELECT height FROM states")) == before
    assert before[1] == [BLOCKS + 1]


# --- refusals


def test_an_illegible_genesis_must_be_given(folder: Path) -> None:
    before = held(folder)
    execute(folder, "UPDATE genesis SET data = x'00'")
    damaged = (folder / DATABASE).read_bytes()
    with pytest.raises(StoreCorrupt, match=f"illegible; give it: fedchain node repair {folder} --genesis GENESIS"):
        repair(folder)
    with pytest.raises(StoreMismatch, match="holds another chain than"):
        repair(folder, genesis(3, name="another"))
    assert (folder / DATABASE).read_bytes() == damaged
    repair(folder, GENESIS)
    assert held(folder) == before


def test_another_chain_is_not_repaired(folder: Path) -> None:
    for _ in range(2):
        with pytest.raises(StoreMismatch, match=GENESIS.chain_id.hex()):
            repair(folder, genesis(3, name="another"))
        destroy(folder, 1)


def test_another_version_is_not_repaired(folder: Path) -> None:
    execute(folder, "PRAGMA user_version = 1")
    with pytest.raises(StoreMismatch, match="version 1"):
        repair(folder)


def test_a_running_node_is_not_repaired(folder: Path) -> None:
    with Store.open(folder), pytest.raises(StoreError, match="in use by another process"):
        repair(folder)


def test_a_folder_without_a_chain_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="holds no chain"):
        repair(tmp_path)


@pytest.mark.parametrize("step", range(8))
def test_an_interrupted_repair_is_taken_up_again(folder: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    before, left = held(folder), step
    destroy(folder, 1)
    for suffix in ("-wal", "-shm"):
        (folder / f"{DATABASE}{suffix}").write_bytes(b"left by a crash")

    def interrupt(real: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
            return real(*arguments, **options)

        return call

    with monkeypatch.context() as patch:
        for name in ("rename", "replace", "unlink"):
            patch.setattr(Path, name, interrupt(getattr(Path, name)))
        try:
            repair(folder)
        except KeyboardInterrupt:
            pass
        else:
            assert step > 5
    repair(folder)
    assert held(folder) == before
    assert not (folder / REPAIRED).exists()
    assert len(list(folder.glob("*damaged-?"))) == 1


# --- pages


def test_rows_are_found_without_sqlite(tmp_path: Path) -> None:
    rng, path = Random(1), tmp_path / "database"
    rows = [
        (number, rng.choice((-1, 0, 1, 2)) * 2 ** rng.randrange(62), rng.randbytes(int(2 ** rng.uniform(0, 15))), None)
        for number in rng.sample(range(2**40), 300)
    ]
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
        connection.execute("PRAGMA journal_mode = WAL")
        for half in (rows[:200], rows[200:]):
            with connection:
                connection.execute("CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, n, data, none)")
                connection.execute("CREATE INDEX IF NOT EXISTS i ON t (n, data)")
                connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", half)
            if half[0] is rows[0]:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert sorted(set(find_rows(path))) == sorted(rows)
        log = path.with_name("database-wal")
        assert log.stat().st_size > 0
        log_data = log.read_bytes()
    (tmp_path / "database-wal").write_bytes(log_data)
    assert sorted(set(find_rows(path))) == sorted(rows)


def test_a_torn_page_in_the_log_hides_no_row(tmp_path: Path) -> None:
    path, rows = tmp_path / "database", [(number, bytes([number]) * 1000) for number in range(1, 20)]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, data)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", rows)
    salts, head = b"saltsalt", b"\0" * 16
    frames = (number.to_bytes(4, "big") + bytes(4) + salts + bytes(8) + bytes(PAGE_SIZE) for number in range(1, 8))
    path.with_name("database-wal").write_bytes(head + salts + bytes(8) + b"".join(frames))
    assert sorted(find_rows(path)) == rows


def test_no_bytes_make_the_reader_of_pages_fail_or_run_on(tmp_path: Path) -> None:
    rng, path = Random(2), tmp_path / "database"
    for _ in range(30):
        pages = bytearray(rng.randbytes(8 * PAGE_SIZE))
        for place in range(0, len(pages), PAGE_SIZE):
            pages[place] = 0x0D
        path.write_bytes(pages)
        path.with_name("database-wal").write_bytes(rng.randbytes(rng.randrange(3 * PAGE_SIZE)))
        assert sum(1 for _ in find_rows(path)) <= 16 * 1024
    os.truncate(path, 0)
    path.with_name("database-wal").unlink()
    assert list(find_rows(path)) == []
