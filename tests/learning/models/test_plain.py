"""Networks that can be cut before their pooling, what may be put there, and the images that a UNet makes."""

import pytest
import torch
import torch.nn.functional as F

from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.models.plain import PlainResNet18, PooledModel
from fedchain.learning.models.registry import build_model
from fedchain.learning.models.stochastic import Kind, StochasticLayer, stochastic_layer
from fedchain.learning.models.unet import UNet, build_unet


def pooled_model(name: str) -> PooledModel:
    model = build_model(name, 3, channels=3)
    assert isinstance(model, PooledModel)
    return model.double()


@pytest.mark.parametrize("name", ["plain-cnn", "resnet18-plain-16"])
def test_a_model_is_its_extractor_the_mean_and_its_head(name: str) -> None:
    model, images = pooled_model(name), torch.randn(2, 3, 16, 16).double()
    features = model.maps(images)[-1]
    embedding, logits = model(images)
    assert features.ndim == 4
    torch.testing.assert_close(embedding, features.flatten(2).sum(dim=2) / features[0, 0].numel())
    assert torch.equal(logits, model.head(embedding))
    assert embedding.shape[1] == model.embedding_size == features.shape[1]


def test_a_convolution_stands_between_features_and_their_mean() -> None:
    model, images = pooled_model("plain-cnn"), torch.randn(2, 3, 8, 8).double()
    layer = stochastic_layer(1, 64).double()
    features = F.pad(model.maps(images)[-1], (1, 1, 1, 1))  # (2, 64, 4, 4)
    patches = torch.stack([features[:, :, y : y + 2, x : x + 2] for y in range(3) for x in range(3)], dim=2)
    perturbed = torch.einsum("bftyx,gft->bgyx", patches, layer.weight.flatten(2))
    expected = perturbed.mean(dim=(2, 3)) @ model.fc.weight.T + model.fc.bias  # type: ignore[operator, union-attr]
    torch.testing.assert_close(model.forward_through(layer, images), expected, atol=1e-12, rtol=1e-9)


def test_a_matrix_stands_behind_the_mean() -> None:
    model, images = pooled_model("plain-cnn"), torch.randn(2, 3, 8, 8).double()
    layer = stochastic_layer(1, 64, "linear").double()
    embedding, _ = model(images)
    torch.testing.assert_close(model.forward_through(layer, images), model.head(embedding @ layer.weight.T))


@pytest.mark.parametrize(("kind", "fan_in"), [("conv", 9 * 64), ("linear", 64)])
def test_every_client_has_a_layer_that_everybody_can_build(kind: Kind, fan_in: int) -> None:
    state = torch.get_rng_state()
    first, again, other = (stochastic_layer(client, 64, kind) for client in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first.weight, again.weight)
    assert not torch.equal(first.weight, other.weight)
    assert float(first.weight.std()) == pytest.approx((2 / fan_in) ** 0.5, rel=0.05)  # He et al., ICCV 2015
    assert not any(value.requires_grad for value in StochasticLayer(kind, 4).parameters())


def test_a_residual_network_starts_with_blocks_that_change_nothing() -> None:
    model = PlainResNet18(width=4).double()
    features = torch.rand(1, 4, 8, 8).double()
    torch.testing.assert_close(model.stages[0](features), features)


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
