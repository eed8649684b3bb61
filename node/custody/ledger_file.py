"""A member's privacy ledger on disk: beside its key and its private randomness, not in the data folder.

Who loses the data folder trains anew, and posts other numbers: what was let out before still counts. The file appears
together with the private randomness. Where that is and the ledger is not, somebody has removed it, and nothing noised
is let out before it is back. It does not guard against an old copy of itself.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedchain.crypto.durable import sync_folder
from fedchain.learning.exceptions import LedgerDamaged
from fedchain.learning.privacy.ledger import PrivacyLedger
from fedchain.node.custody.journal_file import write_all


def ledger_path(secrets: Path) -> Path:
    """Where the ledger of a member lies whose private randomness is in the file `secrets`."""
    return secrets.with_suffix(".privacy")


def open_ledger(secrets: Path, member: int) -> PrivacyLedger:
    """Open the ledger beside a member's private randomness; it begins with that.

    Raises:
        LedgerDamaged: it is gone, or cannot be made.
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


def create_ledger(path: Path) -> None:
    """Let an empty ledger appear, for the owner alone, unless there is one. Raises OSError."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    sync_folder(path.parent)


class LedgerFile:
    """The bytes of a ledger, as `fedchain.learning.privacy.ledger.Disk` asks for them."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep all others out: the trainer of a node that was just killed may still be writing."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # released by the kernel when the process dies, however it dies
            yield
        finally:
            os.close(descriptor)

    def read(self) -> bytes:
        """Return everything. Raises OSError."""
        return self._path.read_bytes()

    def write(self, data: bytes, offset: int) -> None:
        """Write at a place; on the disk when this returns. Raises OSError."""
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            write_all(descriptor, data, offset)
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
