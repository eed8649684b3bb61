"""The signing journal on disk: the statements that a key has signed on a chain, beside the key, not in the data folder.

A node that loses its data folder, or gets an old copy of it, must not sign a second time where the key has signed
already. So it writes here before it sends, and trusts no other record. Only the node interprets the bytes.

The file has a header and two slots, written in turn, so that a torn write leaves the other. Each slot holds two copies
of its record: a damaged sector of the newest record must not bring back the previous one, which would allow signing a
second time. All space is allocated when the file is created, and a write costs one fsync::

    header      4,096 bytes     magic, chain id (32), public key (32), SHA-256 of these
    slot 0      2 × 1,052,672   sequence (8), size (4), SHA-256, content; twice
    slot 1      2 × 1,052,672

Above 8,192 members the copies are larger: most of a journal are the prevotes of a quorum.

The file guards against a crash, a full disk, a damaged sector, and a disk that gives neither copy of a slot for a
while. It does not guard against an old copy of itself: a restored file is indistinguishable from one that was never
written to again.
"""

import errno
import fcntl
import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

from fedchain.crypto.address import address
from fedchain.crypto.durable import create_file, remove_left
from fedchain.crypto.hashing import HASH_SIZE, Hash, sha256
from fedchain.crypto.keys import PublicKey
from fedchain.node.config import MAY_PASS, NodeConfigError, NodeFailed

MAGIC = b"fedchain signing journal 1\n"

SECTOR_SIZE = 4_096
"""Bytes of a sector; a multiple of any disk's sector size, so that no two copies share one."""

HEADER_SIZE = SECTOR_SIZE

CONTENT_SIZE_MIN = 2**20
"""Least bytes for the content of a journal."""

PROOF_SIZE = 112
"""Bytes reserved for each member's prevote in the proof of a lock; a prevote takes up to 105."""

OWN_SIZE = 2**17
"""Bytes reserved for the rest: own votes of an attempt, and the own posts that are kept."""

_FRAME_SIZE = 8 + 4 + HASH_SIZE

REMEDY = "move it away and import an exported journal, or take a new key: signing without it may be signing twice"


class JournalError(NodeConfigError):
    """The signing journal cannot be used, so nothing may be signed; the message states the remedy, in one line."""


class BadExport(JournalError):
    """An exported journal cannot be imported, and the fault is its own; the message does not name its file."""


class JournalRefused(JournalError, NodeFailed):
    """The disk has no room for the signing journal, or does not answer; once it does, the node can be started again."""


def content_size_max(members: int) -> int:
    """Most bytes of a journal's content, in a federation with this many members."""
    needed = OWN_SIZE + PROOF_SIZE * members
    return max(CONTENT_SIZE_MIN, -(-needed // SECTOR_SIZE) * SECTOR_SIZE)


def copy_size(members: int) -> int:
    """Bytes of one of the four copies in the file: a content and its frame."""
    return content_size_max(members) + SECTOR_SIZE


def file_size(members: int) -> int:
    """Bytes of the file."""
    return HEADER_SIZE + 4 * copy_size(members)


def journal_path(key_path: Path, chain_id: Hash) -> Path:
    """Path of a key file's journal: beside the file itself, even if ``key_path`` is a link to it."""
    real = key_path.resolve()
    return real.with_name(f"{real.name}.{chain_id.hex()[:8]}.journal")


def importing_path(journal: Path) -> Path:
    """Path of the note that exists while a journal is being imported and is not complete."""
    return journal.with_suffix(".importing")


class JournalFile:
    """An open journal. Only one process has it open at a time, and only one thread writes."""

    def __init__(self, path: Path, descriptor: int, chain_id: Hash, public_key: PublicKey, members: int) -> None:
        """Use :meth:`open`."""
        self.path, self.chain_id, self.public_key = path, chain_id, public_key
        self._descriptor, self._broken = descriptor, False
        self._content_size_max, self._copy_size = content_size_max(members), copy_size(members)
        self._sequence, self._content = self._recover()

    @classmethod
    def open(cls, path: Path, chain_id: Hash, public_key: PublicKey, members: int, *, is_import: bool = False) -> Self:
        """Open the journal at ``path``, or create it.

        Args:
            path: see :func:`journal_path`.
            chain_id: 32 bytes; a journal belongs to one chain.
            public_key: 32 bytes; a journal belongs to one key.
            members: number of members of the chain, which determines the size of a journal.
            is_import: whether it is opened for an import, which may complete an interrupted one.

        Raises:
            JournalError: another process has it open, it is damaged or belongs to another chain or key, its import was
                interrupted, or the disk refuses.
        """
        note = importing_path(path)
        if not is_import and note.exists():
            raise JournalError(
                f"{path}: its import was interrupted, so what the key has signed or let out elsewhere may be missing "
                f"here; import the same export once more ({note.name} says so, and goes when that is done)"
            )
        header = MAGIC + chain_id + public_key
        try:
            if not path.exists():
                _create(path, header + sha256(header), copy_size(members))
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            _refuse(path, error)
        try:
            _lock(descriptor, path)
            remove_left(path)  # it is created once: nobody else would, and what has two names is given to nobody
            _validate_header(descriptor, path, chain_id, public_key, file_size(members))
            return cls(path, descriptor, chain_id, public_key, members)
        except OSError as error:
            os.close(descriptor)
            _refuse(path, error)
        except BaseException:
            os.close(descriptor)
            raise

    @property
    def sequence(self) -> int:
        """Number of writes so far."""
        return self._sequence

    def content(self) -> bytes | None:
        """The content that was written last; None before the first write."""
        return self._content if self._sequence else None

    def write(self, content: bytes) -> None:
        """Replace the content; it is on the disk when this returns.

        Raises:
            JournalError: the disk refuses. Its content is unknown then until the journal is opened again, so every
                further write is refused, too.
        """
        if len(content) > self._content_size_max:
            raise JournalError(f"{self.path} takes {self._content_size_max} bytes, not {len(content)}")
        if self._broken:
            raise JournalError(f"{self.path} could not be written before; start the node again")
        if content == self.content():
            return
        self._broken = True
        try:
            self._put(self._sequence + 1, content)
        except OSError as error:
            _refuse(self.path, error)
        self._sequence, self._content, self._broken = self._sequence + 1, content, False

    def close(self) -> None:
        """Release the journal for other processes; closing twice is harmless."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor, self._broken = -1, True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _put(self, sequence: int, content: bytes, copies: Collection[int] = (0, 1)) -> None:
        record = _to_record(sequence, content)
        for copy in copies:
            write_all(self._descriptor, record, self._offset(sequence, copy))
        os.fdatasync(self._descriptor)

    def _recover(self) -> tuple[int, bytes]:
        """The newest record; both of its copies are on the disk when this returns."""
        os.fdatasync(self._descriptor)  # the bytes that we read may not have reached the disk yet
        slots = [self._read_slot(slot) for slot in (0, 1)]
        found = [record for slot in slots for record in slot if record is not None]
        if not found:
            raise JournalError(f"{self.path} is damaged: none of its four records is whole; {REMEDY}")
        newest = max(found, key=lambda record: record[0])
        if missing := [copy for copy in (0, 1) if slots[newest[0] % 2][copy] != newest]:
            self._put(*newest, missing)
        return newest

    def _read_slot(self, slot: int) -> list[tuple[int, bytes] | None]:
        """Both copies of a slot. Raises OSError where the disk gives neither: the newest record may be there."""
        copies, refusals = list[tuple[int, bytes] | None](), list[OSError]()
        for copy in (0, 1):
            try:
                copies.append(self._read(slot, copy))
            except OSError as error:  # a damaged sector
                copies.append(None)
                refusals.append(error)
        if len(refusals) == len(copies):
            raise refusals[0]
        return copies

    def _read(self, slot: int, copy: int) -> tuple[int, bytes] | None:
        """Sequence and content of a copy; None if it is torn or damaged. Raises OSError."""
        data = os.pread(self._descriptor, self._copy_size, self._offset(slot, copy))
        sequence, size = int.from_bytes(data[:8], "big"), int.from_bytes(data[8:12], "big")
        content = data[_FRAME_SIZE : _FRAME_SIZE + size]
        is_whole = (
            size <= self._content_size_max
            and sequence % 2 == slot
            and _to_record(sequence, content) == data[: _FRAME_SIZE + size]
        )
        return (sequence, content) if is_whole else None

    def _offset(self, sequence: int, copy: int) -> int:
        return HEADER_SIZE + (2 * (sequence % 2) + copy) * self._copy_size


def read_identity(path: Path) -> tuple[Hash, PublicKey]:
    """Chain id and public key of the journal at ``path``; raises JournalError."""
    try:
        # As where it is written, a link is not followed; and a pipe in its place would keep a reader waiting for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            return _parse_header(os.read(descriptor, HEADER_SIZE), path)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise JournalError(f"{path} cannot be read: {error.strerror}") from None


def _create(path: Path, header: bytes, copy_size: int) -> None:
    """Create an empty journal atomically, so that a file that is too short is always damaged. Raises OSError."""
    copies = (copy.ljust(copy_size, b"\0") for copy in (_to_record(0, b""), _to_record(0, b""), b"", b""))
    with suppress(FileExistsError):  # another process's journal is never replaced
        create_file(path, b"".join((header.ljust(HEADER_SIZE, b"\0"), *copies)))


def _lock(descriptor: int, path: Path) -> None:
    try:
        # The kernel releases the lock when the process dies, however it dies.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise JournalError(f"{path} is in use: another process on this machine signs with this key") from None
    os.fchmod(descriptor, 0o600)


def _validate_header(descriptor: int, path: Path, chain_id: Hash, public_key: PublicKey, expected: int) -> None:
    size = os.fstat(descriptor).st_size
    if size != expected:
        raise JournalError(f"{path} is damaged: it has {size} bytes, not {expected}; {REMEDY}")
    found_chain_id, found_key = _parse_header(os.pread(descriptor, HEADER_SIZE, 0), path)
    if found_chain_id != chain_id:
        raise JournalError(f"{path} is of chain {found_chain_id.hex()}, not of {chain_id.hex()}")
    if found_key != public_key:
        raise JournalError(f"{path} is of the key of {address(found_key)}, not of {address(public_key)}")


def _parse_header(header: bytes, path: Path) -> tuple[Hash, PublicKey]:
    end = len(MAGIC) + 2 * HASH_SIZE
    if not header.startswith(MAGIC) or sha256(header[:end]) != header[end : end + HASH_SIZE]:
        raise JournalError(f"{path} is damaged, or no signing journal; {REMEDY}")
    return header[len(MAGIC) : len(MAGIC) + HASH_SIZE], header[len(MAGIC) + HASH_SIZE : end]


def _to_record(sequence: int, content: bytes) -> bytes:
    head = sequence.to_bytes(8, "big") + len(content).to_bytes(4, "big")
    return head + sha256(MAGIC + head + content) + content


def write_all(descriptor: int, data: bytes, offset: int) -> None:
    """Write all bytes at an offset, in as many steps as the system takes. Raises OSError."""
    done = 0
    while done < len(data):
        count = os.pwrite(descriptor, data[done:], offset + done)
        if count == 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        done += count


def _refuse(path: Path, error: OSError) -> NoReturn:
    kind, remedy = JournalError, ""
    if error.errno in (errno.EROFS, errno.EACCES):
        remedy = "; put the key file into a folder that the node may write to"
    elif error.errno in MAY_PASS:
        when = "it answers" if error.errno == errno.EIO else "there is room"
        kind, remedy = JournalRefused, f"; nothing is signed until {when}, then start the node again"
    raise kind(f"{path}: the signing journal cannot be written: {error.strerror}{remedy}") from None
