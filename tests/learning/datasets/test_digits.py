"""The handwritten digits that come with scikit-learn."""

import subprocess
import sys

import numpy as np
import pytest

from fedchain.learning.datasets import digits as reader
from fedchain.learning.datasets.load import load_dataset


def test_the_digits_are_the_library_s_with_or_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels = reader._read_file()
    monkeypatch.setattr(reader, "find_spec", lambda name: None)
    known_images, known_labels = reader._read_file()
    assert (images.dtype, labels.dtype) == (known_images.dtype, known_labels.dtype)
    assert np.array_equal(images, known_images)
    assert np.array_equal(labels, known_labels)


@pytest.mark.long
def test_who_trains_on_digits_without_noise_loads_no_large_library() -> None:
    code = """
import sys
from fedchain.learning.config import LearningConfig
from fedchain.learning.worker.learner import Learner
Learner(LearningConfig(dataset="digits", clients=4))
print({"sklearn", "scipy", "matplotlib"} & sys.modules.keys())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_the_digits_are_split_by_class() -> None:
    digits = load_dataset("digits")
    assert digits.train_images.shape == (1442, 8, 8)
    assert len(digits.test_labels) == 355
    assert len(digits.train_labels) + len(digits.test_labels) == 1797
    shares = np.bincount(digits.test_labels) / (np.bincount(digits.test_labels) + np.bincount(digits.train_labels))
    assert ((shares > 0.19) & (shares < 0.21)).all()
