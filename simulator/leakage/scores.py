"""Scores of an attack: each image compared with the original, as is the class mean, which needs no attack.

N images, c channels of h x w pixels between 0 and 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from scipy.optimize import linear_sum_assignment

from fedchain.learning.leakage.quality import psnr, ssim


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """N images that were found, and their similarity to the originals."""

    originals: torch.Tensor
    """(N, c, h, w): for a prototype, the one of its examples that is nearest to the image that was found."""

    found: torch.Tensor
    """(N, c, h, w): the attacker's images, in the order of their originals."""

    baseline: torch.Tensor
    """(N, c, h, w): the mean image of the original's class, over examples that are not the victim's."""

    psnr: torch.Tensor
    """(N,), dB."""

    ssim: torch.Tensor
    """(N,)."""

    psnr_baseline: torch.Tensor
    """(N,), dB: PSNR of the class mean."""

    ssim_baseline: torch.Tensor
    """(N,)."""

    labels_recovered: torch.Tensor
    """(N,): 1 if the attacker knew the original's label, otherwise 0."""


def score_update(
    originals: torch.Tensor,
    labels: torch.Tensor,
    found: torch.Tensor,
    found_labels: torch.Tensor,
    class_means: torch.Tensor,
) -> Scores:
    """Compare B images that were found with a batch (B, c, h, w). The batch has no order: pairs have least error."""
    errors = (found[:, None] - originals[None]).square().flatten(2).mean(dim=2)  # (B found, B originals)
    rows, columns = linear_sum_assignment(errors.numpy())
    order = torch.empty(len(originals), dtype=torch.int64)
    order[torch.from_numpy(columns)] = torch.from_numpy(rows)
    matched, baseline = found[order], class_means[labels]
    left = found_labels.bincount(minlength=len(class_means))  # (C,)
    recovered = []
    for label in labels.tolist():
        recovered.append(float(left[label] > 0))
        left[label] -= 1
    return score_pairs(originals, matched, baseline, torch.tensor(recovered))


def score_pairs(
    originals: torch.Tensor, found: torch.Tensor, baseline: torch.Tensor, labels_recovered: torch.Tensor
) -> Scores:
    """Compare each image that was found (N, c, h, w), and its baseline, with its original."""
    return Scores(
        originals=originals,
        found=found,
        baseline=baseline,
        psnr=psnr(found, originals),
        ssim=ssim(found, originals),
        psnr_baseline=psnr(baseline, originals),
        ssim_baseline=ssim(baseline, originals),
        labels_recovered=labels_recovered,
    )


def score_prototype(examples: torch.Tensor, found: torch.Tensor, class_mean: torch.Tensor) -> Scores:
    """Compare an image that was found (c, h, w) with the best matching of the prototype's examples (n, c, h, w).

    The class mean is compared with its best match, too. Labels of prototypes are posted, so they count as recovered.
    """
    of_found, of_mean = psnr(found.expand_as(examples), examples), psnr(class_mean.expand_as(examples), examples)
    nearest = int(of_found.argmax())
    return Scores(
        originals=examples[nearest : nearest + 1],
        found=found[None],
        baseline=class_mean[None],
        psnr=of_found.max()[None],
        ssim=ssim(found.expand_as(examples), examples).max()[None],
        psnr_baseline=of_mean.max()[None],
        ssim_baseline=ssim(class_mean.expand_as(examples), examples).max()[None],
        labels_recovered=torch.ones(1),
    )


def join(scores: Sequence[Scores]) -> Scores:
    """Concatenate scores."""
    columns: dict[str, Any] = {
        item.name: torch.cat([getattr(one, item.name) for one in scores]) for item in fields(Scores)
    }
    return Scores(**columns)


def mean_images(images: torch.Tensor, labels: torch.Tensor, classes: int) -> torch.Tensor:
    """The mean image of each class, (C, c, h, w); that of all images for a class without any."""
    means = [images[labels == label].mean(dim=0) for label in range(classes)]
    overall = images.mean(dim=0)
    return torch.stack([overall if bool(mean.isnan().any()) else mean for mean in means])
