"""Clipping, which bounds how far one example can move a sum or a mean. n examples, D numbers of each."""

import torch


def clip_rows(rows: torch.Tensor, norm: float) -> torch.Tensor:
    """Scale each row (n, D) whose L2 norm is larger down to the norm; the others, and directions, stay. In float64.

    Rows that are not finite become zeros, as of `finite_rows`.
    """
    rows = finite_rows(rows)
    return rows * clip_factors(rows, norm).unsqueeze(1)


def clip_factors(rows: torch.Tensor, norm: float) -> torch.Tensor:
    """Return the factors that clip the rows (n, D), (n,)."""
    factors: torch.Tensor = norm / torch.linalg.vector_norm(rows, dim=1).clamp(min=norm)
    return factors


def finite_rows(rows: torch.Tensor) -> torch.Tensor:
    """Return the rows (n, D) in float64, with zeros in place of each that is not finite.

    Others choose the model, and can choose one under which one example's numbers are too large: the sum of all would be
    none, and whether a member posts would show without noise whether it has such an example.
    """
    rows = rows.double()
    is_finite = rows.isfinite().all(dim=1, keepdim=True)  # (n, 1)
    return rows if bool(is_finite.all()) else torch.where(is_finite, rows, 0.0)
