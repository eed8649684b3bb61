"""Large contents go into a file piece by piece, and are read from there."""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedchain.crypto.hashing import sha256
from fedchain.files.spool import (
    InMemory,
    SpoolFolder,
    digest_of,
    map_file,
    move_file,
    path_of,
    read_in_place,
    unfinished,
    write_file_of,
    write_pieces,
    write_whole,
)

SMALL, LARGE = [b"ab", b"cd"], [bytes([number]) * 1000 for number in range(40)]


def test_small_contents_touch_no_disk(tmp_path: Path) -> None:
    spools = SpoolFolder(tmp_path / "spool", size_min=4)
    data = write_pieces(SMALL, spools)
    assert data == write_pieces(SMALL, InMemory) == b"abcd"
    assert path_of(data) is None
    assert digest_of(data) == b""
    assert not spools.folder.exists()


def test_large_contents_are_read_in_place(tmp_path: Path) -> None:
    spools, whole = SpoolFolder(tmp_path / "spool", size_min=1500), b"".join(LARGE)
    data = write_pieces(LARGE, spools)
    assert (len(data), data[1500:2500], bytes(memoryview(data))) == (len(whole), whole[1500:2500], whole)
    assert digest_of(data) == sha256(data) == sha256(whole)
    path = path_of(data)
    assert path is not None
    assert path.read_bytes() == whole
    assert path.stat().st_mode & 0o777 == 0o600


def test_whoever_forgets_a_content_deletes_its_file(tmp_path: Path) -> None:
    spools = SpoolFolder(tmp_path / "spool", size_min=10)
    gc.collect()  # other tests' files are no matter of this one
    opened = len(os.listdir("/proc/self/fd"))
    half = spools()
    half.write(LARGE[0])
    data, descriptors = write_pieces(LARGE, spools), len(os.listdir("/proc/self/fd"))
    assert len(list(spools.folder.iterdir())) == 2
    del half
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == descriptors - 1
    view = memoryview(data)
    assert [*spools.folder.iterdir()] == [path_of(data)]
    del data
    assert bytes(view[:3]) == LARGE[0][:3]  # what still looks at it keeps it
    del view
    gc.collect()
    assert not [*spools.folder.iterdir()]
    assert len(os.listdir("/proc/self/fd")) == opened


def test_a_file_that_got_its_place_stays_there(tmp_path: Path) -> None:
    data, place = write_pieces(LARGE, SpoolFolder(tmp_path / "spool", size_min=10)), tmp_path / "place"
    assert move_file(data, place)
    assert path_of(data) == place
    assert not move_file(data, tmp_path / "another")  # it is nobody's to move any more
    assert not move_file(b"".join(LARGE), tmp_path / "another")
    del data
    gc.collect()
    assert place.read_bytes() == b"".join(LARGE)
    assert sha256(map_file(place)) == sha256(b"".join(LARGE))
    assert not move_file(map_file(place), tmp_path / "another")


def test_what_a_killed_process_left_is_cleared(tmp_path: Path) -> None:
    spools = SpoolFolder(tmp_path / "spool", size_min=10)
    spools.clear()
    data = write_pieces(LARGE, spools)
    spools.clear()
    assert not [*spools.folder.iterdir()]
    assert data[:2] == b"\0\0"


@pytest.mark.parametrize("at", [0, 5])
def test_a_full_disk_is_told_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, at: int
) -> None:
    write, written = os.write, list[int]()

    def full(file: int, piece: bytes) -> int:
        written.append(len(piece))
        if len(written) > at:
            raise OSError(28, "No space left on device")
        return write(file, piece)

    monkeypatch.setattr("fedchain.files.spool.os.write", full)
    spools = SpoolFolder(tmp_path / "spool", size_min=1500)
    with pytest.raises(OSError, match="No space left") as error:
        write_pieces(LARGE, spools)
    assert error.value.filename == str(spools.folder / f"{os.getpid()}.0")
    assert "No space left" in caplog.text
    gc.collect()
    assert not [*spools.folder.iterdir()]


def test_a_disk_that_stays_full_is_told_of_once_until_it_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each content is asked for again every few seconds, for as long as the disk is full."""
    write, is_full = os.write, [True]

    def refuse(file: int, piece: bytes) -> int:
        if is_full[0]:
            raise OSError(28, "No space left on device")
        return write(file, piece)

    monkeypatch.setattr("fedchain.files.spool.os.write", refuse)
    spools = SpoolFolder(tmp_path / "spool", size_min=1500)
    for _ in range(5):
        with pytest.raises(OSError, match="No space left"):
            write_pieces(LARGE, spools)
    assert len(caplog.messages) == 1
    is_full[0] = False
    write_pieces(LARGE, spools)
    is_full[0] = True
    with pytest.raises(OSError, match="No space left"):
        write_pieces(LARGE, spools)
    assert len(caplog.messages) == 2


def test_what_the_system_did_not_take_at_once_is_written_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    monkeypatch.setattr("fedchain.files.spool.os.write", lambda file, piece: write(file, piece[:7]))
    data = write_pieces(LARGE, SpoolFolder(tmp_path / "spool", size_min=1500))
    assert data[:] == b"".join(LARGE)


def test_a_content_that_is_whole_or_lost_touches_nobody_elses_file(tmp_path: Path) -> None:
    spools = SpoolFolder(tmp_path / "spool", size_min=10)
    whole = spools()
    whole.write(bytes(20))
    data = whole.content(bytes(32))
    others = tmp_path / "another"
    with others.open("wb"):  # the system gives it the number that the spool's file had
        for use in (lambda: whole.write(bytes(20)), lambda: whole.content(bytes(32))):
            with pytest.raises(OSError, match="lost, or is whole"):
                use()
    assert (data[:], others.read_bytes()) == (bytes(20), b"")


def test_a_file_has_its_name_once_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def pieces() -> Iterator[bytes]:
        yield b"ne"
        assert path.read_bytes() == b"old"
        raise ValueError("midway")

    with pytest.raises(ValueError, match="midway"), unfinished(path) as other:
        write_file_of(pieces(), other)
    assert [found.name for found in tmp_path.iterdir()] == ["file"]
    with unfinished(path) as other:
        write_file_of([b"ne", memoryview(b"w")], other)
    assert path.read_bytes() == b"new"
    assert [found.name for found in tmp_path.iterdir()] == ["file"]


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_whole("old", path)
    (tmp_path / "file.unfinished").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as raised:
        write_whole(b"new", path)
    assert raised.value.filename == str(path)
    assert [(found.name, found.read_text()) for found in tmp_path.iterdir()] == [("file", "old")]


def test_a_file_that_cannot_be_begun_is_named_as_it_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "file"
    with pytest.raises(FileNotFoundError) as raised:
        write_whole(b"new", path)
    assert raised.value.filename == str(path)


def test_large_files_alone_are_read_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedchain.files.spool.MAPPED_SIZE", 3)
    (tmp_path / "small").write_bytes(b"abc")
    (tmp_path / "large").write_bytes(b"abcd")
    small, large = read_in_place(tmp_path / "small"), read_in_place(tmp_path / "large")
    assert (small, path_of(small)) == (b"abc", None)
    assert (large[:], path_of(large)) == (b"abcd", tmp_path / "large")
