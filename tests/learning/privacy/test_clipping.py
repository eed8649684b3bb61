"""Rows are clipped."""

import math

import torch

from fedchain.learning.privacy.clipping import clip_rows
from fedchain.learning.privacy.noise import normals
from fedchain.learning.sums.secrets import ROOT_SIZE, Secrets

MINE = Secrets(0, bytes(range(ROOT_SIZE)))


def test_long_rows_are_clipped_and_short_ones_stay() -> None:
    rows = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    clipped = torch.tensor([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]], dtype=torch.float64)
    assert torch.allclose(clip_rows(rows, 1.0), clipped, rtol=1e-7)
    drawn = torch.from_numpy(normals(30_000, MINE, "rows").reshape(1000, 30))
    assert torch.linalg.vector_norm(clip_rows(drawn, 4.0), dim=1).max() <= 4.0 * (1 + 1e-12)


def test_a_row_that_is_not_finite_counts_nothing() -> None:
    rows = torch.tensor([[3.0, 4.0], [math.inf, 1.0], [0.5, math.nan]])
    assert clip_rows(rows, 2.5).tolist() == [[1.5, 2.0], [0.0, 0.0], [0.0, 0.0]]
