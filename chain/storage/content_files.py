"""The plain files of a stored chain: contents too large for a row of its database, and the lock of its writer."""

import fcntl
import os
from collections.abc import Collection
from pathlib import Path

from fedchain.chain.exceptions import StoreCorrupt, StoreError
from fedchain.chain.storage.store import Content
from fedchain.crypto.hashing import Hash, sha256

CONTENTS, LOCK = "contents", "lock"


def write_content(folder: Path, content: Content) -> None:
    """Let the file appear under its name complete and on disk, or not at all. The caller holds the lock."""
    path, root = content_path(folder, content.hash), folder / CONTENTS
    if path.exists() and path.stat().st_size == len(content.data):
        return
    if not path.parent.exists():
        path.parent.mkdir(parents=True)
        sync_folder(root)
        sync_folder(folder)
    # There is one writer and it writes one file at a time, so one temporary name does and never piles up.
    temporary = root / "incoming"
    with temporary.open("wb") as file:
        file.write(content.data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def read_content(folder: Path, content_hash: Hash, size: int) -> bytes | None:
    """The ``size`` bytes that hash to ``content_hash``; None without a file. Raises StoreCorrupt if it holds others."""
    path = content_path(folder, content_hash)
    place = f"{path} (delete the file to have it fetched again)"
    try:
        found = path.stat().st_size
        data = path.read_bytes() if found == size else b""
    except FileNotFoundError:
        return None
    if found != size:
        raise StoreCorrupt(f"content {content_hash.hex()} has {found} bytes, not {size}: {place}")
    if sha256(data) != content_hash:
        raise StoreCorrupt(f"content {content_hash.hex()} hashes to {sha256(data).hex()}: {place}")
    return data


def read_content_part(folder: Path, content_hash: Hash, start: int, size: int) -> bytes | None:
    """Up to ``size`` bytes from ``start`` on, unchecked; None without a file."""
    try:
        with content_path(folder, content_hash).open("rb") as file:
            file.seek(start)
            return file.read(size)
    except FileNotFoundError:
        return None


def drop_contents(folder: Path, needed: Collection[Hash]) -> None:
    """Delete the files that are not ``needed``, also those that a crash left without a row."""
    kept = {content_hash.hex() for content_hash in needed}
    for path in (folder / CONTENTS).glob("??/*"):
        if path.name not in kept:
            path.unlink()


def content_path(folder: Path, content_hash: Hash) -> Path:
    """Where the file is."""
    name = content_hash.hex()
    return folder / CONTENTS / name[:2] / name


def take_lock(folder: Path) -> int:
    """Become the one process that writes to ``folder``, until the descriptor is closed. Raises StoreError."""
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # The kernel releases it when the process dies, however it dies.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise StoreError(f"{folder} is in use by another process that writes to it") from None
    return descriptor


def sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` durable, as fsync of a file does its bytes."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
