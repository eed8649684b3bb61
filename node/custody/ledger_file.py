"""A member's privacy ledger on disk: beside its key and its private randomness, not in the data folder.

A member that loses its data folder trains anew and posts other numbers, but its earlier releases still count. The file
is created together with the private randomness. If only the randomness is there, the ledger was removed, and no noised
value is released before it is back. The file does not guard against an old copy of itself.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedchain.crypto.durable import sync_folder
from fedchain.files.layout import NO_FILE, is_device
from fedchain.learning.exceptions import LedgerDamaged
from fedchain.learning.privacy.ledger import PrivacyLedger
from fedchain.node.custody.journal_file import write_all


def ledger_path(secrets: Path) -> Path:
    """Path of the ledger of the member whose private randomness is in the file `secrets`."""
    return secrets.with_suffix(".privacy")


def open_ledger(secrets: Path, member: int) -> PrivacyLedger:
    """Open the ledger beside a member's private randomness, or create it if neither exists.

    Raises:
        LedgerDamaged: the ledger is gone, or cannot be created.
    """
    path = ledger_path(secrets)
    try:
        if not path.exists():
            if secrets.exists():
                raise LedgerDamaged(
                    f"privacy ledger of member {member}: {path} is gone; put it back, or what has been let out is lost"
                )
            create_ledger(path)
    except OSError as error:
        raise LedgerDamaged(f"privacy ledger of member {member}: {path} cannot be made: {error.strerror}") from None
    return PrivacyLedger(member, LedgerFile(path))


def ledger_beside(secrets: str, member: int) -> PrivacyLedger:
    """The same of a trainer's plan: the path of the file with the private randomness."""
    return open_ledger(Path(secrets), member)


def create_ledger(path: Path) -> None:
    """Create an empty ledger for the owner alone, unless there is one. Raises OSError."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    sync_folder(path.parent)


class LedgerFile:
    """The bytes of a ledger; implements `fedchain.learning.privacy.ledger.Disk`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Exclude all other processes: the trainer of a node that was just killed may still be writing."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # released by the kernel when the process dies, however it dies
            yield
        finally:
            os.close(descriptor)

    def read(self, offset: int, size: int) -> bytes:
        """The bytes from a place on, at most so many. Raises OSError."""
        if is_device(self._path):
            raise OSError(f"{self._path} is {NO_FILE}")
        with self._path.open("rb") as file:
            file.seek(offset)
            return file.read(size)

    def write(self, data: bytes, offset: int) -> None:
        """Write at an offset; the bytes are on the disk when this returns. Raises OSError."""
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            write_all(descriptor, data, offset)
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
