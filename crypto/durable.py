"""Files that are on the disk when a function returns, their names included."""

import ctypes
import glob
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from fedchain.files.layout import ASIDE
from fedchain.files.spool import naming

OWNER_ONLY, PUBLIC = 0o600, 0o666


def write_file(path: Path, data: bytes) -> None:
    """Let new bytes take an old file's place whole, or not at all; nobody but the owner may use the file.

    The new bytes are first written to a file beside it. Its name holds this process's id, because a process that was
    just killed may still be writing under its own. Such files of processes that are gone are removed. Raises OSError.
    """
    _put(path, data, OWNER_ONLY, lambda part: part.replace(path))


def create_file(path: Path, data: bytes, *, is_public: bool = False) -> None:
    """As :func:`write_file`, but where a file is there already it stays, and FileExistsError is raised.

    Others may read it, as the umask lets them, if it ``is_public``.
    """
    # Unlike renaming, a link never takes another file's place.
    _put(path, data, PUBLIC if is_public else OWNER_ONLY, path.hardlink_to)


def _put(path: Path, data: bytes, mode: int, name: Callable[[Path], object]) -> None:
    """Write bytes beside ``path``, and give them its name once they are on the disk. Raises OSError."""
    part = path.parent / f"{path.name}.{os.getpid()}.part"  # "." has no name, and is refused as any other folder
    try:
        part.unlink(missing_ok=True)  # an old one may be open to others
        with naming(path), open(part, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        name(part)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)  # half a file would keep a full disk full
    sync_folder(path.parent)
    remove_left(path)


def remove_left(path: Path) -> None:
    """Remove what processes that are gone have left of a file: half of it, or another name of one that they created."""
    with suppress(OSError):  # they are of no use to anybody, and in nobody's way
        for left in path.parent.glob(f"{glob.escape(path.name)}.*.part"):
            if not _is_running(left.suffixes[-2].removeprefix(".")):
                left.unlink(missing_ok=True)


def _is_running(process: str) -> bool:
    """Whether a process has this id; what is none may be somebody else's, as if it had."""
    if not (process.isascii() and process.isdecimal() and len(process) < 10):
        return True
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def sync_file(path: Path) -> None:
    """Make the bytes of a file durable. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` durable, as fsync of a file does its bytes. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file_system(folder: Path) -> None:
    """Make durable all that anybody has written to the file system of a folder. Raises OSError.

    One by one, three hundred small files take 15 times as long.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        library = ctypes.CDLL(None, use_errno=True)
        if not hasattr(library, "syncfs"):  # macOS
            os.sync()
        elif library.syncfs(descriptor):
            raise OSError(number := ctypes.get_errno(), os.strerror(number), str(folder))
    finally:
        os.close(descriptor)


def set_aside_damaged(path: Path) -> Path:
    """Rename a damaged file or folder in one step, to a free name beside it; return the new path. Raises OSError."""
    number = 1
    while (aside := path.with_name(f"{path.name}{ASIDE}{number}")).exists():
        number += 1
    path.rename(aside)
    sync_folder(path.parent)
    return aside
