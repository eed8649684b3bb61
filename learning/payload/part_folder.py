"""Where the bytes of parts lie on a machine: a file for each, under its hash. A node and its trainer share a folder."""

import contextlib
import os
import threading
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Protocol

from fedchain.crypto.durable import sync_folder
from fedchain.crypto.hashing import HASH_SIZE, Hash, sha256
from fedchain.files.spool import naming
from fedchain.learning.exceptions import PartMissing

FOLDER_MODE, FILE_MODE = 0o700, 0o600

PARTS = "parts"
"""Name of that folder in a node's."""


class PartStore(Protocol):
    """The store of parts, as a contributor's computation uses it."""

    def read(self, part_hash: Hash) -> bytes:
        """The bytes of a part; raises `PartMissing`."""

    def write(self, part_hash: Hash, data: bytes) -> None:
        """Keep a part; durable on return. Raises OSError where the disk refuses, and then nothing of it is there."""


class PartFolder:
    """Parts in a folder. A file appears under its name whole or not at all, and is checked by its hash when read."""

    def __init__(self, folder: Path, *, is_durable: bool = True) -> None:
        self._folder, self._is_durable = folder, is_durable
        self._checked: set[Hash] = set()  # files whose hash was seen to be right, of which others may have a part

    def has(self, part_hash: Hash) -> bool:
        """Whether there is a file for it."""
        return self._path(part_hash).exists()

    def read(self, part_hash: Hash) -> bytes:
        """See `PartStore`. A file that holds something else is deleted, so that the part can be fetched again."""
        path = self._path(part_hash)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise PartMissing(f"part {part_hash.hex()} is not here") from None
        except OSError as error:
            raise PartMissing(f"part {part_hash.hex()} cannot be read: {error}") from None
        if sha256(data) != part_hash:
            path.unlink(missing_ok=True)
            raise PartMissing(f"part {part_hash.hex()} was damaged on the disk")
        return data

    def read_range(self, part_hash: Hash, start: int, size: int) -> bytes | None:
        """Up to `size` bytes from `start` on; a file is checked before its first bytes are given, and then no more."""
        try:
            if part_hash not in self._checked:
                self.read(part_hash)
                self._checked.add(part_hash)
            with self._path(part_hash).open("rb") as file:
                file.seek(start)
                return file.read(size)
        except (OSError, PartMissing):
            return None

    def write(self, part_hash: Hash, data: bytes) -> None:
        """See `PartStore`."""
        path = self._path(part_hash)
        with contextlib.suppress(PartMissing):
            self.read(part_hash)  # what is damaged is written again
            if self._is_durable:  # its bytes are, but a process that was killed may have given it the name just before
                sync_folder(path.parent)
            return
        path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.part")
        if self._is_durable and next(path.parent.iterdir(), None) is None:  # new, or a crash came before it was durable
            sync_folder(self._folder)
            sync_folder(self._folder.parent)
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
            with naming(path), open(descriptor, "wb") as file:
                file.write(data)
                if self._is_durable:
                    file.flush()
                    os.fsync(file.fileno())
            temporary.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        if self._is_durable:
            sync_folder(path.parent)

    def keep_only(self, needed: Collection[Hash]) -> None:
        """Delete all files but those of `needed` parts, also files that a crash left half-written."""
        kept = {part_hash.hex() for part_hash in needed}
        self._checked.intersection_update(needed)
        for path in self._folder.glob("??/*"):
            if path.name not in kept and not self._is_being_written(path):
                with contextlib.suppress(OSError):  # what a failing disk does not let go of is tried again later
                    path.unlink(missing_ok=True)

    def hashes(self) -> Iterator[Hash]:
        """Hashes of the parts that have a file."""
        for path in self._folder.glob("??/*"):
            if not path.suffix and len(path.name) == 2 * HASH_SIZE:
                yield bytes.fromhex(path.name)

    def size_bytes(self) -> int:
        """Bytes of all parts."""
        return sum(path.stat().st_size for path in self._folder.glob("??/*"))

    def _is_being_written(self, path: Path) -> bool:
        """Whether a live process of this machine writes the file, as a trainer may beside its node."""
        if path.suffix != ".part":
            return False
        pid = path.suffixes[-2].removeprefix(".").partition("-")[0] if len(path.suffixes) > 1 else ""
        return pid.isdigit() and Path(f"/proc/{pid}").exists()

    def _path(self, part_hash: Hash) -> Path:
        name = part_hash.hex()
        return self._folder / name[:2] / name


def parts_in(folder: str, client: int) -> PartFolder:
    """The parts of a member that has the folder for itself."""
    return PartFolder(Path(folder))


def parts_of_each(folder: str, client: int) -> PartFolder:
    """The parts of one of many members on one machine: in a folder of its number."""
    return PartFolder(Path(folder) / str(client), is_durable=False)


class LinkedPartFolder(PartFolder):
    """The folder of one of many members on one machine: a part that several of them have is there once.

    Args:
        folder: this member's.
        known: of all members: a file for each part that any of them has written or fetched.
    """

    def __init__(self, folder: Path, known: dict[Hash, Path]) -> None:
        super().__init__(folder, is_durable=False)
        self._known = known

    def write(self, part_hash: Hash, data: bytes) -> None:
        """See `PartStore`."""
        path = self._path(part_hash)
        path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        try:
            os.link(self._known[part_hash], path)
        except FileExistsError:
            return
        except (KeyError, FileNotFoundError):
            super().write(part_hash, data)
            self._known[part_hash] = path

    def adopt(self, part_hashes: Collection[Hash]) -> None:
        """Note parts that a process beside this one has written for the member."""
        for part_hash in part_hashes:
            self._known[part_hash] = self._path(part_hash)


class PartMemory:
    """Parts of one process, for a simulation without a network or a test: no other process fetches them."""

    def __init__(self) -> None:
        self._parts: dict[Hash, bytes] = {}

    def read(self, part_hash: Hash) -> bytes:
        """See `PartStore`."""
        try:
            return self._parts[part_hash]
        except KeyError:
            raise PartMissing(f"part {part_hash.hex()} is not here") from None

    def write(self, part_hash: Hash, data: bytes) -> None:
        """See `PartStore`."""
        self._parts[part_hash] = data
