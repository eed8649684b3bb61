"""Clipping: what bounds how far one example can move a sum or a mean. n examples, D numbers of each."""

import torch


def clip_rows(rows: torch.Tensor, norm: float) -> torch.Tensor:
    """Scale each row (n, D) whose L2 norm is larger down to the norm; the others, and directions, stay. In float64."""
    rows = rows.double()
    norms = torch.linalg.vector_norm(rows, dim=1, keepdim=True)  # (n, 1)
    clipped: torch.Tensor = rows * (norm / norms.clamp(min=norm))
    return clipped
