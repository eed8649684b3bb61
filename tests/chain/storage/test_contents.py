"""Contents by hash: damaged, missing, served in parts, dropped."""

from pathlib import Path

import pytest

from fedchain.chain.exceptions import StoreError
from fedchain.chain.storage.content_files import content_path, is_content_whole
from fedchain.chain.storage.contents import ROW_SIZE_MAX
from fedchain.chain.storage.database import PAGE_SIZE
from fedchain.chain.storage.sqlite import Store
from fedchain.crypto.hashing import sha256
from fedchain.files.layout import DATABASE
from tests.support.chain.contents import LARGE, contents
from tests.support.chain.stored import (
    SMALL,
    execute,
    warnings,
)
from tests.support.chain.stored import chain as chain
from tests.support.chain.stored import folder as folder


def test_a_full_disk_is_a_store_error(folder: Path) -> None:
    with Store.open(folder) as store:
        (pages,) = store._writer.execute("PRAGMA page_count").fetchone()
        store._writer.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreError, match="full"):
            store.append([contents(bytes([number]) * ROW_SIZE_MAX) for number in range(3)])
        assert store.content(sha256(SMALL)) == SMALL


def test_a_damaged_content_row_is_logged_and_can_be_fetched_again(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for change in ("data = x'00'", "size = 'many'"):
        execute(folder, f"UPDATE contents SET {change} WHERE data IS NOT NULL")
        with Store.open(folder) as store:
            assert [store.content(sha256(SMALL)), store.content_part(sha256(SMALL), 0, 1)] == [None, None]
            assert len(warnings(caplog)) == 1
            store.append([contents(SMALL)])
            assert store.content(sha256(SMALL)) == SMALL
        with Store.open(folder) as store:
            assert store.content(sha256(SMALL)) == SMALL
        caplog.clear()


def test_a_file_is_read_once_for_all_parts_until_it_is_found_to_be_damaged(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, checked = sha256(LARGE), list[bytes]()

    def noted(where: Path, content_hash: bytes, size: int) -> bool:
        checked.append(content_hash)
        return is_content_whole(where, content_hash, size)

    monkeypatch.setattr("fedchain.chain.storage.contents.is_content_whole", noted)
    with Store.open(folder) as store:
        assert [store.content_part(name, start, 2) for start in (0, 2)] == [LARGE[:2], LARGE[2:4]]
        assert checked == [name]
        content_path(folder, name).write_bytes(LARGE[:-1] + b"!")
        assert store.content(name) is None
        assert store.content_part(name, 0, 2) is None
        assert not store.holds_content(name), "though there is a file of that size"
        store.append([contents(LARGE)])
        assert store.holds_content(name)
        assert store.content_part(name, 0, 2) == LARGE[:2]


def test_a_node_that_is_asked_for_its_size_looks_at_no_row_however_many_there_are(folder: Path) -> None:
    with Store.open(folder) as store:
        asked, before = list[str](), store.size_bytes()
        store.append([contents(*(bytes([number]) * (ROW_SIZE_MAX + number) for number in range(1, 4)))])
        store._reader.set_trace_callback(asked.append)
        grown = store.size_bytes() - before
        assert [statement for statement in asked if "contents" in statement] == []
    with Store.open(folder) as again:
        assert again.size_bytes() == before + grown
        assert grown >= 3 * ROW_SIZE_MAX + 1 + 2 + 3


def test_a_file_that_the_system_does_not_let_go_counts_no_more(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("Input/output error")

    with Store.open(folder) as store:
        store.append([contents(bytes([7]) * (ROW_SIZE_MAX + 1))])
        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", refuse)
            with pytest.raises(StoreError):
                store.retain([])
        kept = store.size_bytes()
        store.retain([])
        assert store.size_bytes() == kept
        assert store._contents.file_bytes() == 0


def test_the_size_counts_each_file_once_and_none_that_is_gone(folder: Path) -> None:
    large, kept = (bytes([number]) * (ROW_SIZE_MAX + 1) for number in (7, 8))
    with Store.open(folder) as store:
        store.retain([])
        assert store._contents.file_bytes() == 0
        for _ in range(2):
            store.append([contents(large, kept)])
            assert store._contents.file_bytes() == 2 * (ROW_SIZE_MAX + 1)
        store.retain([sha256(kept)])
        assert store._contents.file_bytes() == ROW_SIZE_MAX + 1
        content_path(folder, sha256(kept)).write_bytes(b"damaged")
        assert store.content(sha256(kept)) is None
        store.append([contents(large)])
        assert store._contents.file_bytes() == ROW_SIZE_MAX + 1
        with Store.open(folder, read_only=True) as reader:
            assert reader._contents.file_bytes() == ROW_SIZE_MAX + 1


def test_a_damaged_page_of_contents_keeps_no_node_from_starting(folder: Path) -> None:
    marks = [number.to_bytes(2, "big") * 500 for number in range(1, 100)]
    with Store.open(folder) as store:
        store.append([contents(*marks)])
    path = folder / DATABASE
    data = bytearray(path.read_bytes())
    page = data.index(marks[50]) // PAGE_SIZE * PAGE_SIZE
    data[page] = 0xFF
    path.write_bytes(data)
    with Store.open(folder) as store:
        assert store.size_bytes() > 0
        assert store.content(sha256(marks[1])) == marks[1]


def test_a_sweep_reads_no_content_that_stays(folder: Path) -> None:
    kept = [number.to_bytes(2, "big") * 500 for number in range(1, 100)]
    with Store.open(folder) as store:
        store.append([contents(*kept, b"old")])
        ran = list[str]()
        store._writer.set_trace_callback(ran.append)
        store.retain({sha256(data) for data in kept})
        assert store.content(sha256(b"old")) is None
        assert all(store.content(sha256(data)) == data for data in kept)
        plans = [
            store._writer.execute(f"EXPLAIN QUERY PLAN {statement}").fetchall()
            for statement in ran
            if "contents" in statement and not statement.startswith("EXPLAIN")
        ]
    scans = [step[3] for plan in plans for step in plan if step[3].startswith(b"SCAN")]
    assert scans == [b"SCAN contents USING COVERING INDEX sqlite_autoindex_contents_1"]
