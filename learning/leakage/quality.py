"""How like two images are. N images, c channels of h x w pixels between 0 and 1.

* PSNR: Horé and Ziou, "Image Quality Metrics: PSNR vs. SSIM", ICPR 2010.
* SSIM: Wang et al., "Image Quality Assessment: From Error Visibility to Structural Similarity", IEEE TIP 2004; uniform
  windows and sample covariances, as scikit-image has them by default.
"""

import torch
import torch.nn.functional as F

PSNR_MAX = 100.0
"""PSNR that two equal images count as, in dB, so that a mean over images stays finite."""

WINDOW = 7
"""Side of SSIM's windows, in pixels; smaller images have one window of an odd side that fits."""

_C1, _C2 = 0.01**2, 0.03**2
"""Wang et al., below Eq. 12, for pixels between 0 and 1."""


def psnr(images: torch.Tensor, originals: torch.Tensor) -> torch.Tensor:
    """Return the peak signal-to-noise ratio of each of two times N images (N, c, h, w), in dB (N,)."""
    error = (images - originals).square().flatten(1).mean(dim=1)  # (N,)
    return (-10 * torch.log10(error)).clamp(max=PSNR_MAX)


def ssim(images: torch.Tensor, originals: torch.Tensor) -> torch.Tensor:
    """Return the mean structural similarity of each of two times N images (N, c, h, w), at most 1 (N,)."""
    x, y = images.double(), originals.double()
    side = min(WINDOW, *(size - 1 + size % 2 for size in x.shape[2:]))
    unbiased = side**2 / (side**2 - 1)

    def mean(values: torch.Tensor) -> torch.Tensor:
        return F.avg_pool2d(values, side, stride=1)

    mean_x, mean_y = mean(x), mean(y)
    variances = unbiased * (mean(x * x) - mean_x**2 + mean(y * y) - mean_y**2)
    covariance = unbiased * (mean(x * y) - mean_x * mean_y)
    similarity = (2 * mean_x * mean_y + _C1) * (2 * covariance + _C2)
    return (similarity / ((mean_x**2 + mean_y**2 + _C1) * (variances + _C2))).flatten(1).mean(dim=1).float()
