"""Maxima of windows are torch's own, with and without a gradient."""

import pytest
import torch
import torch.nn.functional as F

from fedchain.learning.models.pooling import max_pool


@pytest.mark.parametrize("shape", [(3, 2, 8, 6), (2, 3, 7, 9), (1, 1, 2, 2), (5, 4, 24, 24)])
def test_without_a_gradient_the_maxima_are_the_same(shape: tuple[int, ...]) -> None:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(3))
    values[values.abs() < 0.3] = 0.0  # some windows have several largest numbers
    values[0, 0, 0, 0] = float("inf")
    with torch.inference_mode():
        assert torch.equal(max_pool(values), F.max_pool2d(values, 2))
    with torch.no_grad():
        assert torch.equal(max_pool(values), F.max_pool2d(values, 2))


def test_what_is_no_number_is_passed_on() -> None:
    values = torch.arange(16.0).reshape(1, 1, 4, 4)
    values[0, 0, 1, 0] = float("nan")
    with torch.inference_mode():
        assert max_pool(values).isnan().tolist() == [[[[True, False], [False, False]]]]


def test_a_gradient_goes_to_the_first_of_the_largest_numbers() -> None:
    values = torch.ones(1, 1, 2, 4, requires_grad=True)
    (gradient,) = torch.autograd.grad(max_pool(values).sum(), values)
    assert gradient.tolist() == [[[[1.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]]]]
