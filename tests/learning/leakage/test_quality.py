"""PSNR and SSIM are what scikit-image 0.26 calculates; `similarities.json` has its values."""

import json
from pathlib import Path

import pytest
import torch

from fedchain.learning.leakage.quality import PSNR_MAX, psnr, ssim

CASES = json.loads((Path(__file__).parent / "similarities.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES, ids=["grey", "oblong", "colour"])
def test_scores_are_those_of_a_known_implementation(case: dict[str, object]) -> None:
    image, original = torch.tensor(case["image"])[None], torch.tensor(case["original"])[None]
    assert psnr(image, original).item() == pytest.approx(case["psnr"], abs=1e-4)
    assert ssim(image, original).item() == pytest.approx(case["ssim"], abs=1e-5)


def test_equal_images_have_the_highest_scores_and_each_image_its_own() -> None:
    images = torch.rand((2, 1, 8, 8), generator=torch.Generator().manual_seed(0))
    assert psnr(images, images).tolist() == [PSNR_MAX, PSNR_MAX]
    assert ssim(images, images).tolist() == pytest.approx([1.0, 1.0])
    other = torch.stack([images[0], 1 - images[1]])
    assert psnr(other, images)[0] == PSNR_MAX
    assert psnr(other, images)[1] < 20


def test_a_small_image_has_one_window() -> None:
    images = torch.rand((1, 1, 4, 4), generator=torch.Generator().manual_seed(0))
    assert -1 <= ssim(images, images.flip(2)).item() < 1
