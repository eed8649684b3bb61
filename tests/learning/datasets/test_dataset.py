"""Scaling of examples."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

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


def test_examples_are_scaled_wherever_a_users_file_has_new_numbers_put() -> None:
    """On another device than the examples the scale was none, without a word."""
    data = load_dataset("digits")
    data = replace(data, info=replace(data.info, mean=(0.25,), std=(0.5,)))  # of which nothing is known yet
    torch.set_default_device("meta")
    try:
        scaled = data.normalise(data.test_images[:3])
    finally:
        torch.set_default_device(None)
    assert np.array_equal(scaled[:, 0].numpy(), data.test_images[:3].astype(np.float32) / 8 - 0.5)
