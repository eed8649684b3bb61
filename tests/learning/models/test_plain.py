"""Networks that can be cut before their pooling, what may be put there, and the images that a UNet makes."""

import pytest
import torch

from fedchain.learning.models.plain import PlainResNet18
from tests.support.learning.pooled import pooled_model


@pytest.mark.parametrize("name", ["plain-cnn", "resnet18-plain-16"])
def test_a_model_is_its_extractor_the_mean_and_its_head(name: str) -> None:
    model, images = pooled_model(name), torch.randn(2, 3, 16, 16).double()
    features = model.maps(images)[-1]
    embedding, logits = model(images)
    assert features.ndim == 4
    torch.testing.assert_close(embedding, features.flatten(2).sum(dim=2) / features[0, 0].numel())
    assert torch.equal(logits, model.head(embedding))
    assert embedding.shape[1] == model.embedding_size == features.shape[1]


def test_a_residual_network_starts_with_blocks_that_change_nothing() -> None:
    model = PlainResNet18(width=4).double()
    features = torch.rand(1, 4, 8, 8).double()
    torch.testing.assert_close(model.stages[0](features), features)
