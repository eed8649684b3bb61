"""A file that is replaced is there whole, its owner's alone, and after a crash there is the old one or the new one."""

import ctypes
import errno
import os
import stat
import subprocess
from pathlib import Path

import pytest

from fedchain.crypto.durable import create_file, set_aside_damaged, sync_file_system, write_file


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file that is there, and that everybody may read."""
    path = tmp_path / "state"
    path.write_bytes(b"old")
    path.chmod(0o644)
    return path


def test_new_bytes_take_the_place_of_the_old_and_are_the_owner_s_alone(path: Path) -> None:
    leftover = path.with_name(f"state.{os.getpid()}.part")
    leftover.write_bytes(b"of a process that had this number before, and was killed")
    leftover.chmod(0o666)
    write_file(path, b"new")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", 0o600)
    assert os.listdir(path.parent) == ["state"]


def test_what_killed_processes_have_left_is_removed_and_nothing_else(path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    stays = {f"state.{os.getppid()}.part", f"state.{9**20}.part", "state.mine.part", "state.².part", "states.1.part"}
    for name in (*stays, f"state.{gone.pid}.part"):
        (path.parent / name).write_bytes(b"half")
    write_file(path, b"new")
    assert {*os.listdir(path.parent)} == {"state", *stays}


def test_what_is_left_of_a_file_is_known_by_its_whole_name(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    names = [f"{name}.{gone.pid}.part" for name in ("state[1]", "state1")]
    for name in names:
        (tmp_path / name).write_bytes(b"half")
    write_file(tmp_path / "state[1]", b"new")
    assert {*os.listdir(tmp_path)} == {"state[1]", names[1]}


def test_what_a_process_of_another_user_writes_is_not_removed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(process: int, signal: int) -> None:
        raise PermissionError

    monkeypatch.setattr("os.kill", refuse)
    other = path.with_name("state.1.part")
    other.write_bytes(b"half")
    write_file(path, b"new")
    assert other.exists()


def test_a_full_disk_leaves_the_old_file_and_no_half_of_a_new_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left") as raised:
        write_file(path, b"new")
    assert raised.value.filename == str(path)
    assert path.read_bytes() == b"old"
    assert os.listdir(path.parent) == ["state"]


@pytest.mark.parametrize("is_public", [False, True])
def test_a_new_file_is_there_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_public: bool
) -> None:
    path, there = tmp_path / "key", list[bool]()
    monkeypatch.setattr("os.fsync", lambda descriptor: there.append(path.exists()))
    before = os.umask(0o022)
    create_file(path, b"new", is_public=is_public)
    os.umask(before)
    assert there == [False, True]  # bytes before name, and the name before it returns
    assert path.read_bytes() == b"new"
    assert bool(stat.S_IMODE(path.stat().st_mode) & 0o077) == is_public
    assert os.listdir(tmp_path) == ["key"]


def test_a_new_file_never_takes_another_one_s_place(path: Path) -> None:
    with pytest.raises(FileExistsError):
        create_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(path.parent) == ["state"]


def test_a_folder_is_taken_for_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for write in (create_file, write_file):
        with pytest.raises(OSError, match=r"File exists|busy|Is a directory|not empty"):
            write(Path(), b"new")
    assert not os.listdir()


def test_file_and_name_are_on_the_disk_when_it_returns(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[bool, list[str]]] = []

    def sync(descriptor: int) -> None:
        synced.append((stat.S_ISDIR(os.fstat(descriptor).st_mode), os.listdir(path.parent)))

    monkeypatch.setattr("os.fsync", sync)
    write_file(path, b"new")
    (file_is_folder, before), (folder_is_folder, after) = synced
    assert (file_is_folder, folder_is_folder) == (False, True)
    assert len(before) == 2, "the bytes are there before the name is"
    assert after == ["state"]


class _Library:
    """A C library whose syncfs answers with an error, or that has none."""

    def __init__(self, *, has_syncfs: bool) -> None:
        self.asked: list[int] = []
        if has_syncfs:
            self.syncfs = self._refuse

    def _refuse(self, descriptor: int) -> int:
        self.asked.append(os.stat(descriptor).st_ino)
        ctypes.set_errno(errno.EIO)
        return -1


def test_a_file_system_that_cannot_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sync_file_system(tmp_path)
    library, calls = _Library(has_syncfs=True), list[str]()
    monkeypatch.setattr("ctypes.CDLL", lambda name, use_errno: library)
    monkeypatch.setattr("os.sync", lambda: calls.append("sync"))
    with pytest.raises(OSError, match="Input/output error"):
        sync_file_system(tmp_path)
    assert (library.asked, calls) == ([tmp_path.stat().st_ino], [])
    library = _Library(has_syncfs=False)
    sync_file_system(tmp_path)
    assert calls == ["sync"]


def test_what_is_damaged_is_set_aside_under_a_free_name(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = list[list[str]]()
    monkeypatch.setattr("os.fsync", lambda descriptor: synced.append(os.listdir(descriptor)))
    first = set_aside_damaged(path)
    path.mkdir()
    second = set_aside_damaged(path)
    path.mkdir()
    third = set_aside_damaged(path)
    assert [first.name, second.name, third.name] == ["state.damaged-1", "state.damaged-2", "state.damaged-3"]
    assert (first.read_bytes(), second.is_dir(), path.exists()) == (b"old", True, False)
    assert [len(names) for names in synced] == [1, 2, 3]
