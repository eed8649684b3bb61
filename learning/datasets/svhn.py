"""SVHN's cropped digits, in the MATLAB files in which they are published."""

import io

import numpy as np
from numpy.typing import NDArray

from fedchain.learning.datasets.dataset import Dataset
from fedchain.learning.datasets.files import Files
from fedchain.learning.exceptions import DatasetError


def read(files: Files) -> Dataset:
    """Read the training and the test file; the 531,131 extra images are left alone."""
    train_images, train_labels = _read_part(files, "train_32x32.mat", files.info.train_size)
    test_images, test_labels = _read_part(files, "test_32x32.mat", files.info.test_size)
    return Dataset(
        info=files.info,
        train_images=train_images,
        train_labels=train_labels,
        test_images=test_images,
        test_labels=test_labels,
    )


def _read_part(files: Files, name: str, size: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return images (n, 3, 32, 32) and labels (n,). The file has them as (32, 32, 3, n), and calls the zero ten."""
    from scipy.io import loadmat

    path, content = files.read(name)
    try:
        found = loadmat(io.BytesIO(content), variable_names=("X", "y"))
    except Exception as error:  # its reader raises whatever it stumbles over
        raise DatasetError(f"{path} is no MATLAB file that can be read ({type(error).__name__}: {error})") from error
    images, labels = found.get("X"), found.get("y")
    if images is None or images.dtype != np.uint8 or images.ndim != 4:
        raise DatasetError(f"{path}: X must be an array (32, 32, 3, n) of bytes")
    if labels is None or not np.issubdtype(labels.dtype, np.number) or labels.size != images.shape[3]:
        raise DatasetError(f"{path}: y must hold {images.shape[3]} labels")
    files.validate_count(path, labels.size, size)
    labels = labels.reshape(-1).astype(np.int64)
    return np.ascontiguousarray(images.transpose(3, 2, 0, 1)), np.where(labels == 10, 0, labels)
