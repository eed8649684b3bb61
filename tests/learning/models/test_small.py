"""Small models."""

import pytest
import torch

from fedchain.learning.models.registry import build_model, describe_model


@pytest.mark.parametrize("name", ["cnn", "digits-mlp"])
def test_the_small_models_take_other_numbers_of_classes(name: str) -> None:
    assert describe_model(name, classes=3).classes == 3
    assert build_model(name, 0, classes=3).state_dict()[f"{'fc2' if name == 'cnn' else 'fc3'}.bias"].shape == (3,)


@pytest.mark.parametrize("name", ["resnet18-plain", "resnet18-plain-16", "fixup-resnet9"])
def test_networks_without_normalization_start_calm(name: str) -> None:
    """The last convolution of every block is zero, so signals pass the blocks as they came."""
    model = build_model(name, 0)
    with torch.no_grad():
        embedding, logits = model(torch.randn(4, 3, 32, 32))
    assert float(embedding.abs().max()) < 100
    assert float(logits.abs().max()) < 10
    assert describe_model(name).normalization == frozenset()
