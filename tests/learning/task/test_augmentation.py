"""Augmentation against an oracle that goes image by image; that it is repeatable, and off unless it is chosen."""

import pytest
import torch
import torch.nn.functional as F

from fedchain.learning.config import LearningConfig
from fedchain.learning.task.augmentation import CropFlip
from fedchain.learning.worker.learner import Learner

PADDING = 4  # as nearly everybody since He et al., 2016
BLACK = torch.tensor([-1.0, -2.0, -3.0]).reshape(3, 1, 1)
IMAGES = torch.arange(64 * 3 * 6 * 5, dtype=torch.float32).reshape(64, 3, 6, 5)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_each_image_is_shifted_filled_with_black_and_perhaps_mirrored() -> None:
    same = generator()
    offsets = torch.randint(2 * PADDING + 1, (64, 2), generator=same).tolist()
    mirrored = (torch.rand(64, generator=same) < 0.5).tolist()
    found = CropFlip(BLACK)(IMAGES, generator())
    for image, (row, column), flip, result in zip(IMAGES, offsets, mirrored, found, strict=True):
        bands = [F.pad(band[None], [PADDING] * 4, value=float(fill)) for band, fill in zip(image, BLACK, strict=True)]
        padded = torch.cat(bands)
        expected = padded[:, row : row + 6, column : column + 5]
        assert torch.equal(result, expected.flip(2) if flip else expected)
    assert {value for pair in offsets for value in pair} == set(range(2 * PADDING + 1))
    assert 16 < sum(mirrored) < 48


def test_the_images_given_stay_as_they_are() -> None:
    images = IMAGES.clone()
    CropFlip(BLACK)(images, generator())
    assert torch.equal(images, IMAGES)


def test_the_generator_alone_decides() -> None:
    first, again = (CropFlip(BLACK)(IMAGES, generator(7)) for _ in range(2))
    assert torch.equal(first, again)
    assert not torch.equal(first, CropFlip(BLACK)(IMAGES, generator(8)))


@pytest.mark.parametrize("method", ["fedavg", "dfpl"])
def test_a_client_trains_on_augmented_images_repeatably_and_only_if_told_to(method: str) -> None:
    def payload(augmentation: str) -> bytes:
        config = LearningConfig(method=method, clients=5, augmentation=augmentation)
        return Learner(config).contribute(1, "update", 1, b"").payload

    assert payload("crop-flip") == payload("crop-flip") != payload("none")
