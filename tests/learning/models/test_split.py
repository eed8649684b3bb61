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


def count(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_the_server_s_networks_have_the_papers_numbers_of_parameters() -> None:
    assert count(build_server_model((16, 32, 32), 10)) == 590_858
    assert count(build_server_model((13,), 5)) == 2_053


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


def test_a_stage_halves_the_sides_of_the_next() -> None:
    server = build_server_model((16, 8, 8), 4, 2)
    hidden, shapes = torch.randn(2, 16, 8, 8), []
    for stage in server.stages.children():  # type: ignore[union-attr]
        hidden = stage(hidden)
        shapes.append(tuple(hidden.shape[1:]))
    assert shapes == [(64, 8, 8), (128, 4, 4), (256, 2, 2)]


def test_the_last_two_networks_of_five_are_the_same() -> None:
    first, second = (build_model(name, 5) for name in SPLIT[3:])
    states = first.state_dict(), second.state_dict()
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


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
