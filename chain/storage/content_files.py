"""The plain files of a stored chain: contents too large for a row of its database, and the lock of its writer.

Only their owner can read them, under any umask.
"""

import fcntl
import hashlib
import os
from collections.abc import Collection
from pathlib import Path

from fedchain.chain.exceptions import StoreCorrupt, StoreError
from fedchain.crypto.durable import sync_file, sync_folder
from fedchain.crypto.hashing import Hash, sha256
from fedchain.files.spool import MAPPED_SIZE, link_file, map_file, move_file, path_of

CONTENTS, LOCK, SPOOL = "contents", "lock", "spool"

FOLDER_MODE, FILE_MODE = 0o700, 0o600


def make_folder(folder: Path) -> None:
    """Make ``folder``, readable by its owner alone; missing folders above it get the umask's mode."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
    folder.chmod(FOLDER_MODE)  # it may have existed


def write_content(folder: Path, content_hash: Hash, data: bytes, *, is_durable: bool = True) -> None:
    """Write a file that appears under its name complete and on disk, or not at all. The caller holds the lock.

    A file of the right size is left as it is: one that is known to be damaged was deleted before. A content that need
    not be durable may be lost with the machine's power, and is written faster. A file in which it was put together is
    moved, and one that somebody else has gets a second name.
    """
    path, root = content_path(folder, content_hash), folder / CONTENTS
    if path.exists() and path.stat().st_size == len(data):
        if is_durable:  # its bytes are, but a process that was killed may have given it the name just before
            sync_folder(path.parent)
        return
    root.mkdir(mode=FOLDER_MODE, exist_ok=True)
    path.parent.mkdir(mode=FOLDER_MODE, exist_ok=True)
    if is_durable and next(path.parent.iterdir(), None) is None:  # new, or a crash came before its name was durable
        sync_folder(root)
        sync_folder(folder)
    # There is one writer and it writes one file at a time, so one temporary name does and never piles up.
    temporary, spooled = root / "incoming", path_of(data)
    temporary.unlink(missing_ok=True)
    if is_durable and spooled is not None and spooled.exists():
        sync_file(spooled)
    if not move_file(data, path) and not link_file(data, path):
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(os.open(temporary, flags, FILE_MODE), "wb") as file:
            file.write(data)
        if is_durable:
            sync_file(temporary)
        temporary.replace(path)
    if is_durable:
        sync_folder(path.parent)


def read_content(folder: Path, content_hash: Hash, size: int, *, is_verified: bool = False) -> bytes | None:
    """The ``size`` bytes that hash to ``content_hash``; None without a file. Raises StoreCorrupt if they do not.

    Large ones are read in place. They are hashed once in a process (``is_verified``), as before parts are read: the
    full check reads all of a file again, and finds what happened to it since; the next start does that.
    """
    path = content_path(folder, content_hash)
    if size > MAPPED_SIZE:
        is_here = has_content if is_verified else is_content_whole
        try:
            return map_file(path, content_hash) if is_here(folder, content_hash, size) else None
        except FileNotFoundError:
            return None
    try:
        found = path.stat().st_size
        data = path.read_bytes() if found == size else b""
    except FileNotFoundError:
        return None
    _expect(path, content_hash, size, found, sha256(data))
    return data


def is_content_whole(folder: Path, content_hash: Hash, size: int) -> bool:
    """Whether there is a file; raises StoreCorrupt as :func:`read_content` does. It is never in memory as a whole."""
    path = content_path(folder, content_hash)
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno()).st_size
            digest = hashlib.file_digest(file, "sha256").digest() if found == size else b""
    except FileNotFoundError:
        return False
    _expect(path, content_hash, size, found, digest)
    return True


def read_content_part(folder: Path, content_hash: Hash, start: int, size: int) -> bytes | None:
    """Up to ``size`` bytes from ``start`` on, unchecked; None without a file."""
    try:
        with content_path(folder, content_hash).open("rb") as file:
            file.seek(start)
            return file.read(size)
    except FileNotFoundError:
        return None


def has_content(folder: Path, content_hash: Hash, size: int) -> bool:
    """Whether there is a file of ``size`` bytes; its contents are not read."""
    try:
        return content_path(folder, content_hash).stat().st_size == size
    except FileNotFoundError:
        return False


def spool_path(folder: Path) -> Path:
    """The folder in which contents are put together."""
    return folder / CONTENTS / SPOOL


def drop_contents(folder: Path, needed: Collection[Hash]) -> None:
    """Delete the files that are not ``needed``, including those that a crash left without a row."""
    kept = {content_hash.hex() for content_hash in needed}
    for path in (folder / CONTENTS).glob("??/*"):
        if path.name not in kept:
            path.unlink()


def content_path(folder: Path, content_hash: Hash) -> Path:
    """Path of the file of a content."""
    name = content_hash.hex()
    return folder / CONTENTS / name[:2] / name


def _expect(path: Path, content_hash: Hash, size: int, found: int, digest: bytes) -> None:
    """Raise StoreCorrupt for a file of another size or hash."""
    if found != size:
        raise StoreCorrupt(f"content {content_hash.hex()} has {found} bytes, not {size}: {path}")
    if digest != content_hash:
        raise StoreCorrupt(f"content {content_hash.hex()} hashes to {digest.hex()}: {path}")


def take_lock(folder: Path) -> int:
    """Become the only process that writes to ``folder`` until the returned descriptor is closed. Raises StoreError."""
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        # The kernel releases it when the process dies, however it dies.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise StoreError(f"{folder} is in use by another process that writes to it") from None
    return descriptor
