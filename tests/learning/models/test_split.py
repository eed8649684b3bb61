"""Networks that are cut behind their first layer, and the aggregator's that learns from what comes out there."""

import pytest
import torch

from fedchain.learning.datasets.catalogue import DATASETS
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.models.registry import build_model, describe, describe_model
from fedchain.learning.models.server import build_server_model
from fedchain.learning.models.split import SplitModel

SPLIT = ("resnet2-56", "resnet4-56", "resnet8-56", "resnet10-56", "resnet12-56")
SPLIT_MLPS = ("split-mlp-1", "split-mlp-2", "split-mlp-3")


@pytest.mark.parametrize(
    ("name", "dataset"),
    [
        *((name, "cifar10") for name in SPLIT),
        *((name, "mnist") for name in SPLIT[:3]),
        *((n, "tmd") for n in SPLIT_MLPS),
    ],
)
def test_the_halves_are_the_model(name: str, dataset: str) -> None:
    info = DATASETS[dataset]
    assert name in info.models
    model = build_model(name, 3, **info.model_shape).eval()
    assert isinstance(model, SplitModel)
    images = torch.randn(2, *info.shape)
    with torch.no_grad():
        features, embedding, logits = model.split(images)
        layers, _ = model.layers(images)
        server = build_server_model(model.feature_shape, info.classes, 1).eval()
        assert server(features).shape == (2, info.classes)
        assert torch.equal(model.interpret(features)[1], logits)
    whole, again = model(images)
    assert torch.equal(again, logits)
    assert torch.equal(whole, embedding)
    assert torch.equal(layers[-1], embedding)
    assert features.shape == (2, *model.feature_shape)
    assert describe(model).feature_shape == model.feature_shape


def test_what_cannot_be_split_says_so() -> None:
    assert describe_model("cnn").feature_shape is None
    with pytest.raises(NotImplementedError):
        build_model("cnn", 0).split(torch.zeros(1, 1, 28, 28))


def test_solo_takes_networks_of_any_widths_side_by_side() -> None:
    from fedchain.learning.config import LearningConfig
    from fedchain.learning.models.shapes import infos_of

    mixed = LearningConfig(method="solo", model="resnet2-56+resnet8-56")
    mixed.validate()
    assert infos_of(mixed)[0].embedding_size == 16
    with pytest.raises(ConfigurationError, match="one width, but resnet2-56 has 16, resnet8-56 has 64"):
        infos_of(LearningConfig(method="dfpl", model="resnet2-56+resnet8-56"))[0]
