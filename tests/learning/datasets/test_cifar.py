"""Files of CIFAR-10 and CIFAR-100."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedchain.learning.datasets.load import load_dataset
from fedchain.learning.exceptions import DatasetError
from tests.learning.datasets.official import (
    cifar10_binary_files,
    cifar_binary,
    cifar_python,
    pictures,
    tar_gz,
    write,
)
from tests.support.learning.unchecked import few_rows as few_rows
from tests.support.learning.unchecked import unchecked as unchecked

CIFAR10_LABELS = [0, 1, 1, 2, 2, 3, 3, 4, 4, 5]


@pytest.mark.usefixtures("few_rows")
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("place", ["archive", "folder", "in the folder", "sub-folder"])
def test_cifar10_s_binary_form_is_read(tmp_path: Path, place: str) -> None:
    files, data_dir = cifar10_binary_files(), tmp_path
    if place == "archive":
        files = {"cifar-10-binary.tar.gz": tar_gz(files)}
    write(tmp_path / "cifar10" if place == "sub-folder" else tmp_path, files)
    if place == "in the folder":
        data_dir = tmp_path / "cifar-10-batches-bin"
    data = load_dataset("cifar10", str(data_dir))
    assert data.train_labels.tolist() == CIFAR10_LABELS
    assert data.test_labels.tolist() == [5, 6]
    assert np.array_equal(data.test_images, pictures(2, 3, 32, 32))
    assert data.normalise(data.train_images).shape == (10, 3, 32, 32)


@pytest.mark.usefixtures("few_rows")
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    "pack", [dict, lambda files: {"cifar-10-python.tar.gz": tar_gz(files)}], ids=["folder", "archive"]
)
def test_cifar10_s_python_form_is_read(tmp_path: Path, pack: Callable[[dict[str, bytes]], dict[str, bytes]]) -> None:
    names = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    files = {f"cifar-10-batches-py/{name}": cifar_python([place, place + 1]) for place, name in enumerate(names)}
    write(tmp_path, pack(files))
    data = load_dataset("cifar10", str(tmp_path))
    assert data.train_labels.tolist() == CIFAR10_LABELS
    assert np.array_equal(data.test_images, pictures(2, 3, 32, 32))


@pytest.mark.usefixtures("few_rows")
def test_cifar100_s_forms_are_read_with_the_fine_labels(tmp_path: Path) -> None:
    binary = {"train.bin": cifar_binary([(3, 99), (19, 0)]), "test.bin": cifar_binary([(1, 42)])}
    write(tmp_path / "b" / "cifar-100-binary", binary)
    python = {"train": cifar_python([99, 0], "fine_labels"), "test": cifar_python([42], "fine_labels")}
    write(tmp_path / "p" / "cifar-100-python", python)
    for folder in ("b", "p"):
        data = load_dataset("cifar100", str(tmp_path / folder))
        assert data.train_labels.tolist() == [99, 0]
        assert data.test_labels.tolist() == [42]
        assert np.array_equal(data.train_images, pictures(2, 3, 32, 32))


def test_a_missing_batch_is_named(tmp_path: Path) -> None:
    files = cifar10_binary_files()
    del files["cifar-10-batches-bin/data_batch_3.bin"]
    write(tmp_path, files)
    with pytest.raises(DatasetError, match=f"^cifar-10-batches-bin/data_batch_3.bin is neither in {tmp_path} nor in"):
        load_dataset("cifar10", str(tmp_path))


@pytest.mark.usefixtures("few_rows")
def test_a_batch_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    files = cifar10_binary_files()
    files["cifar-10-batches-bin/data_batch_3.bin"] = files["cifar-10-batches-bin/data_batch_3.bin"][:-1]
    write(tmp_path, files)
    with pytest.raises(DatasetError, match=r"data_batch_3.bin: 6145 bytes are no whole number of images of 3073 bytes"):
        load_dataset("cifar10", str(tmp_path))


def test_a_batch_without_its_last_images_is_named(tmp_path: Path) -> None:
    write(tmp_path, cifar10_binary_files())
    with pytest.raises(DatasetError, match=r"data_batch_1.bin holds 2 examples, 10,000 were published$"):
        load_dataset("cifar10", str(tmp_path))
