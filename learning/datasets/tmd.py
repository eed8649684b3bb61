"""TMD, transportation mode detection: windows of 5 s, each 64 features of a telephone's sensors, from 13 users.

Carpineti et al., "Custom Dual Transportation Mode Detection by Smartphone Devices Exploiting Sensor Diversity"
(PerCom Workshops 2018). There is no official split.
"""

import csv
import io

import numpy as np
from numpy.typing import NDArray

from fedchain.learning.datasets.dataset import Dataset
from fedchain.learning.datasets.files import Files
from fedchain.learning.exceptions import DatasetError

FILE = "dataset_5secondWindow.csv.gz"

NOT_FEATURES = ("id", "time", "activityrecognition#0", "activityrecognition#1", "target", "user")
"""Columns that are no sensor's: the operating system's own guess would give the answer away."""

CLASSES = ("Bus", "Car", "Still", "Train", "Walking")
"""Names of the classes 0 to 4."""

TEST_EVERY = 5
"""Every fifth window of each user and class, in the file's order, is a test example."""


def read(files: Files) -> Dataset:
    """Read the windows; a value that a telephone had no sensor for becomes the mean of its column."""
    path, content = files.read(FILE, FILE.removesuffix(".gz"))
    try:
        rows = list(csv.DictReader(io.StringIO(content.decode("utf-8"))))
        columns = [name for name in (rows[0] if rows else ()) if name not in NOT_FEATURES]
        features = np.array([[float(row[name] or "nan") for name in columns] for row in rows])  # (N, 64)
        labels = np.array([CLASSES.index(row["target"]) for row in rows], dtype=np.int64)
        _, users = np.unique([row["user"] for row in rows], return_inverse=True)
    except (ValueError, TypeError, KeyError, csv.Error) as error:
        raise DatasetError(f"{path} is no table of windows: {error!r}") from error
    test = _every_fifth(labels + len(CLASSES) * users)
    if not rows or test.all() or not test.any():
        raise DatasetError(f"{path}: {len(rows)} windows are too few for a training and a test set")
    files.validate_count(path, len(rows), files.info.train_size + files.info.test_size)
    scaled = _standardise(features, ~test)
    return Dataset(
        info=files.info,
        train_images=scaled[~test],
        train_labels=labels[~test],
        test_images=scaled[test],
        test_labels=labels[test],
        train_sources=users[~test].astype(np.int64),
        test_sources=users[test].astype(np.int64),
    )


def _every_fifth(groups: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Mark every fifth example of each group."""
    chosen = np.zeros(len(groups), dtype=bool)
    for group in np.unique(groups):
        chosen[np.flatnonzero(groups == group)[TEST_EVERY - 1 :: TEST_EVERY]] = True
    return chosen


def _standardise(features: NDArray[np.float64], train: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Bring each column to mean 0 and deviation 1 over the training examples; a column without values becomes 0."""
    known = np.isfinite(features)
    values = np.where(known, features, 0.0)
    counts = np.maximum(known[train].sum(axis=0), 1)
    mean = values[train].sum(axis=0) / counts
    centred = np.where(known, features - mean, 0.0)
    deviation = np.sqrt((centred[train] ** 2).mean(axis=0))
    return (centred / np.where(deviation > 0, deviation, 1.0)).astype(np.float32)
