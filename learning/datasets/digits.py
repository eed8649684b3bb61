"""Handwritten digits of 8x8 pixels, which scikit-learn brings with it."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedchain.learning.datasets.dataset import Dataset
from fedchain.learning.datasets.files import Files

TEST_EVERY = 5
"""Every fifth image of each class, in the original order, is a test image."""

SIDE = 8
"""Height and width of an image, in pixels."""


def read(files: Files) -> Dataset:
    """Take the images from the library."""
    images, labels = _read_file()
    is_test = np.zeros(len(labels), dtype=bool)
    for label in range(10):
        is_test[np.flatnonzero(labels == label)[TEST_EVERY - 1 :: TEST_EVERY]] = True
    return Dataset(
        info=files.info,
        train_images=images[~is_test],
        train_labels=labels[~is_test],
        test_images=images[is_test],
        test_labels=labels[is_test],
    )


def _read_file() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the images (n, 8, 8) and labels (n,), as `sklearn.datasets.load_digits` does.

    The library's file is read without the library, which takes 78 MB and a second to import, where it is found.
    """
    spec = find_spec("sklearn")
    folders = spec.submodule_search_locations if spec is not None else None
    path = Path(folders[0]) / "datasets" / "data" / "digits.csv.gz" if folders else None
    if path is not None and path.is_file():
        table = np.loadtxt(path, delimiter=",", dtype=np.int64)  # (n, 65): the pixels, and the label
        return table[:, :-1].reshape(-1, SIDE, SIDE).astype(np.uint8), table[:, -1]
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return bunch.images.astype(np.uint8), bunch.target.astype(np.int64)
