"""Residual blocks: their shapes, and the way around. Maxima of windows are torch's own."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedchain.learning.models.blocks import EXPANSION, BasicBlock, Bottleneck, initialise_convolutions, max_pool


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("kind", "wider"), [(BasicBlock, 1), (Bottleneck, EXPANSION)])
def test_a_block_has_the_width_and_the_sides_that_it_says(kind: type[nn.Module], wider: int, stride: int) -> None:
    block = kind(3, 5, stride)
    assert block(torch.rand(2, 3, 8, 8)).shape == (2, 5 * wider, 8 // stride, 8 // stride)


def test_where_shapes_are_the_same_the_input_goes_around_unchanged() -> None:
    block = BasicBlock(4, 4).eval()
    nn.init.zeros_(block.bn2.weight)
    images = torch.rand(2, 4, 6, 6)
    assert torch.equal(block(images), images)
    assert not list(block.downsample.parameters())


def test_convolutions_are_drawn_by_the_number_of_their_outputs() -> None:
    convolution, linear = nn.Conv2d(8, 256, 3), nn.Linear(2, 2)
    before = linear.weight.detach().clone()
    initialise_convolutions(nn.Sequential(convolution, linear))
    assert float(convolution.weight.detach().std()) == pytest.approx((2 / (256 * 9)) ** 0.5, rel=0.05)
    assert torch.equal(linear.weight.detach(), before)


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
