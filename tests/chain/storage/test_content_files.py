"""Large contents lie in files beside the database."""

import errno
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from fedchain.chain.storage.content_files import spool_path, write_content
from fedchain.chain.storage.sqlite import Store
from fedchain.crypto.hashing import sha256
from fedchain.files.spool import SpoolFolder, map_file, path_of, write_pieces
from tests.support.chain.contents import LARGE, contents
from tests.support.chain.stored import (
    GENESIS,
    SMALL,
    warnings,
)
from tests.support.chain.stored import chain as chain
from tests.support.chain.stored import folder as folder


def file_of(folder: Path, data: bytes) -> Path:
    name = sha256(data).hex()
    return folder / "contents" / name[:2] / name


def test_nothing_waits_for_the_disk_where_a_chain_need_not_be_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = list[Path]()
    file = file_of(tmp_path / "made again", LARGE)
    with Store.create(tmp_path / "made again", GENESIS, is_durable=False) as store:
        monkeypatch.setattr("os.fsync", lambda number: synced.append(Path(f"/proc/self/fd/{number}").readlink()))
        monkeypatch.setattr(
            "fedchain.chain.storage.sqlite.sync_file_system",
            lambda folder: synced.append(file if file.exists() else folder),
        )
        store.append([contents(LARGE), contents(SMALL)])
        assert synced == []
        assert store.content(sha256(LARGE)) == LARGE
    assert synced == [file], "once, when it is closed"
    store.close()
    assert synced == [file]
    with Store.create(tmp_path / "kept", GENESIS) as store:
        synced.clear()
        store.append([contents(LARGE)])
        assert len(synced) > 1


@pytest.mark.parametrize(
    "change", [lambda data: data[:-1] + b"!", lambda data: data[:-1], lambda data: data + b"!", lambda data: b""]
)
def test_a_damaged_content_file_is_logged_and_can_be_fetched_again(
    folder: Path, caplog: pytest.LogCaptureFixture, change: Callable[[bytes], bytes]
) -> None:
    file_of(folder, LARGE).write_bytes(change(LARGE))
    with Store.open(folder) as store:
        assert [store.content(sha256(LARGE)), store.content_part(sha256(LARGE), 0, 1)] == [None, None]
        assert len(warnings(caplog)) == 1
        assert str(file_of(folder, LARGE)) in caplog.text
        store.append([contents(LARGE)])
        assert store.content(sha256(LARGE)) == LARGE


def test_parts_of_a_file_are_served_without_having_it_in_memory(folder: Path) -> None:
    large = bytes(range(256)) * 2**15  # 8 MiB
    with Store.open(folder) as store:
        store.append([contents(large)])
    with Store.open(folder) as store:
        tracemalloc.start()
        parts = [store.content_part(sha256(large), start, 256 * 2**10) for start in range(0, len(large), 2**20)]
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert parts == [large[start : start + 256 * 2**10] for start in range(0, len(large), 2**20)]
        assert peak < len(large) / 2
        file_of(folder, large).unlink()
        assert (store.content_part(sha256(large), 0, 1), store.content(sha256(large))) == (None, None)


def test_a_row_without_a_file_is_missing_and_can_be_appended_again(folder: Path) -> None:
    file_of(folder, LARGE).unlink()
    with Store.open(folder) as store:
        assert (store.content(sha256(LARGE)), store.holds_content(sha256(LARGE))) == (None, False)
        store.append([contents(LARGE)])
        assert (store.content(sha256(LARGE)), store.holds_content(sha256(LARGE))) == (LARGE, True)
        assert (store.holds_content(sha256(SMALL)), store.holds_content(sha256(b"other"))) == (True, False)


def test_a_file_without_a_row_is_garbage(folder: Path, tmp_path: Path) -> None:
    with Store.create(tmp_path / "other", GENESIS) as store:
        shutil.copytree(folder / "contents", tmp_path / "other" / "contents")
        assert store.content(sha256(LARGE)) is None
        store.append([contents(LARGE)])
        assert store.content(sha256(LARGE)) == LARGE


def test_a_file_of_another_size_without_a_row_is_written_anew(folder: Path) -> None:
    """As the loss of power leaves one where nothing waits for the disk."""
    file = file_of(folder, LARGE + b"2")
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(LARGE[:5])
    (folder / "contents" / "incoming").write_bytes(b"what a crash left")
    with Store.open(folder) as store:
        store.append([contents(LARGE + b"2")])
        assert store.content(sha256(LARGE + b"2")) == LARGE + b"2"


@pytest.mark.parametrize("is_spooled", [False, True])
def test_a_file_and_each_new_name_above_it_are_on_the_disk_before_its_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_spooled: bool
) -> None:
    folder, synced = tmp_path / "chain", list[Path]()
    root, file = folder / "contents", file_of(folder, LARGE)
    folder.mkdir()
    spools = SpoolFolder(spool_path(folder), size_min=1_000)
    data = write_pieces([LARGE], spools) if is_spooled else LARGE
    begun = path_of(data) or root / "incoming"
    monkeypatch.setattr("os.fsync", lambda number: synced.append(Path(f"/proc/self/fd/{number}").readlink()))
    write_content(folder, sha256(LARGE), data)
    assert synced == [root, folder, begun, file.parent]
    file.unlink()
    synced.clear()
    write_content(folder, sha256(LARGE), LARGE)
    assert synced == [root, folder, root / "incoming", file.parent], "a crash may have come before they were"
    synced.clear()
    (file.parent / "another").touch()
    file.unlink()
    write_content(folder, sha256(LARGE), LARGE)
    assert synced == [root / "incoming", file.parent]
    synced.clear()
    write_content(folder, sha256(LARGE), LARGE)
    assert synced == [file.parent], "a killed process may have named it, and not waited for the disk"


def test_dropping_takes_the_files_too_also_those_without_a_row(folder: Path) -> None:
    with Store.open(folder) as store:
        store.append([contents(LARGE + b"2")])
        store._writer.execute("DELETE FROM contents WHERE hash = ?", (sha256(LARGE),))  # as after a crash
        store.retain({sha256(LARGE + b"2")})
    assert [path.name for path in (folder / "contents").glob("??/*")] == [sha256(LARGE + b"2").hex()]


def test_a_large_content_that_was_put_together_is_moved_and_read_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("fedchain.chain.storage.content_files.MAPPED_SIZE", len(LARGE) - 1)
    folder = tmp_path / "chain"
    with Store.create(folder, GENESIS) as store:
        assert isinstance(store.spools, SpoolFolder)
        store.spools.size_min = 1000
        data = write_pieces([LARGE], store.spools)
        spooled = path_of(data)
        assert spooled is not None
        number = spooled.stat().st_ino
        store.append([contents(data)])
        assert not spooled.exists()
        assert path_of(data) == file_of(folder, LARGE)
        assert file_of(folder, LARGE).stat().st_ino == number
        found = store.content(sha256(LARGE))
        assert found is not None
        assert path_of(found) == file_of(folder, LARGE)
        assert found[:] == LARGE
        store.retain([])
        assert store.content(sha256(LARGE)) is None
        store.append([contents(data)])  # what was moved once is written again
        assert file_of(folder, LARGE).read_bytes() == LARGE
        write_pieces([LARGE], store.spools)
        half = store.spools()
        half.write(LARGE)
        assert [*spooled.parent.iterdir()]
    with Store.open(folder, read_only=True) as reader:
        assert reader.content_part(sha256(LARGE), 5, 3) == LARGE[5:8]
        assert [*spooled.parent.iterdir()]
    with Store.open(folder) as store:
        assert not [*spooled.parent.iterdir()]
        file_of(folder, LARGE).write_bytes(LARGE[:-1] + b"!")
        assert store.content(sha256(LARGE)) is None
        assert "hashes to" in caplog.text


@pytest.mark.parametrize("has_links", [True, False])
def test_a_file_that_somebody_else_has_gets_a_second_name_or_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_links: bool
) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise PermissionError(errno.EPERM, "the file system has no second names", str(target))

    if not has_links:
        monkeypatch.setattr("fedchain.files.spool.os.link", refuse)
    other, folder = tmp_path / "other", tmp_path / "chain"
    other.write_bytes(LARGE)
    with Store.create(folder, GENESIS) as store:
        store.append([contents(map_file(other, sha256(LARGE)))])
    assert file_of(folder, LARGE).samefile(other) == has_links
    other.unlink()
    with Store.open(folder) as store:
        assert store.content(sha256(LARGE)) == LARGE
