"""Layers of random matrices that everybody can build."""

import pytest
import torch
import torch.nn.functional as F

from fedchain.learning.models.stochastic import Kind, StochasticLayer, stochastic_layer
from tests.support.learning.pooled import pooled_model


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
