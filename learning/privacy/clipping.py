"""Clipping, which bounds how far one example can move a sum or a mean. n examples, D numbers of each."""

import torch


def clip_rows(rows: torch.Tensor, norm: float) -> torch.Tensor:
    """Scale each row (n, D) whose L2 norm is larger down to the norm; the others, and directions, stay. In float64."""
    rows = rows.double()
    return rows * clip_factors(rows, norm).unsqueeze(1)


def clip_factors(rows: torch.Tensor, norm: float) -> torch.Tensor:
    """Return the factors that clip the rows (n, D), (n,)."""
    factors: torch.Tensor = norm / torch.linalg.vector_norm(rows, dim=1).clamp(min=norm)
    return factors
