"""Low-rank adapters in a torch module: layers as those of peft (`LoraLayer`) are found, frozen and added to.

Such a layer has a frozen `base_layer`, dictionaries `lora_A` and `lora_B` of linear layers and `scaling`, by the name
of the adapter.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.models.model_info import RESIDUAL_PREFIX, LowRank, ModelInfo
from fedchain.learning.round import Tensors

ORIGINAL = "_original_"
"""Before the name of the buffer that keeps a weight to which residuals are added; it is in no state."""


def find_low_rank(model: nn.Module) -> tuple[LowRank, ...]:
    """Return the model's layers with adapters. Raises `ConfigurationError` for one that is not W + scale B A."""
    return tuple(
        LowRank(
            base=f"{place}.base_layer.weight",
            down=f"{place}.lora_A.{name}.weight",
            up=f"{place}.lora_B.{name}.weight",
            scale=float(layer.scaling[name]),
            is_transposed=bool(getattr(layer, "fan_in_fan_out", False)),
        )
        for place, layer, name in _adapters(model)
    )


def freeze_down(model: nn.Module) -> None:
    """Freeze the A of each adapter (FFA-LoRA). Raises `ConfigurationError` as `find_low_rank` does."""
    for _, layer, name in _adapters(model):
        layer.lora_A[name].requires_grad_(False)


def keep_originals(model: nn.Module, info: ModelInfo) -> None:
    """Keep copies of the weights to which residuals will be added; the model has not trained yet."""
    for layer in info.low_rank:
        if layer.down in info.trainable:
            owner, leaf = _owner(model, layer.base)
            owner.register_buffer(ORIGINAL + leaf, getattr(owner, leaf).detach().clone(), persistent=False)


@torch.no_grad()
def add_residuals(model: nn.Module, tensors: Tensors) -> None:
    """Make each weight for which the tensors have a residual its original and this residual."""
    for name in tensors:
        if name.startswith(RESIDUAL_PREFIX):
            owner, leaf = _owner(model, name.removeprefix(RESIDUAL_PREFIX))
            original: torch.Tensor = getattr(owner, ORIGINAL + leaf)
            getattr(owner, leaf).copy_(original + torch.from_numpy(np.array(tensors[name])))


def _adapters(model: nn.Module) -> Iterator[tuple[str, Any, str]]:
    """Yield place, layer and name of each trainable adapter."""
    for place, layer in model.named_modules():
        downs: Any = getattr(layer, "lora_A", None)
        others: Any = getattr(layer, "lora_embedding_B", None)
        if others:
            raise ConfigurationError(f"{place} is an embedding with an adapter; linear layers alone can have one")
        if not isinstance(downs, nn.ModuleDict):
            continue
        for name in downs:
            parts = dict(layer.lora_A[name].named_parameters()), dict(layer.lora_B[name].named_parameters())
            if not parts[1]["weight"].requires_grad:
                continue
            if any(part.keys() != {"weight"} or part["weight"].ndim != 2 for part in parts) or _is_more(layer, name):
                raise ConfigurationError(f"{place} is no linear layer with an adapter B A alone")
            yield place, layer, name


def _is_more(layer: Any, name: str) -> bool:
    """Whether the layer scales its weight as well (DoRA), or has a variant of its own."""
    return name in (getattr(layer, "lora_magnitude_vector", None) or {}) or name in getattr(layer, "lora_variant", {})


def _owner(model: nn.Module, name: str) -> tuple[nn.Module, str]:
    place, _, leaf = name.rpartition(".")
    return model.get_submodule(place), leaf
