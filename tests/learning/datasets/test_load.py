"""Finding files, checksums, and what is said where something is missing; on MNIST's form."""

from pathlib import Path

import numpy as np
import pytest

from fedchain.learning.datasets.load import load_dataset
from fedchain.learning.exceptions import ConfigurationError, DatasetError
from tests.learning.datasets.official import idx, write_idx_files
from tests.support.learning.unchecked import few_rows as few_rows


def test_images_are_normalised() -> None:
    digits = load_dataset("digits")
    images = digits.normalise(digits.train_images)
    assert images.shape == (1442, 1, 8, 8)
    assert abs(float(images.mean())) < 0.01
    assert abs(float(images.std()) - 1) < 0.01


def test_each_pixel_can_be_standardised_by_itself_over_training_and_test_images() -> None:
    digits = load_dataset("digits")
    pixels = np.concatenate([digits.train_images, digits.test_images]).astype(np.float64)
    expected = (pixels - pixels.mean(axis=0)) / (pixels.std(axis=0) + 0.001)
    images = digits.normalise(digits.test_images, "pixel")
    assert images.shape == (355, 1, 8, 8)
    assert np.allclose(images[:, 0], expected[len(digits.train_images) :], atol=1e-4)
    assert not np.allclose(images, digits.normalise(digits.test_images), atol=0.1)


def test_a_data_set_is_read_once() -> None:
    assert load_dataset("digits") is load_dataset("digits", "anywhere")


@pytest.mark.usefixtures("few_rows")
def test_a_label_without_a_class_is_refused(tmp_path: Path) -> None:
    write_idx_files(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx(np.array([0, 3, 10, 2])))
    with pytest.raises(DatasetError, match="test labels must be 0 to 9, not 0 to 10"):
        load_dataset("mnist", str(tmp_path))


def test_an_unknown_data_set_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="did you mean 'mnist'"):
        load_dataset("mnits")
