"""The table of the transportation-mode data set."""

import csv
import gzip
import io
from pathlib import Path

import numpy as np
import pytest

from fedchain.learning.datasets import tmd
from fedchain.learning.datasets.load import load_dataset
from fedchain.learning.exceptions import DatasetError
from tests.learning.datasets.official import (
    write,
)
from tests.support.learning.unchecked import few_rows as few_rows


def _table(rows: list[dict[str, object]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return gzip.compress(text.getvalue().encode())


def _windows(count: int) -> list[dict[str, object]]:
    """Windows of two users in two classes; the first feature is missing in every third row, the last is constant."""
    return [
        {
            "id": place,
            "time": 1.0,
            "activityrecognition#0": "",
            "activityrecognition#1": 100.0,
            "sensor0": "" if place % 3 == 0 else place,
            **{f"sensor{number}": number * place for number in range(1, 63)},
            "sensor63": 7.0,
            "target": ("Car", "Walking")[place % 2],
            "user": ("u01", "u02")[place // 2 % 2],
        }
        for place in range(count)
    ]


@pytest.mark.usefixtures("few_rows")
def test_tmd_is_standardised_and_what_is_missing_becomes_the_mean(tmp_path: Path) -> None:
    write(tmp_path, {"tmd/dataset_5secondWindow.csv.gz": _table(_windows(60))})
    data = load_dataset("tmd", str(tmp_path))
    assert data.train_images.shape == (48, 64)
    assert data.test_images.shape == (12, 64)
    assert np.abs(data.train_images.mean(axis=0)).max() < 1e-6
    assert np.allclose(data.train_images.std(axis=0)[:-1], 1, atol=1e-5)
    assert (data.train_images[:, -1] == 0).all()
    assert ((data.train_images[:, 0] == 0).sum(), (data.test_images[:, 0] == 0).sum()) == (16, 4)
    assert set(data.train_labels.tolist()) == {tmd.CLASSES.index("Car"), tmd.CLASSES.index("Walking")}
    assert data.test_sources is not None
    assert np.bincount(data.test_sources).tolist() == [6, 6]


@pytest.mark.usefixtures("few_rows")
def test_every_fifth_window_of_each_user_and_class_is_a_test_example(tmp_path: Path) -> None:
    """None of four is, however many windows other users have."""
    rows = [row | {"target": "Car", "user": "u01" if place < 4 else "u02"} for place, row in enumerate(_windows(11))]
    write(tmp_path, {"tmd/dataset_5secondWindow.csv.gz": _table(rows)})
    data = load_dataset("tmd", str(tmp_path))
    assert data.test_sources is not None
    assert data.test_sources.tolist() == [1]
    shift = data.test_images[0, 2] / data.train_images[3, 2]  # of places, less the mean place
    mean = (sum(range(11)) - 8) / 10
    assert shift == pytest.approx((8 - mean) / (3 - mean), rel=1e-5)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (_table(_windows(3)), "3 windows are too few"),
        (_table(_windows(60)), r"dataset_5secondWindow.csv.gz holds 60 examples, 5,893 were published$"),
        (_table([{"target": "Flying", "user": "u01", "a": 1.0}]), "is no table of windows"),
        (_table([{"user": "u01", "a": "x"}]), "is no table of windows"),
        (b"not this", "cannot be read"),
    ],
    ids=["too few", "rows missing", "unknown class", "no number", "not compressed"],
)
def test_another_table_than_tmd_s_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    write(tmp_path, {"dataset_5secondWindow.csv.gz": content})
    with pytest.raises(DatasetError, match=message):
        load_dataset("tmd", str(tmp_path))
