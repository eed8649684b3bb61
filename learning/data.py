"""The data sets, as bytes of pixels: scikit-learn's digits, and MNIST or Fashion-MNIST from their official files."""

import functools
import gzip
import hashlib
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
import torch
from numpy.typing import NDArray

from fedchain.learning.exceptions import DatasetError, unknown_name

DATA_DIR_VARIABLE = "FEDCHAIN_DATA"
"""Environment variable that names the data folder where the configuration does not."""

DIGITS_TEST_EVERY = 5
"""Of each class of the digits, every fifth image in the original order is a test image."""


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """Labelled images, split into training and test examples."""

    train_images: NDArray[np.uint8]
    """(N, height, width) pixels."""

    train_labels: NDArray[np.int64]
    """(N,), 0 to C - 1."""

    test_images: NDArray[np.uint8]
    """(M, height, width) pixels."""

    test_labels: NDArray[np.int64]
    """(M,), 0 to C - 1."""

    pixel_max: int
    """Largest value of a pixel."""

    mean: float
    """Mean of the training pixels after division by `pixel_max`."""

    std: float
    """Standard deviation of the training pixels after division by `pixel_max`."""

    classes: int = 10
    """Number of classes C."""

    def normalise(self, pixels: NDArray[np.uint8]) -> torch.Tensor:
        """Return (n, 1, height, width) float32 images of mean about 0 and deviation about 1."""
        scaled = torch.from_numpy(pixels.astype(np.float32)) / self.pixel_max
        return ((scaled - self.mean) / self.std).unsqueeze(1)


@dataclass(frozen=True, slots=True)
class _IdxFiles:
    """The official files of one data set."""

    md5: Mapping[str, str]
    """MD5 of each compressed file, as its publishers print it."""

    mean: float
    """As in `Dataset`."""

    std: float
    """As in `Dataset`."""


_FILES = MappingProxyType(
    {
        "mnist": _IdxFiles(
            md5={
                "train-images-idx3-ubyte": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
                "train-labels-idx1-ubyte": "d53e105ee54ea40749a09fcbcd1e9432",
                "t10k-images-idx3-ubyte": "9fb629c4189551a2d022fa330f9573f3",
                "t10k-labels-idx1-ubyte": "ec29112dd5afa0611ce80d1b7f02629c",
            },
            mean=0.1307,
            std=0.3081,
        ),
        "fashion-mnist": _IdxFiles(
            md5={
                "train-images-idx3-ubyte": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                "train-labels-idx1-ubyte": "25c81989df183df01b3e8a0aad5dffbe",
                "t10k-images-idx3-ubyte": "bef4ecab320f06d8554ea6380940ec79",
                "t10k-labels-idx1-ubyte": "bb300cfdad3c16e7a12a480ee83cd310",
            },
            mean=0.2860,
            std=0.3530,
        ),
    }
)


def load_dataset(name: str, data_dir: str = "") -> Dataset:
    """Return the named data set, read at most once per process.

    `data_dir` is the folder with the files, or its parent; empty means $FEDCHAIN_DATA. Raises `DatasetError` for
    a missing or damaged file.
    """
    if name == "digits":
        return _load_digits()
    if name not in _FILES:
        raise unknown_name("data set", name, ["digits", *_FILES])
    return _load_idx(name, data_dir or os.environ.get(DATA_DIR_VARIABLE, ""))


@functools.cache
def _load_digits() -> Dataset:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images, labels = bunch.images.astype(np.uint8), bunch.target.astype(np.int64)
    is_test = np.zeros(len(labels), dtype=bool)
    for label in range(10):
        is_test[np.flatnonzero(labels == label)[DIGITS_TEST_EVERY - 1 :: DIGITS_TEST_EVERY]] = True
    return Dataset(
        train_images=images[~is_test],
        train_labels=labels[~is_test],
        test_images=images[is_test],
        test_labels=labels[is_test],
        pixel_max=16,
        mean=0.3053,
        std=0.3760,
    )


@functools.cache
def _load_idx(name: str, data_dir: str) -> Dataset:
    files = _FILES[name]
    arrays = {file: _read_idx(_locate(name, data_dir, file), file, md5) for file, md5 in files.md5.items()}
    for part in ("train", "t10k"):
        images, labels = arrays[f"{part}-images-idx3-ubyte"], arrays[f"{part}-labels-idx1-ubyte"]
        if len(images) != len(labels):
            raise DatasetError(f"{name}: {len(images)} images but {len(labels)} labels in the {part} files")
    return Dataset(
        train_images=arrays["train-images-idx3-ubyte"],
        train_labels=arrays["train-labels-idx1-ubyte"].astype(np.int64),
        test_images=arrays["t10k-images-idx3-ubyte"],
        test_labels=arrays["t10k-labels-idx1-ubyte"].astype(np.int64),
        pixel_max=255,
        mean=files.mean,
        std=files.std,
    )


def _locate(name: str, data_dir: str, file: str) -> Path:
    """Find the file, compressed or not, in the folder or in its sub-folder of the data set's name."""
    md5 = _FILES[name].md5[file]
    if not data_dir:
        raise DatasetError(f"{name} needs {file}.gz (MD5 {md5}): set data_dir or {DATA_DIR_VARIABLE} to its folder")
    # The sub-folder comes first: MNIST and Fashion-MNIST name their files alike.
    for folder in (Path(data_dir, name), Path(data_dir)):
        for candidate in (folder / f"{file}.gz", folder / file):
            if candidate.is_file():
                return candidate
    raise DatasetError(f"{file}.gz (MD5 {md5}) is neither in {data_dir} nor in {Path(data_dir, name)}")


def _read_idx(path: Path, file: str, md5: str) -> NDArray[np.uint8]:
    """Read an IDX file of unsigned bytes: magic 0 0 8 rank, the sizes as big-endian 32-bit numbers, the bytes."""
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            found = hashlib.md5(content, usedforsecurity=False).hexdigest()
            if found != md5:
                raise DatasetError(f"{path} is damaged: MD5 {md5} expected, found {found}")
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise DatasetError(f"{path} cannot be read ({error}); MD5 of {file}.gz: {md5}") from error
    rank = 3 if "idx3" in file else 1
    if len(content) < 4 + 4 * rank or content[:4] != bytes((0, 0, 8, rank)):
        raise DatasetError(f"{path} is no IDX file of rank {rank}; MD5 of {file}.gz: {md5}")
    shape = tuple(int(size) for size in np.frombuffer(content, dtype=">u4", count=rank, offset=4))
    size_bytes = 4 + 4 * rank + int(np.prod(shape, dtype=object))
    if len(content) != size_bytes:
        raise DatasetError(f"{path}: {size_bytes} bytes expected, found {len(content)}; MD5 of {file}.gz: {md5}")
    return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * rank).reshape(shape)
