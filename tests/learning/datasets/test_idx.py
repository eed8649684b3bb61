"""Files of EMNIST, in the IDX form."""

from pathlib import Path

import numpy as np
import pytest

from fedchain.learning.datasets.load import load_dataset
from fedchain.learning.exceptions import DatasetError
from tests.learning.datasets.official import (
    emnist_files,
    pictures,
    write,
    write_idx_files,
    zip_archive,
)
from tests.support.learning.unchecked import few_rows as few_rows
from tests.support.learning.unchecked import unchecked as unchecked


@pytest.mark.usefixtures("few_rows")
def test_emnist_s_images_are_turned_upright_and_its_letters_count_from_0(tmp_path: Path) -> None:
    write(tmp_path / "emnist", emnist_files("letters", first_label=1))
    data = load_dataset("emnist-letters", str(tmp_path))
    assert np.array_equal(data.train_images, pictures(6, 28, 28).transpose(0, 2, 1))
    assert data.train_labels.tolist() == [0, 1, 2, 3, 4, 5]
    assert data.classes == 26


@pytest.mark.usefixtures("few_rows")
@pytest.mark.usefixtures("unchecked")
def test_emnist_is_read_from_its_archive(tmp_path: Path) -> None:
    write(tmp_path, {"gzip.zip": zip_archive(emnist_files("digits") | emnist_files("letters", 1))})
    data = load_dataset("emnist-digits", str(tmp_path))
    assert data.test_labels.tolist() == [0, 1, 2, 3]
    with pytest.raises(DatasetError, match=r"gzip.zip lacks the file gzip/emnist-balanced-test-images-idx3-ubyte.gz"):
        load_dataset("emnist-balanced", str(tmp_path))


def test_an_archive_is_checked_before_it_is_opened(tmp_path: Path) -> None:
    write(tmp_path, {"gzip.zip": zip_archive(emnist_files("digits")), "cifar-10-binary.tar.gz": b"not this"})
    write(tmp_path, {"cifar-100-python.tar.gz": b"nor this"})
    published = {"emnist-digits": "58c8d27c78d21e72", "cifar10": "c32a1d4ab5d03f12", "cifar100": "eb9058c3a382ffc7"}
    for name, md5 in published.items():
        with pytest.raises(DatasetError, match=f"is damaged: MD5 {md5}[0-9a-f]* expected, found"):
            load_dataset(name, str(tmp_path))


@pytest.mark.parametrize(
    ("name", "data_set", "size"),
    [
        ("train-images-idx3-ubyte", "mnist", "6 examples, 60,000"),
        ("emnist-letters-train-images-idx3-ubyte.gz", "emnist-letters", "6 examples, 124,800"),
    ],
)
def test_a_file_without_its_last_rows_is_named(tmp_path: Path, name: str, data_set: str, size: str) -> None:
    write_idx_files(tmp_path)
    write(tmp_path, emnist_files("letters", first_label=1))
    with pytest.raises(DatasetError, match=f"{name} holds {size} were published$"):
        load_dataset(data_set, str(tmp_path))
