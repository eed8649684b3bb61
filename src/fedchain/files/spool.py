"""Large contents: put together piece by piece in a file, and read in place once they are whole.

A mapped file is no memory of its process: the system reads its pages when they are looked at and drops them when it
needs room. To its readers it is the bytes that it stands for, and has their type: they may ask for its length, take
slices, which are copies, and look at all of it through a view. They may not compare, add or hash it as a value.
"""

import errno
import hashlib
import itertools
import logging
import mmap
import os
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, cast

log = logging.getLogger("fedchain.files")

MAPPED_SIZE = 16 * 2**20
"""Bytes beyond which a content lies in a file that is mapped, and not in memory."""

FILE_MODE, FOLDER_MODE = 0o600, 0o700


class Spool(Protocol):
    """A content while it is put together."""

    def write(self, piece: bytes | memoryview) -> None:
        """Add a piece. Raises OSError: the disk refuses, and the content is lost."""

    def content(self, digest: bytes) -> bytes:
        """Everything that was written, whose SHA-256 is known; nothing is written any more. Raises OSError."""


Spools = Callable[[], Spool]
"""Begins a content."""


class InMemory:
    """A content that is put together in memory, however large it is."""

    def __init__(self) -> None:
        self._pieces: list[bytes | memoryview] = []

    def write(self, piece: bytes | memoryview) -> None:
        """See :class:`Spool`. The piece is copied when the content is whole."""
        self._pieces.append(piece)

    def content(self, digest: bytes) -> bytes:
        """See :class:`Spool`."""
        return b"".join(self._pieces)


class Refusals:
    """The disk's refusals in a folder, of which each retry is one: the first is logged, and the next one only after a
    content could be kept."""

    def __init__(self) -> None:
        self._is_told = False

    def tell(self, text: str, *values: object) -> None:
        """The disk has refused something."""
        if not self._is_told:
            self._is_told = True
            log.error(text, *values)

    def end(self) -> None:
        """A content was kept."""
        self._is_told = False


class SpoolFolder:
    """A folder for contents that are put together there; small ones never touch it. It begins any number of them.

    Args:
        folder: made when it is needed. One process writes there.
        size_min: bytes beyond which a content goes into a file.
    """

    def __init__(self, folder: Path, size_min: int = MAPPED_SIZE) -> None:
        self.folder, self.size_min = folder, size_min
        self._numbers, self._refusals = itertools.count(), Refusals()

    def __call__(self) -> "SpoolFile":
        """Begin a content."""
        return SpoolFile(self.folder / f"{os.getpid()}.{next(self._numbers)}", self.size_min, self._refusals)

    def clear(self) -> None:
        """Delete what a process that was killed has left. Raises OSError."""
        for path in self.folder.glob("*") if self.folder.is_dir() else ():
            path.unlink()


def cleared_folder(folder: str) -> SpoolFolder:
    """A folder in which nobody else puts contents together any more. Raises OSError."""
    spools = SpoolFolder(Path(folder))
    spools.clear()
    return spools


class SpoolFile:
    """A content that goes on in a file once it is large. The file goes with the last that knows it, or its content."""

    def __init__(self, path: Path, size_min: int, refusals: Refusals) -> None:
        self._path, self._size_min, self._refusals = path, size_min, refusals
        self._begin = InMemory()
        self._size = 0
        self._file: int | None = None
        self._undo: weakref.finalize[[Path, int], SpoolFile] | None = None

    def write(self, piece: bytes | memoryview) -> None:
        """See :class:`Spool`."""
        self._require_file()
        size = memoryview(piece).nbytes
        if self._file is None and self._size + size > self._size_min:
            self._open()
        self._size += size
        if self._file is None:
            self._begin.write(bytes(piece))
        else:
            self._write_all(piece)

    def content(self, digest: bytes) -> bytes:
        """See :class:`Spool`."""
        self._require_file()
        if self._file is None or self._undo is None:
            return self._begin.content(digest)
        data = map_file(self._path, digest, self._file, is_owned=True)
        self._undo.detach()
        os.close(self._file)
        self._refusals.end()
        return data

    def _require_file(self) -> None:
        """Raise OSError if the file is gone: its descriptor's number may be another file's by now."""
        if self._undo is not None and not self._undo.alive:
            raise OSError(errno.EBADF, "the content was lost, or is whole", str(self._path))

    def _open(self) -> None:
        try:
            self._path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._file = os.open(self._path, flags, FILE_MODE)
        except OSError as error:
            self._refusals.tell("%s cannot be made: %s", self._path, error)
            raise
        self._undo = weakref.finalize(self, _discard, self._path, self._file)
        self._write_all(self._begin.content(b""))
        self._begin = InMemory()

    def _write_all(self, piece: bytes | memoryview) -> None:
        assert self._file is not None, "it was opened"
        assert self._undo is not None, "it was opened"
        rest = memoryview(piece).cast("B")
        try:
            with naming(self._path):
                while rest:
                    rest = rest[os.write(self._file, rest) :]
        except OSError as error:
            text = "a content of more than %d bytes cannot be kept in %s: %s"
            self._refusals.tell(text, self._size, self._path, error)
            self._undo()  # half a file would keep a full disk full
            raise


class Mapped(mmap.mmap):
    """A file that is read in place."""

    path: Path
    """Where it lies."""
    digest: bytes
    """SHA-256 of its bytes, which this process has computed; empty if it has not."""
    undo: "weakref.finalize[[Path], Mapped] | None"
    """Deletes the file with this object, if nobody has given it a place of its own."""


def map_file(path: Path, digest: bytes = b"", file: int | None = None, *, is_owned: bool = False) -> bytes:
    """The bytes of a file, which is not empty, read in place. Raises OSError.

    Args:
        path: where it lies. Nobody may change it any more.
        digest: SHA-256 of its bytes, if this process has computed it.
        file: descriptor of the file, if it is open.
        is_owned: whether the file is deleted with the bytes, unless :func:`move_file` gives it another place.
    """
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC) if file is None else file
    try:
        mapped = Mapped(opened, 0, access=mmap.ACCESS_READ)
    finally:
        if file is None:
            os.close(opened)
    mapped.path, mapped.digest = path, digest
    mapped.undo = weakref.finalize(mapped, _unlink, path) if is_owned else None
    return cast("bytes", mapped)


def read_in_place(path: Path) -> bytes:
    """The bytes of a file that nobody changes any more, those of a large one in place. Raises OSError."""
    return map_file(path) if path.stat().st_size > MAPPED_SIZE else path.read_bytes()


def path_of(data: bytes) -> Path | None:
    """The file that some bytes are read from in place; None for bytes in memory."""
    found: object = data
    return found.path if isinstance(found, Mapped) else None


def digest_of(data: bytes) -> bytes:
    """SHA-256 of some bytes that are read in place, if this process has computed it; empty otherwise.

    The full check reads them all again. Their file has one writer, which is done with it, and only its owner may touch
    it; whatever else happens to it on the disk, the store's check finds when it opens the file anew.
    """
    found: object = data
    return found.digest if isinstance(found, Mapped) else b""


def move_file(data: bytes, path: Path) -> bool:
    """Give the file of some bytes that were put together another place; returns whether there is one to be moved.

    Raises OSError.
    """
    found: object = data
    if not isinstance(found, Mapped) or found.undo is None or not found.undo.alive:
        return False
    found.path.replace(path)
    found.undo.detach()
    found.path = path
    return True


def link_file(data: bytes, path: Path) -> bool:
    """Give a file that some bytes are read from in place one more name; returns whether it has got it.

    Where there is no such file any more, or the file system has no second names, the caller copies the bytes.
    """
    found = path_of(data)
    if found is None:
        return False
    try:
        os.link(found, path)
    except OSError:
        return False
    return True


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Have an OSError of the block name a file: that of a write, as on a full disk, names none."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def write_named(data: bytes, path: Path) -> None:
    """Write a file. Raises OSError, which names it, as a full disk does not."""
    with naming(path):
        path.write_bytes(data)


@contextmanager
def unfinished(path: Path) -> Iterator[Path]:
    """Give a file another name until it is whole. If the block fails, nothing is left.

    Raises OSError, which names the file as it was asked for.
    """
    other = path.with_name(path.name + ".unfinished")
    try:
        with naming(path):
            yield other
        other.replace(path)
    except OSError as error:
        error.filename = str(path) if error.filename == str(other) else error.filename
        raise
    finally:
        other.unlink(missing_ok=True)


def write_file_of(pieces: Iterable[bytes | memoryview], path: Path) -> None:
    """Write a file piece by piece. Raises OSError."""
    with path.open("wb") as file:
        for piece in pieces:
            file.write(piece)


def write_whole(data: bytes | str, path: Path) -> None:
    """Write a file, a text in UTF-8: it is there whole, or what was there before stays. Raises OSError."""
    with unfinished(path) as other:
        write_file_of([data.encode() if isinstance(data, str) else data], other)


def write_pieces(pieces: Iterable[bytes | memoryview], spools: Spools) -> bytes:
    """The content of pieces that come one after the other, hashed as they come. Raises OSError."""
    if spools is InMemory:  # which has no use for the hash
        return b"".join(pieces)
    spool, hasher = spools(), hashlib.sha256()
    for piece in pieces:
        hasher.update(piece)
        spool.write(piece)
    return spool.content(hasher.digest())


def _discard(path: Path, file: int) -> None:
    os.close(file)
    _unlink(path)


def _unlink(path: Path) -> None:
    path.unlink(missing_ok=True)
