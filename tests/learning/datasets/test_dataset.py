"""Scaling of examples."""

from pathlib import Path

import numpy as np
import pytest

from fedchain.learning.datasets import catalogue
from fedchain.learning.datasets.load import load_dataset
from tests.learning.datasets.official import (
    cifar10_binary_files,
    write,
)
from tests.support.learning.unchecked import few_rows as few_rows


@pytest.mark.usefixtures("few_rows")
def test_each_channel_has_its_own_scale(tmp_path: Path) -> None:
    write(tmp_path, cifar10_binary_files())
    data = load_dataset("cifar10", str(tmp_path))
    images = data.normalise(data.test_images)
    info = catalogue.DATASETS["cifar10"]
    for channel, (mean, std) in enumerate(zip(info.mean, info.std, strict=True)):
        expected = (data.test_images[:, channel] / np.float32(255) - np.float32(mean)) / np.float32(std)
        assert np.allclose(images[:, channel].numpy(), expected, atol=1e-6)
    black = data.normalise(np.zeros((1, 3, 32, 32), dtype=np.uint8))[0, :, :1, :1]
    assert np.array_equal(data.black.numpy(), black.numpy())
