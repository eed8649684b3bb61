"""Small models."""

import pytest
import torch

from fedchain.learning.models.registry import build_model, describe_model
from fedchain.learning.models.small import Cnn


@pytest.mark.parametrize("name", ["cnn", "digits-mlp"])
def test_the_small_models_take_other_numbers_of_classes(name: str) -> None:
    assert describe_model(name, classes=3).classes == 3
    assert build_model(name, 0, classes=3).state_dict()[f"{'fc2' if name == 'cnn' else 'fc3'}.bias"].shape == (3,)


def test_the_cnn_s_embedding_is_behind_relu_and_before_the_head_s_dropout() -> None:
    model, images = Cnn().eval(), torch.randn(8, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    embedding, logits = model(images)
    assert float(embedding.detach().min()) == 0 < float(embedding.detach().max())
    assert torch.equal(logits, model.fc2(embedding))
    torch.manual_seed(0)
    embedding, logits = model.train()(images)
    assert not torch.allclose(logits, model.fc2(embedding))


@pytest.mark.parametrize("name", ["resnet18-plain", "resnet18-plain-16", "fixup-resnet9"])
def test_networks_without_normalization_start_calm(name: str) -> None:
    """The last convolution of every block is zero, so signals pass the blocks as they came."""
    model = build_model(name, 0)
    with torch.no_grad():
        embedding, logits = model(torch.randn(4, 3, 32, 32))
    assert float(embedding.abs().max()) < 100
    assert float(logits.abs().max()) < 10
    assert describe_model(name).normalization == frozenset()
