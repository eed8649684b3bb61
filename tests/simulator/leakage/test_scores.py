"""How near a found image is to the one that was there."""

import pytest
import torch

from fedchain.learning.leakage.quality import psnr, ssim
from fedchain.simulator.leakage.attack import Finding
from fedchain.simulator.leakage.report import row_of
from fedchain.simulator.leakage.scores import Scores, mean_images, score_prototype, score_update
from tests.support.simulator.leaking import chains as chains

MEASURES = ("psnr", "ssim", "psnr_baseline", "ssim_baseline", "labels_recovered")


def test_found_images_are_matched_with_originals_in_whatever_order_they_come() -> None:
    originals = torch.rand((3, 1, 8, 8), generator=torch.Generator().manual_seed(0))
    means = torch.zeros((4, 1, 8, 8))
    labels, found_labels = torch.tensor([0, 3, 3]), torch.tensor([0, 1, 3])
    scores = score_update(originals, labels, originals[[2, 0, 1]], found_labels, means)
    assert torch.equal(scores.found, originals)
    assert scores.labels_recovered.tolist() == [1.0, 1.0, 0.0], "one of the two was known"
    assert (scores.psnr > scores.psnr_baseline).all()


def test_a_prototype_is_compared_with_the_example_that_suits_best_and_so_is_the_class_mean() -> None:
    examples = torch.rand((5, 1, 8, 8), generator=torch.Generator().manual_seed(0))
    scores = score_prototype(examples, examples[2], examples[4])
    assert torch.equal(scores.originals, examples[2:3])
    assert scores.psnr.item() == scores.psnr_baseline.item() == 100.0


def test_a_class_without_examples_has_the_mean_of_all() -> None:
    images = torch.stack([torch.zeros((1, 2, 2)), torch.ones((1, 2, 2))])
    means = mean_images(images, torch.tensor([0, 2]), 3)
    assert means.mean(dim=(1, 2, 3)).tolist() == [0.0, 0.5, 1.0]


def test_each_measure_takes_the_example_that_suits_it_best() -> None:
    noise = torch.rand((1, 8, 8), generator=torch.Generator().manual_seed(0)) - 0.5
    found, flat, lighter = 0.5 + 0.1 * noise, torch.full((1, 8, 8), 0.5), 0.7 + 0.1 * noise
    scores = score_prototype(torch.stack([flat, lighter]), found, found)
    assert torch.equal(scores.originals[0], flat)
    assert scores.psnr.item() == scores.psnr_baseline.item() == psnr(found[None], flat[None]).item()
    of_flat, of_lighter = (ssim(found[None], one[None]).item() for one in (flat, lighter))
    assert of_flat < of_lighter == scores.ssim.item() == scores.ssim_baseline.item()


def test_a_line_of_the_table_has_the_means_of_what_its_columns_say() -> None:
    values = {name: torch.tensor([low, low + 2.0]) for low, name in enumerate(MEASURES)}
    pictures = {name: torch.zeros((2, 1, 8, 8)) for name in ("originals", "found", "baseline")}
    row = row_of(Finding("posts", "attack", Scores(**pictures, **values)))
    assert (row.posts, row.attack, row.images) == ("posts", "attack", 2)
    assert (row.psnr, row.ssim, row.psnr_class_mean, row.ssim_class_mean, row.labels_recovered) == (1, 2, 3, 4, 5)
    assert row.psnr_deviation == pytest.approx(2**0.5)
