"""CIFAR-10 and CIFAR-100, in the binary and in the Python form in which they are published."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedchain.learning.datasets.batch_file import read_batch_file
from fedchain.learning.datasets.dataset import Dataset
from fedchain.learning.datasets.files import Files
from fedchain.learning.exceptions import DatasetError

IMAGE_BYTES = 3 * 32 * 32
"""An image: red, green and blue, each 32 rows of 32 pixels."""


@dataclass(frozen=True, slots=True)
class _Form:
    """One form of publication."""

    archive: str
    """File that holds the folder."""

    folder: str
    """Folder that holds the files."""

    train: tuple[str, ...]
    """Files of training images, in order."""

    test: str
    """File of test images."""

    label_bytes: int = 0
    """Binary form: labels before each image, of which the last one counts; 0: the Python form."""

    names: tuple[str, ...] = field(init=False)
    """All files."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", (*self.train, self.test))


_FORMS = {
    "cifar10": (
        _Form(
            archive="cifar-10-binary.tar.gz",
            folder="cifar-10-batches-bin",
            train=tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
            test="test_batch.bin",
            label_bytes=1,
        ),
        _Form(
            archive="cifar-10-python.tar.gz",
            folder="cifar-10-batches-py",
            train=tuple(f"data_batch_{number}" for number in range(1, 6)),
            test="test_batch",
        ),
    ),
    "cifar100": (
        _Form("cifar-100-binary.tar.gz", "cifar-100-binary", ("train.bin",), "test.bin", label_bytes=2),
        _Form("cifar-100-python.tar.gz", "cifar-100-python", ("train",), "test"),
    ),
}


def read(files: Files) -> Dataset:
    """Read whichever form is there; of CIFAR-100 the fine labels."""
    form, contents = _find(files)
    sizes = [files.info.train_size // len(form.train)] * len(form.train) + [files.info.test_size]
    parts = []
    for (path, content), size in zip(contents, sizes, strict=True):
        images, labels = _parse(form, path, content)
        files.validate_count(path, len(labels), size)
        parts.append((images, labels))
    *train, (test_images, test_labels) = parts
    return Dataset(
        info=files.info,
        train_images=np.concatenate([images for images, _ in train]),
        train_labels=np.concatenate([labels for _, labels in train]),
        test_images=test_images,
        test_labels=test_labels,
    )


def _find(files: Files) -> tuple[_Form, Iterator[tuple[Path, bytes]]]:
    """Return form, and path and content of each file, the test's last: unpacked ones, or else an archive's."""
    forms = _FORMS[files.info.name]
    for form in forms:
        paths = files.find_all(form.folder, form.names)
        if paths is not None:
            return form, (files.read(str(paths[name].absolute())) for name in form.names)
    for form in forms:
        archive = files.find(form.archive)
        if archive is not None:
            members = files.read_members(archive, [f"{form.folder}/{name}" for name in form.names])
            return form, ((archive / name, members[f"{form.folder}/{name}"]) for name in form.names)
    for form in forms:  # some files, but not all of them: say which one is missing
        if any(files.find(f"{form.folder}/{name}") for name in form.names):
            lacking = next(name for name in form.names if not files.find(f"{form.folder}/{name}"))
            raise files.missing(f"{form.folder}/{lacking}")
    raise files.missing(forms[0].archive)


def _parse(form: _Form, path: Path, content: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the images (n, 3, 32, 32) and labels (n,) of one file."""
    if not form.label_bytes:
        return _parse_python(path, content)
    record_bytes = form.label_bytes + IMAGE_BYTES
    if not content or len(content) % record_bytes:
        raise DatasetError(f"{path}: {len(content)} bytes are no whole number of images of {record_bytes} bytes each")
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, record_bytes)
    labels = records[:, form.label_bytes - 1].astype(np.int64)
    return records[:, form.label_bytes :].reshape(-1, 3, 32, 32), labels


def _parse_python(path: Path, content: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    batch = read_batch_file(path, content)
    images, labels = batch.get("data"), batch.get("fine_labels", batch.get("labels"))
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.shape[1:] != (IMAGE_BYTES,):
        raise DatasetError(f"{path}: data must be an array (n, {IMAGE_BYTES}) of bytes")
    if not isinstance(labels, list) or not all(type(label) is int and 0 <= label < 1 << 31 for label in labels):
        raise DatasetError(f"{path}: labels must be a list of integers")
    return images.reshape(-1, 3, 32, 32), np.array(labels, dtype=np.int64)
