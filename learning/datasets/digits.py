"""Handwritten digits of 8x8 pixels, which scikit-learn brings with it."""

import numpy as np

from fedchain.learning.datasets.dataset import Dataset
from fedchain.learning.datasets.files import Files

TEST_EVERY = 5
"""Of each class, every fifth image in the original order is a test image."""


def read(files: Files) -> Dataset:
    """Take the images from the library."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images, labels = bunch.images.astype(np.uint8), bunch.target.astype(np.int64)
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
