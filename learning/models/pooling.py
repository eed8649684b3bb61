"""Maxima of 2x2 windows."""

import torch
import torch.nn.functional as F


def max_pool(values: torch.Tensor) -> torch.Tensor:
    """Return the maximum of each 2x2 window, (..., h, w) -> (..., h // 2, w // 2), as `F.max_pool2d` does.

    That function looks for the place of each maximum, one number at a time, and takes half of a small network's way
    forward. Without a gradient nobody asks for the place, and comparing whole rows and columns takes a tenth.
    """
    if torch.is_grad_enabled() and not torch.is_inference_mode_enabled():
        return F.max_pool2d(values, 2)
    height, width = values.shape[-2] // 2 * 2, values.shape[-1] // 2 * 2
    rows = torch.maximum(values[..., 0:height:2, :width], values[..., 1:height:2, :width])
    return torch.maximum(rows[..., 0::2], rows[..., 1::2])
