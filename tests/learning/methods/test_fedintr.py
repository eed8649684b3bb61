"""FedIntR against its formulas."""

import math

import pytest
import torch
import torch.nn.functional as F

from fedchain.learning.methods.fedintr import FedIntR
from fedchain.learning.methods.moon import Others
from fedchain.learning.models.registry import build_model
from tests.learning.methods.toy import COMMON, CROSS_ENTROPY, EMBEDDING, PREVIOUS, loss_of


def test_fedintrs_loss_weights_the_layers_by_their_similarity() -> None:
    layers, common, previous = (
        torch.cat([tensor, tensor.square()[:, :2]], 1) for tensor in (EMBEDDING, COMMON, PREVIOUS)
    )
    positive, terms = [], []
    for part in (slice(0, 3), slice(3, 5)):
        p = float(F.cosine_similarity(layers[:, part], common[:, part]).mean()) / 0.5
        n = float(F.cosine_similarity(layers[:, part], previous[:, part]).mean()) / 0.5
        positive.append(math.exp(p))
        terms.append(-math.log(math.exp(p) / (math.exp(p) + math.exp(n))))
    alphas = [share / sum(positive) for share in positive]
    expected = CROSS_ENTROPY + 0.7 * sum(a * term for a, term in zip(alphas, terms, strict=True))
    assert loss_of(FedIntR(), Others(common, previous, 0.7, (3, 2)), layers) == pytest.approx(expected, rel=1e-12)
    assert loss_of(FedIntR(), Others(common, previous, 0.0, (3, 2)), layers) == pytest.approx(CROSS_ENTROPY, rel=1e-12)


def test_the_weights_of_the_layers_have_a_gradient() -> None:
    """As in the authors' code: what raises a layer's similarity also raises its weight."""
    layers, common, previous = (
        torch.cat([tensor, tensor.square()[:, :2]], 1) for tensor in (EMBEDDING, COMMON, PREVIOUS)
    )
    parts, found = (slice(0, 3), slice(3, 5)), layers.clone().requires_grad_()
    logits = torch.zeros(len(layers), 4, dtype=layers.dtype)
    labels, given = torch.zeros(len(layers), dtype=torch.int64), Others(common, previous, 0.7, (3, 2))
    FedIntR().loss(lambda _: (found, logits), torch.zeros(1), labels, given).backward()  # type: ignore[no-untyped-call]

    def of_layers(values: torch.Tensor) -> torch.Tensor:
        p, n = (
            torch.stack([F.cosine_similarity(values[:, part], other[:, part]).mean() / 0.5 for part in parts])
            for other in (common, previous)
        )
        return 0.7 * (p.exp() / p.exp().sum() * -(p.exp() / (p.exp() + n.exp())).log()).sum()

    point = layers.clone().requires_grad_()
    (expected,) = torch.autograd.grad(of_layers(point), point)
    assert found.grad is not None
    torch.testing.assert_close(found.grad, expected)


def test_the_cnns_layers_are_its_convolutions_and_its_embedding() -> None:
    model, images = build_model("cnn", 0).eval(), torch.randn(2, 1, 28, 28)
    layers, logits = model.layers(images)
    assert [tuple(layer.shape) for layer in layers] == [(2, 1440), (2, 320), (2, 50)]
    assert torch.equal(layers[-1], model(images)[0])
    assert torch.equal(logits, model(images)[1])
