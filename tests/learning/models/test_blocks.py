"""Residual blocks: their shapes, and the way around."""

import pytest
import torch
from torch import nn

from fedchain.learning.models.blocks import EXPANSION, BasicBlock, Bottleneck, initialise_convolutions


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
