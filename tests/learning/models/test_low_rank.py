"""Adapters in a module: which are found, and what is added to the weights below them."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.models.base import trainable_names
from fedchain.learning.models.low_rank import add_residuals, find_low_rank, freeze_down, keep_originals
from fedchain.learning.models.model_info import LowRank, ModelInfo
from tests.support.learning.lora_task import LoraNet

A, B = "lora_A.default.weight", "lora_B.default.weight"

FOUND = tuple(
    LowRank(f"{layer}.base_layer.weight", f"{layer}.{A}", f"{layer}.{B}", 1.5, transposed)
    for layer, transposed in (("first", False), ("second", True))
)


def info_of(model: nn.Module) -> ModelInfo:
    shapes = tuple((name, tuple(value.shape)) for name, value in model.state_dict().items())
    return ModelInfo(shapes, 5, 3, trainable_names(model), frozenset(), low_rank=find_low_rank(model))


def test_layers_with_adapters_are_found_and_a_is_frozen() -> None:
    model = LoraNet()
    assert find_low_rank(model) == FOUND
    before = trainable_names(model)
    freeze_down(model)
    assert before - trainable_names(model) == {layer.down for layer in FOUND}
    assert find_low_rank(model) == FOUND
    model.first.lora_B["default"].requires_grad_(False)
    assert find_low_rank(model) == FOUND[1:], "it is not in use"
    assert find_low_rank(nn.Linear(2, 2)) == ()


def with_bias(layer: Any) -> None:
    layer.lora_B["default"] = nn.Linear(2, 6)


def as_convolution(layer: Any) -> None:
    layer.lora_A["default"] = nn.Conv2d(4, 2, 1, bias=False)


def with_magnitude(layer: Any) -> None:
    layer.lora_magnitude_vector = nn.ModuleDict({"default": nn.Linear(1, 1)})


def with_variant(layer: Any) -> None:
    layer.lora_variant = {"default": object()}


def of_embedding(layer: Any) -> None:
    layer.lora_embedding_B = nn.ParameterDict({"default": torch.zeros(1)})


@pytest.mark.parametrize("change", [with_bias, as_convolution, with_magnitude, with_variant, of_embedding])
def test_layers_that_are_more_than_a_product_are_refused(change: Any) -> None:
    model = LoraNet()
    change(model.first)
    with pytest.raises(ConfigurationError, match=r"first is (no linear layer with|an embedding with) an adapter"):
        find_low_rank(model)


def test_a_residual_is_added_to_the_weight_as_it_was() -> None:
    model = LoraNet()
    keep_originals(model, info_of(model))
    name, original = FOUND[1].base, model.second.base_layer.weight.clone()
    for number in (1.0, 2.0):
        add_residuals(model, {f"residual.{name}": np.full((6, 5), number, np.float32), "model.head.bias": np.zeros(3)})
        assert torch.equal(model.second.base_layer.weight, original + number)
    assert not [key for key in model.state_dict() if "original" in key]


def test_nothing_is_kept_where_a_is_frozen() -> None:
    model = LoraNet()
    freeze_down(model)
    keep_originals(model, info_of(model))
    assert not [*model.named_buffers()]
