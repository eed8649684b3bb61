"""Fetching a data set's files from where they are published. Nothing here runs unless the user asked for it."""

import hashlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from fedchain.learning.datasets.catalogue import DatasetInfo, PublishedFile
from fedchain.learning.datasets.files import DATA_DIR_VARIABLE, Files, data_folder
from fedchain.learning.datasets.load import load_dataset
from fedchain.learning.exceptions import ConfigurationError, DatasetError

TIMEOUT_S = 30.0
"""A server that is silent for so long is given up."""

CHUNK_BYTES = 1 << 20

SIZE_BYTES_MAX = 1 << 30
"""No published file is larger; the largest, EMNIST's archive, has 0.56 GB."""


def download_dataset(info: DatasetInfo, data_dir: str, tell: Callable[[str], None]) -> list[Path]:
    """Fetch the published files that are missing into the data set's sub-folder, and return the new files.

    Nothing is fetched if the data set can be read as it is. `tell` is given a line before each file. Raises
    `ConfigurationError` where there is no folder to put them or no address to ask, and `DatasetError` if a file cannot
    be had or is not the published one; it is not kept then.
    """
    folder = data_folder(data_dir)
    try:
        load_dataset(info.name, folder)
    except DatasetError as error:
        problem = error
    else:
        return []
    if any(not file.url for file in info.files):
        raise ConfigurationError(f"{info.name} cannot be downloaded by name; {info.page} says how to get it")
    if not folder:
        raise ConfigurationError(f"set data_dir or {DATA_DIR_VARIABLE} to the folder for the files of {info.name}")
    files, fetched = Files(info, folder), []
    for file in info.files:
        if files.find(file.name, file.name.removesuffix(".gz")) is None:
            tell(f"fetching {file.url}")
            fetched.append(_fetch(file, Path(folder, info.folder_name)))
    if not fetched:
        raise problem
    return fetched


def _fetch(file: PublishedFile, folder: Path) -> Path:
    """Fetch one file under a temporary name, and rename it once its checksum is right."""
    path, partial = folder / file.name, folder / f"{file.name}.part"
    digest, size = hashlib.md5(usedforsecurity=False), 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DatasetError(f"{folder} cannot be made: {error.strerror}") from error
    try:
        with urllib.request.urlopen(file.url, timeout=TIMEOUT_S) as response, partial.open("wb") as target:
            while chunk := response.read(CHUNK_BYTES):
                size += len(chunk)
                if size > SIZE_BYTES_MAX:
                    raise DatasetError(f"{file.url} is larger than {SIZE_BYTES_MAX} bytes")
                digest.update(chunk)
                target.write(chunk)
        if file.md5 and digest.hexdigest() != file.md5:
            raise DatasetError(
                f"{file.url} is not the published {file.name}: MD5 {file.md5} expected, found {digest.hexdigest()} "
                f"in {size} bytes"
            )
        partial.replace(path)
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise DatasetError(f"{file.url} cannot be fetched to {folder}: {reason}") from error
    finally:
        partial.unlink(missing_ok=True)
    return path
