"""A frozen model with low-rank adapters, whose layers have the parts of peft's, without peft."""

from typing import Any

import torch
from torch import nn

from tests.support.learning.own_task import points

RANK = 2


class LoraLinear(nn.Module):
    """A frozen layer W and an adapter: W x + scale B A x. B begins at random, lest nothing has to be shown."""

    def __init__(self, inputs: int, outputs: int, *, fan_in_fan_out: bool = False) -> None:
        super().__init__()
        self.base_layer = nn.Linear(inputs, outputs).requires_grad_(False)
        self.fan_in_fan_out = fan_in_fan_out
        if fan_in_fan_out:
            self.base_layer.weight = nn.Parameter(self.base_layer.weight.T.contiguous(), requires_grad=False)
        self.lora_A = nn.ModuleDict({"default": nn.Linear(inputs, RANK, bias=False)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(RANK, outputs, bias=False)})
        self.scaling = {"default": 1.5}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.base_layer.weight.T if self.fan_in_fan_out else self.base_layer.weight
        base = nn.functional.linear(x, weight, self.base_layer.bias)
        adapted: torch.Tensor = base + self.scaling["default"] * self.lora_B["default"](self.lora_A["default"](x))
        return adapted

    def weight(self) -> torch.Tensor:
        """W + scale B A, (out, in), in float64."""
        base = self.base_layer.weight.T if self.fan_in_fan_out else self.base_layer.weight
        state = self.state_dict()
        product = state["lora_B.default.weight"].double() @ state["lora_A.default.weight"].double()
        dense: torch.Tensor = base.double() + self.scaling["default"] * product
        return dense.detach()


class LoraNet(nn.Module):
    """Two adapted layers and a trained head."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = LoraLinear(4, 6), LoraLinear(6, 5, fan_in_fan_out=True)
        self.head = nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> Any:
        embedding = torch.relu(self.second(torch.relu(self.first(x))))
        return embedding, self.head(embedding)


def load(member: int) -> Any:
    return LoraNet, points(60 + 10 * member, member), points(20, 9)
