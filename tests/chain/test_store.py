import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fedchain.chain.fork_choice import SIBLINGS_MAX

from fedchain.chain.block import Block
from fedchain.chain.exceptions import NotFound, StoreCorrupt, StoreError, StoreMismatch
from fedchain.chain.storage.sqlite import DATABASE, ROW_SIZE_MAX, STORE_VERSION, Store
from fedchain.chain.storage.store import Content, MemoryStore, Record, Storage, load_tree
from fedchain.chain.transaction import Transaction
from fedchain.chain.vote import Vote
from fedchain.crypto.hashing import sha256
from tests.chain.builders import ChainBuilder, genesis

GENESIS = genesis(3)
SMALL = b"small" * 100
LARGE = bytes(range(256)) * (ROW_SIZE_MAX // 256 + 1)


def content(data: bytes) -> Content:
    return Content(sha256(data), data)


@pytest.fixture
def chain() -> ChainBuilder:
    """Three blocks in a row and a second block at height 2."""
    builder = ChainBuilder(GENESIS)
    blocks = builder.extend_many(3)
    builder.extend(blocks[0].hash, payload_of=9)
    builder.tip = blocks[-1].hash
    return builder


def records_of(chain: ChainBuilder) -> list[Record]:
    return [*chain.blocks.values(), *chain.votes(chain.tip), *chain.posts(chain.tip)[:1]]


@pytest.fixture
def folder(tmp_path: Path, chain: ChainBuilder) -> Path:
    """A closed store with a chain, a small content and a large one."""
    with Store.create(tmp_path / "chain", GENESIS) as store:
        store.append([*records_of(chain), content(SMALL), content(LARGE)])
    return tmp_path / "chain"


# --- what every storage does


@pytest.fixture(params=["memory", "disk", "disk reopened before every call"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    if request.param == "memory":
        yield MemoryStore()
    elif request.param == "disk":
        with Store.create(tmp_path / "chain", GENESIS) as store:
            yield store
    else:
        yield Reopening(tmp_path / "chain")


class Reopening:
    """A storage whose process dies politely after every call."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        Store.create(folder, GENESIS).close()

    def append(self, records: Any) -> None:
        with Store.open(self.folder, GENESIS) as store:
            store.append(records)

    def records(self) -> Iterator[Block | Vote | Transaction]:
        with Store.open(self.folder, GENESIS) as store:
            yield from store.records()

    def content(self, content_hash: bytes) -> bytes | None:
        with Store.open(self.folder, GENESIS) as store:
            return store.content(content_hash)

    def content_part(self, content_hash: bytes, start: int, size: int) -> bytes | None:
        with Store.open(self.folder, GENESIS) as store:
            return store.content_part(content_hash, start, size)

    def retain(self, needed: Collection[bytes]) -> None:
        with Store.open(self.folder, GENESIS) as store:
            store.retain(needed)


def test_an_empty_storage_holds_nothing(storage: Storage) -> None:
    assert list(storage.records()) == []
    assert storage.content(sha256(b"")) is None


def test_records_come_back_as_blocks_then_votes_then_posts(storage: Storage, chain: ChainBuilder) -> None:
    records = records_of(chain)
    storage.append(records)
    assert list(storage.records()) == sorted(records, key=lambda r: r.header.height if isinstance(r, Block) else 99)


def test_parents_come_before_children_whatever_the_order_of_arrival(storage: Storage, chain: ChainBuilder) -> None:
    for record in reversed(records_of(chain)):
        storage.append([record])
    seen = {GENESIS.chain_id}
    for record in storage.records():
        if isinstance(record, Block):
            assert record.header.parent_hash in seen
            seen.add(record.hash)
    assert seen == {GENESIS.chain_id, *chain.blocks}


def test_appending_a_known_record_changes_nothing(storage: Storage, chain: ChainBuilder) -> None:
    records = records_of(chain)
    storage.append([*records, content(SMALL), content(LARGE)])
    before = list(storage.records())
    storage.append([*records, content(SMALL), content(LARGE), *records])
    assert list(storage.records()) == before
    assert (storage.content(sha256(SMALL)), storage.content(sha256(LARGE))) == (SMALL, LARGE)


@pytest.mark.parametrize("size", [0, 1, ROW_SIZE_MAX, ROW_SIZE_MAX + 1])
def test_content_of_any_size_comes_back(storage: Storage, size: int) -> None:
    data = b"x" * size
    assert storage.content(sha256(data)) is None
    storage.append([content(data)])
    assert storage.content(sha256(data)) == data


def test_the_tree_is_the_one_that_was_stored(storage: Storage, chain: ChainBuilder) -> None:
    storage.append(records_of(chain))
    tree = load_tree(GENESIS, storage.records())
    assert tree.head == chain.states[chain.tip]
    assert len(tree) == len(chain.blocks)
    assert set(tree.votes(chain.tip)) == set(GENESIS.members)


# --- many storages in one process


def test_storages_with_one_pool_hold_one_copy_of_what_is_equal(chain: ChainBuilder) -> None:
    pool: dict[bytes, Any] = {}
    one, other = MemoryStore(pool), MemoryStore(pool)
    block = chain.blocks[chain.tip]
    copy = Block.from_record(block.to_record())
    assert copy is not block
    one.append([block])
    other.append([copy])
    assert [id(record) for record in one.records()] == [id(record) for record in other.records()] == [id(block)]


def test_a_block_with_another_body_is_not_taken_from_the_pool(chain: ChainBuilder) -> None:
    pool: dict[bytes, Any] = {}
    one, other = MemoryStore(pool), MemoryStore(pool)
    block = chain.blocks[chain.tip]
    forged = replace(block, signature=bytes(64))
    one.append([block])
    other.append([forged])
    assert list(other.records()) == [forged]


# --- the tree


def test_blocks_beyond_the_limits_of_the_tree_are_left_out() -> None:
    chain, storage = ChainBuilder(GENESIS), MemoryStore()
    for number in range(SIBLINGS_MAX + 1):
        chain.extend(GENESIS.chain_id, payload_of=number)
    storage.append(list(chain.blocks.values()))
    assert len(load_tree(GENESIS, storage.records())) == SIBLINGS_MAX


def test_votes_make_room_for_siblings() -> None:
    chain, storage = ChainBuilder(GENESIS), MemoryStore()
    first = chain.extend(GENESIS.chain_id)
    for number in range(SIBLINGS_MAX):
        chain.extend(GENESIS.chain_id, payload_of=number + 1)
    storage.append([*chain.blocks.values(), *chain.votes(first.hash)])
    assert len(load_tree(GENESIS, storage.records())) == SIBLINGS_MAX + 1


def test_a_block_without_a_parent_is_corruption(chain: ChainBuilder) -> None:
    storage = MemoryStore()
    storage.append([block for block in chain.blocks.values() if block.header.height > 1])
    with pytest.raises(StoreCorrupt, match="follows nothing"):
        load_tree(GENESIS, storage.records())


def test_a_difficulty_of_astronomic_size_is_corruption(chain: ChainBuilder) -> None:
    storage = MemoryStore()
    header = chain.blocks[chain.tip].header
    block = Block(type(header)(*[*header.to_record()[:9], 2**63, *header.to_record()[10:]]), bytes(64), (), ())
    storage.append([*chain.blocks.values(), block])
    with pytest.raises(StoreCorrupt, match="0x8000000000000000"):
        load_tree(GENESIS, storage.records())


# --- the folder


def test_a_store_opens_with_its_genesis_or_without(folder: Path) -> None:
    with Store.open(folder) as store:
        assert store.genesis == GENESIS
    with Store.open(folder, GENESIS) as store:
        assert store.genesis == GENESIS


def test_create_refuses_a_folder_with_a_chain(folder: Path) -> None:
    with pytest.raises(StoreError, match="holds a chain already"):
        Store.create(folder, GENESIS)
    with Store.open(folder) as store:
        assert len(list(store.records())) > 0


@pytest.mark.parametrize("name", ["", "nowhere"])
def test_a_folder_without_a_chain_is_not_found(tmp_path: Path, name: str) -> None:
    with pytest.raises(NotFound, match="holds no chain"):
        Store.open(tmp_path / name)


def test_another_chain_is_named_with_both_ids(folder: Path) -> None:
    other = genesis(4, name="other")
    with pytest.raises(StoreMismatch) as caught:
        Store.open(folder, other)
    message = str(caught.value)
    for part in (str(folder), GENESIS.chain_id.hex(), other.chain_id.hex()):
        assert part in message
    assert "\n" not in message


def test_another_version_is_named_with_both_numbers(folder: Path) -> None:
    execute(folder, f"PRAGMA user_version = {STORE_VERSION + 1}")
    with pytest.raises(StoreMismatch, match=f"version {STORE_VERSION + 1}, .* version {STORE_VERSION}$"):
        Store.open(folder)


def test_a_genesis_of_another_version_is_a_mismatch(folder: Path) -> None:
    document = GENESIS.encode()
    later = document[:1].replace(document[:1], document[:1]) + document[1:].replace(b"\x01", b"\x02", 1)
    execute(folder, "UPDATE records SET data = ?, checksum = ? WHERE kind = 0", later, sha256(later))
    with pytest.raises(StoreMismatch, match="version is 2"):
        Store.open(folder)


def test_one_writer_at_a_time_and_any_number_of_readers(folder: Path, chain: ChainBuilder) -> None:
    with Store.open(folder) as writer, Store.open(folder, read_only=True) as reader:
        with pytest.raises(StoreError, match="in use by another process"):
            Store.open(folder)
        with pytest.raises(StoreError, match="in use by another process"):
            Store.create(folder, GENESIS)
        vote = chain.votes(chain.extend().hash)[0]
        writer.append([vote])
        assert vote in list(reader.records())
        with pytest.raises(StoreError, match="readonly"):
            reader.append([vote])
    Store.open(folder).close()


def test_a_reader_leaves_no_trace_in_a_folder_it_may_not_write(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sorted(path.name for path in folder.iterdir())
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with Store.open(folder, read_only=True) as store:
        assert len(list(store.records())) > 0
        assert sorted(path.name for path in folder.iterdir()) == before


def test_the_log_of_a_deleted_store_is_not_replayed(folder: Path, tmp_path: Path) -> None:
    log = folder / f"{DATABASE}-wal"
    with Store.open(folder) as store:
        store.append([content(b"of the old chain")])
        copy = log.read_bytes()
    assert copy
    (folder / DATABASE).unlink()
    log.write_bytes(copy)
    with Store.create(folder, genesis(2)) as store:
        assert store.content(sha256(b"of the old chain")) is None
        assert list(store.records()) == []


def test_an_append_is_all_or_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(folder) as store:
        wrong = Content(sha256(b"one thing"), b"another thing")
        with pytest.raises(AssertionError):
            store.append([content(b"before it"), wrong])
        assert store.content(sha256(b"before it")) is None
        store.append([content(b"after it")])
        assert store.content(sha256(b"after it")) == b"after it"


def test_a_full_disk_is_a_store_error(folder: Path) -> None:
    with Store.open(folder) as store:
        (pages,) = store._writer.execute("PRAGMA page_count").fetchone()
        store._writer.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreError, match="full"):
            store.append([content(bytes([number]) * ROW_SIZE_MAX) for number in range(3)])
        assert store.content(sha256(SMALL)) == SMALL


# --- retention

LARGE = bytes(range(256)) * (ROW_SIZE_MAX // 256 + 1)


def test_what_is_not_needed_is_dropped_and_the_rest_stays(storage: Storage, chain: ChainBuilder) -> None:
    storage.append([*records_of(chain), content(b"small"), content(b"needed"), content(LARGE), content(LARGE + b"2")])
    before = list(storage.records())
    storage.retain({sha256(b"needed"), sha256(LARGE + b"2"), sha256(b"not here")})
    assert storage.content(sha256(b"small")) is None
    assert storage.content(sha256(LARGE)) is None
    assert storage.content(sha256(b"needed")) == b"needed"
    assert storage.content(sha256(LARGE + b"2")) == LARGE + b"2"
    assert list(storage.records()) == before
    storage.append([content(LARGE)])
    assert storage.content(sha256(LARGE)) == LARGE, "what was dropped can be stored again"


def test_dropping_takes_the_files_too_also_those_without_a_row(folder: Path) -> None:
    with Store.open(folder) as store:
        store.append([content(LARGE), content(LARGE + b"2")])
        store._writer.execute("DELETE FROM contents WHERE hash = ?", (sha256(LARGE),))  # as after a crash
        store.retain({sha256(LARGE + b"2")})
        files = [path.name for path in (folder / "contents").glob("??/*")]
    assert files == [sha256(LARGE + b"2").hex()]


def test_a_content_is_read_in_parts(storage: Storage) -> None:
    storage.append([content(b"small"), content(LARGE)])
    for _ in range(2):  # the first part of a file checks it whole
        assert storage.content_part(sha256(LARGE), 3, 5) == LARGE[3:8]
    assert storage.content_part(sha256(LARGE), len(LARGE) - 2, 100) == LARGE[-2:]
    assert storage.content_part(sha256(b"small"), 1, 3) == b"mal"
    assert storage.content_part(sha256(b"other"), 0, 3) is None
    storage.retain(set())
    assert storage.content_part(sha256(LARGE), 3, 5) is None


def test_one_thread_reads_while_another_writes(folder: Path) -> None:
    with Store.open(folder) as store:
        store._writer.execute("BEGIN IMMEDIATE")
        store._insert(content(b"not yet"))
        assert store.content(sha256(b"not yet")) is None, "what is not committed may still be lost"
        store._writer.execute("COMMIT")
        assert store.content(sha256(b"not yet")) == b"not yet"


# --- damage


def execute(folder: Path, statement: str, *values: Any) -> None:
    connection = sqlite3.connect(folder / DATABASE)
    with connection:
        assert connection.execute(statement, values).rowcount != 0
    connection.close()


def file_of(folder: Path, data: bytes) -> Path:
    name = sha256(data).hex()
    return folder / "contents" / name[:2] / name


def read_everything(folder: Path) -> None:
    with Store.open(folder, read_only=True) as store:
        load_tree(store.genesis, store.records())
        for data in (SMALL, LARGE):
            store.content(sha256(data))


def test_every_flipped_byte_is_noticed_or_harmless(folder: Path, chain: ChainBuilder) -> None:
    path = folder / DATABASE
    original = path.read_bytes()
    expected, messages = records_of(chain), list[str]()
    for place in range(0, len(original), 61):
        damaged = bytearray(original)
        damaged[place] ^= 0xFF
        path.write_bytes(damaged)
        try:
            with Store.open(folder, read_only=True) as store:
                found = list(store.records())
                assert store.genesis == GENESIS
                assert all(record in expected for record in found)
                assert store.content(sha256(SMALL)) in (SMALL, None)
        except StoreError as error:
            messages.append(str(error))
    assert len(messages) > len(original) // 61 // 10
    assert all(str(folder) in message and message.isprintable() for message in messages)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.5, 0.9])
def test_a_truncated_database_does_not_open(folder: Path, share: float) -> None:
    path = folder / DATABASE
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises((StoreCorrupt, StoreMismatch), match=DATABASE if share else "version 0"):
        Store.open(folder)


def test_a_database_without_its_last_bytes_is_found_out(folder: Path) -> None:
    path = folder / DATABASE
    data = path.read_bytes()
    for cut in range(1, 4096, 400):
        path.write_bytes(data[:-cut])
        with pytest.raises(StoreCorrupt):
            read_everything(folder)


def test_another_file_is_not_a_database(folder: Path) -> None:
    (folder / DATABASE).write_bytes(b"a text that is long enough to be a header, and more of it\n" * 100)
    with pytest.raises(StoreCorrupt, match="not a database"):
        Store.open(folder)


TAMPERINGS = {
    "altered data": ("UPDATE records SET data = substr(data, 1, 40) || x'ff' || substr(data, 42)", "was altered"),
    "altered hash": ("UPDATE records SET hash = zeroblob(32)||hash WHERE kind = 1", "hashes to"),
    "altered checksum": ("UPDATE records SET checksum = zeroblob(32) WHERE kind = 2", "was altered"),
    "a number for bytes": ("UPDATE records SET data = 7 WHERE kind = 3", "holds int"),
    "a text for bytes": ("UPDATE records SET data = 'Ä' WHERE kind = 3", "was altered"),
    "another kind": ("UPDATE records SET kind = 9 WHERE kind = 2", "unknown kind 9"),
    "a vote among the posts": ("UPDATE records SET kind = 3 WHERE kind = 2", "post .* 5 fields found"),
    "no genesis": ("DELETE FROM records WHERE kind = 0", "genesis document is missing"),
    "no parent": ("DELETE FROM records WHERE height = 1", "follows nothing"),
    "altered content": ("UPDATE contents SET data = x'00' WHERE data IS NOT NULL", "content .* hashes to"),
    "a text for a size": ("UPDATE contents SET size = 'many'", "content row holds"),
    "no table": ("DROP TABLE contents", "no such table"),
}


@pytest.mark.parametrize("name", TAMPERINGS)
def test_tampering_is_named(folder: Path, name: str) -> None:
    statement, message = TAMPERINGS[name]
    read_everything(folder)
    execute(folder, statement)
    with pytest.raises(StoreError, match=message):
        read_everything(folder)


def test_an_altered_content_file_is_corrupt(folder: Path) -> None:
    file_of(folder, LARGE).write_bytes(LARGE[:-1] + b"!")
    with Store.open(folder) as store, pytest.raises(StoreCorrupt, match=r"hashes to .*delete the file"):
        store.content(sha256(LARGE))


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"!", lambda data: b""])
def test_a_content_file_of_another_size_is_corrupt_and_heals(folder: Path, change: Callable[[bytes], bytes]) -> None:
    file_of(folder, LARGE).write_bytes(change(LARGE))
    with Store.open(folder) as store:
        with pytest.raises(StoreCorrupt, match=f"bytes, not {len(LARGE)}: .*delete the file"):
            store.content(sha256(LARGE))
        store.append([content(LARGE)])
        assert store.content(sha256(LARGE)) == LARGE


def test_a_row_without_a_file_is_missing_and_can_be_appended_again(folder: Path) -> None:
    file_of(folder, LARGE).unlink()
    with Store.open(folder) as store:
        assert store.content(sha256(LARGE)) is None
        store.append([content(LARGE)])
        assert store.content(sha256(LARGE)) == LARGE


def test_a_file_without_a_row_is_garbage(folder: Path, tmp_path: Path) -> None:
    with Store.create(tmp_path / "other", GENESIS) as store:
        shutil.copytree(folder / "contents", tmp_path / "other" / "contents")
        assert store.content(sha256(LARGE)) is None
        store.append([content(LARGE)])
        assert store.content(sha256(LARGE)) == LARGE


# --- kill -9

CHILD = """
import sys
from pathlib import Path
from fedchain.chain.storage.sqlite import ROW_SIZE_MAX, Store
from fedchain.chain.storage.store import Content
from fedchain.crypto.hashing import sha256
from tests.chain.test_store import GENESIS
from tests.chain.builders import ChainBuilder

with Store.open(Path(sys.argv[1]), GENESIS) as store:
    chain, start = ChainBuilder(GENESIS), int(sys.argv[2])
    for number in range(start, start + 10_000):
        block = chain.extend(GENESIS.chain_id, payload_of=number)
        data = number.to_bytes(8, "big") * (ROW_SIZE_MAX // 8 + number % 2)
        store.append([block, Content(sha256(data), data)])
        print(block.hash.hex(), sha256(data).hex(), flush=True)
"""

KILLS = 10


def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    folder, acknowledged = tmp_path / "chain", list[tuple[bytes, bytes]]()
    Store.create(folder, GENESIS).close()
    root = Path(__file__).parents[2]
    for kill in range(KILLS):
        command = [sys.executable, "-c", CHILD, str(folder), str(kill * 10_000)]
        child = subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        # A kill follows the acknowledgement of a different record each time, and hits the child at its next one.
        for _ in range(3 + kill):
            block_hash, content_hash = child.stdout.readline().split()
            acknowledged.append((bytes.fromhex(block_hash), bytes.fromhex(content_hash)))
        child.send_signal(signal.SIGKILL)
        # It may have acknowledged more before the signal arrived.
        for line in child.stdout.read().splitlines():
            if len(line) == 2 * 64 + 1:
                acknowledged.append((bytes.fromhex(line[:64]), bytes.fromhex(line[65:])))
        assert child.wait() == -signal.SIGKILL
        child.stdout.close()
    with Store.open(folder, GENESIS) as store:
        blocks = {record.hash for record in store.records()}
        for acknowledged_block, acknowledged_content in acknowledged:
            assert acknowledged_block in blocks
            assert store.content(acknowledged_content) is not None
    assert len(acknowledged) >= sum(3 + kill for kill in range(KILLS))
