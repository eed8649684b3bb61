"""IDX files, as MNIST, Fashion-MNIST and EMNIST are published."""

import gzip
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedchain.learning.datasets.dataset import Dataset
from fedchain.learning.datasets.files import DAMAGED, Files
from fedchain.learning.exceptions import DatasetError

EMNIST_ARCHIVE = "gzip.zip"
"""EMNIST is published as one archive, whose files are compressed once more."""


def read(files: Files) -> Dataset:
    """Read the four files of the catalogue, compressed or not: images and labels for training, and for the test."""
    names = [file.name for file in files.info.files]
    with ThreadPoolExecutor() as pool:  # unpacking them is most of the time, and waits for nothing of Python
        found = pool.map(lambda name: files.read(name, name.removesuffix(".gz")), names)
        return _build(files, [_parse_whole(files, name, *file) for name, file in zip(names, found, strict=True)])


def read_emnist(files: Files) -> Dataset:
    """Read one of EMNIST's splits, whose images lie on their side, and whose letters are numbered from 1."""
    kinds = ("train-images-idx3", "train-labels-idx1", "test-images-idx3", "test-labels-idx1")
    names = [f"{files.info.name}-{kind}-ubyte.gz" for kind in kinds]
    found = zip(names, _emnist_files(files, names), strict=True)
    arrays = [_parse_whole(files, name, *file) for name, file in found]
    upright = [array.transpose(0, 2, 1) if array.ndim == 3 else array for array in arrays]
    if files.info.name == "emnist-letters":
        upright = [array - 1 if array.ndim == 1 else array for array in upright]
    return _build(files, upright)


def _emnist_files(files: Files, names: list[str]) -> list[tuple[Path, bytes]]:
    """Return paths and contents: of files that somebody unpacked, or else from the archive."""
    forms = {name: (name, f"gzip/{name}", name.removesuffix(".gz")) for name in names}
    archive = files.find(EMNIST_ARCHIVE)
    if files.find(*forms[names[0]]):
        return [files.read(*forms[name]) for name in names]
    if archive is None:
        raise files.missing(EMNIST_ARCHIVE)
    members = files.read_members(archive, [f"gzip/{name}" for name in names])
    try:
        return [(archive / member, gzip.decompress(members[member])) for member in (f"gzip/{name}" for name in names)]
    except DAMAGED as error:
        raise DatasetError(f"{archive} cannot be read ({error})") from error


def _parse_whole(files: Files, name: str, path: Path, content: bytes) -> NDArray[np.uint8]:
    """Read one file of training or of test examples."""
    array = parse(path, content)
    files.validate_count(path, len(array), files.info.train_size if "train" in name else files.info.test_size)
    return array


def parse(path: Path, content: bytes) -> NDArray[np.uint8]:
    """Read unsigned bytes: magic 0 0 8 rank, the sizes as big-endian 32-bit numbers, the bytes."""
    rank = 3 if "idx3" in path.name else 1
    if len(content) < 4 + 4 * rank or content[:4] != bytes((0, 0, 8, rank)):
        raise DatasetError(f"{path} is no IDX file of rank {rank}")
    shape = tuple(int(size) for size in np.frombuffer(content, dtype=">u4", count=rank, offset=4))
    size_bytes = 4 + 4 * rank + int(np.prod(shape, dtype=object))
    if len(content) != size_bytes:
        raise DatasetError(f"{path}: {size_bytes} bytes expected, found {len(content)}")
    return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * rank).reshape(shape)


def _build(files: Files, arrays: list[NDArray[np.uint8]]) -> Dataset:
    train_images, train_labels, test_images, test_labels = arrays
    return Dataset(
        info=files.info,
        train_images=train_images,
        train_labels=train_labels.astype(np.int64),
        test_images=test_images,
        test_labels=test_labels.astype(np.int64),
    )
