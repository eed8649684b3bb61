"""Finding the files of a data set, checking them against published MD5 sums, and looking into archives."""

import gzip
import hashlib
import os
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from fedchain.files.layout import read_found
from fedchain.learning.datasets.catalogue import DatasetInfo, PublishedFile
from fedchain.learning.exceptions import DatasetError

DATA_DIR_VARIABLE = "FEDCHAIN_DATA"
"""Environment variable that names the data folder where the configuration does not."""

DAMAGED = (OSError, EOFError, ValueError, zlib.error, tarfile.TarError, zipfile.BadZipFile)
"""Errors that the libraries raise for a file that is not what its name says."""


def data_folder(data_dir: str) -> str:
    """Return the folder to look in: the one given, or the environment's; empty if there is neither."""
    return data_dir or os.environ.get(DATA_DIR_VARIABLE, "")


class Files:
    """The files of one data set in a data folder."""

    def __init__(self, info: DatasetInfo, data_dir: str) -> None:
        self.info = info
        self._data_dir = data_dir
        self._md5 = {file.name: file.md5 for file in (*info.files, *info.other_files) if file.md5}

    @property
    def folders(self) -> tuple[Path, ...]:
        """Where files are looked for: the data set's own sub-folder first, for MNIST's names are not its alone."""
        return (Path(self._data_dir, self.info.folder_name), Path(self._data_dir)) if self._data_dir else ()

    def find(self, *names: str) -> Path | None:
        """Return the first of the names that is there, whether a file or a folder."""
        return next((path for folder in self.folders for name in names if (path := folder / name).exists()), None)

    def find_published(self, file: PublishedFile) -> Path | None:
        """Return where a published file is, or where all that is read of an archive lies unpacked; None if nowhere."""
        if (packed := self.find(file.name, file.name.removesuffix(".gz"))) is not None:
            return packed
        forms = [(path, path.rpartition("/")[2]) for path in file.unpacked]
        found = [self.find(*names, *(name.removesuffix(".gz") for name in names)) for names in forms]
        return found[0].parent if found and found[0] is not None and None not in found else None

    def find_all(self, folder: str, names: Sequence[str]) -> dict[str, Path] | None:
        """Return all of the files, from the named folder or from where that would be; None unless all are there."""
        found = {name: self.find(f"{folder}/{name}", name) for name in names}
        present = {name: path for name, path in found.items() if path is not None and path.is_file()}
        return present if len(present) == len(names) else None

    def read(self, *names: str) -> tuple[Path, bytes]:
        """Return path and content of the first of the names that is there; .gz is unpacked.

        Raises `DatasetError` for a file that is missing, cannot be read, or is not the published one.
        """
        path = self.find(*names)
        if path is None:
            raise self.missing(names[0])
        try:
            content = read_found(path)
            self.validate_checksum(path, content)
            return path, gzip.decompress(content) if path.suffix == ".gz" else content
        except DAMAGED as error:
            raise DatasetError(f"{path} cannot be read ({error}){self._checksum_of(path.name)}") from error

    def read_members(self, path: Path, names: Iterable[str]) -> dict[str, bytes]:
        """Return the named files of a .zip or .tar.gz archive, which is not unpacked on the disk.

        Raises `DatasetError` as `read` does, and for a name that is not in it.
        """
        wanted, found = set(names), {}
        try:
            self.validate_checksum(path, read_found(path))
            if path.suffix == ".zip":
                with zipfile.ZipFile(path) as archive:
                    found = {name: archive.read(name) for name in wanted & set(archive.namelist())}
            else:
                with tarfile.open(path) as archive:
                    for member in archive:
                        content = archive.extractfile(member) if member.name in wanted else None
                        if content is not None:
                            found[member.name] = content.read()
        except DAMAGED as error:
            raise DatasetError(f"{path} cannot be read ({error}){self._checksum_of(path.name)}") from error
        for name in sorted(wanted - found.keys()):
            raise DatasetError(f"{path} lacks the file {name}")
        return found

    def validate_checksum(self, path: Path, content: bytes) -> None:
        """Raise `DatasetError` if an MD5 was published for a file of this name, and the content has another one."""
        expected = self._md5.get(path.name)
        if expected is None:
            return
        found = hashlib.md5(content, usedforsecurity=False).hexdigest()
        if found != expected:
            raise DatasetError(f"{path} is damaged: MD5 {expected} expected, found {found}")

    def validate_count(self, path: Path, found: int, expected: int) -> None:
        """Raise `DatasetError` unless a file holds as many examples as were published.

        A file that somebody unpacked or made has no checksum, and one without its last rows would be taken for whole.
        """
        if found != expected:
            raise DatasetError(f"{path} holds {found:,} examples, {expected:,} were published")

    def missing(self, name: str) -> DatasetError:
        """Build the error for a file that is nowhere: where it was looked for, and how to come by it."""
        file = f"{name}{self._checksum_of(name, ' (MD5 {})')}"
        if any(published.url for published in self.info.files):
            remedy = f"fedchain data {self.info.name} --download fetches it"
        else:
            remedy = f"it can be had from {self.info.page}"
        if not self._data_dir:
            return DatasetError(
                f"{self.info.name} needs {file}: set data_dir or {DATA_DIR_VARIABLE} to its folder; {remedy}"
            )
        own, above = self.folders
        return DatasetError(f"{file} is neither in {above} nor in {own}; {remedy}")

    def _checksum_of(self, name: str, form: str = "; MD5 of {name}: {}") -> str:
        """The published checksum, for a message; of an unpacked file, that of the packed one."""
        known = name if name in self._md5 else f"{name}.gz"
        return form.format(self._md5[known], name=known) if known in self._md5 else ""
