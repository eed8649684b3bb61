"""The U-Net that encrypts images."""

import pytest
import torch

from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.models.unet import UNet, build_unet


@pytest.mark.parametrize(("width", "parameters"), [(64, 1_865_539), (32, 467_875)])
def test_the_unet_has_as_many_parameters_as_the_description_gives(width: int, parameters: int) -> None:
    assert sum(value.numel() for value in UNet(3, width).parameters()) == parameters


def test_a_unet_makes_images_of_the_same_shape_from_the_seed_alone() -> None:
    images = torch.randn(2, 1, 28, 28)
    first, again, other = (build_unet((1, 28, 28), 4, seed).eval() for seed in (1, 1, 2))
    with torch.no_grad():
        made = first(images)
        assert made.shape == images.shape
        assert torch.equal(made, again(images))
        assert not torch.equal(made, other(images))
        first.last.weight.mul_(-2)
        first.last.bias.mul_(-2)  # type: ignore[union-attr]
        torch.testing.assert_close(first(images), -2 * made, msg="its output is linear")


@pytest.mark.parametrize("shape", [(64,), (1, 30, 28)])
def test_a_unet_takes_images_that_can_be_halved_twice(shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigurationError, match="multiples of 4"):
        build_unet(shape, 4, 0)
