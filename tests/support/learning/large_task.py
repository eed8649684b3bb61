"""A large model whose parameters lie in a file, and a method that trains it layer by layer: neither is ever in memory.

All that a member holds in memory that learns with them is the federation's own doing.
"""

import os
import tempfile
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fedchain.learning.client import Client
from fedchain.learning.config import OWN, LearningConfig
from fedchain.learning.methods.fedavg import FedAvg
from fedchain.learning.models.base import exchanged_state
from fedchain.learning.models.parameters import wire_name
from fedchain.learning.payload.lazy import LazyTensors
from fedchain.learning.round import Round, Tensors

LAYERS, WIDTH = "FEDCHAIN_LARGE_LAYERS", "FEDCHAIN_LARGE_WIDTH"
"""Variables of the environment: number of the model's layers, and the width of each, of 4 * width^2 bytes."""

CLASSES = 4


class LargeNet(nn.Module):
    """A chain of linear layers."""

    def __init__(self) -> None:
        super().__init__()
        width = int(os.environ.get(WIDTH, "1024"))
        self.layers = nn.ModuleList()
        for number in range(int(os.environ.get(LAYERS, "5"))):
            layer = nn.Linear(width, width, bias=False, device="meta")
            layer.weight = nn.Parameter(_in_file(width, number))
            self.layers.append(layer)

    def forward(self, x: torch.Tensor) -> Any:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x, 4 * x[:, :CLASSES]


def _in_file(width: int, seed: int) -> torch.Tensor:
    """A matrix (width, width) in a file that has no name any more; it is drawn row by row."""
    file, name = tempfile.mkstemp()
    os.truncate(name, 4 * width * width)
    found = torch.from_file(name, shared=True, size=width * width).reshape(width, width)
    os.close(file)
    os.unlink(name)
    generator = torch.Generator().manual_seed(seed)
    for row in found:
        row.normal_(generator=generator).div_(width**0.5)
    return found


def load(member: int, members: int) -> tuple[type[nn.Module], Any, Any]:
    """The task: clouds of points that differ from member to member."""
    width = int(os.environ.get(WIDTH, "1024"))
    generator = torch.Generator().manual_seed(member)
    labels = torch.arange(16) % CLASSES
    points = torch.randn(16, width, generator=generator) + 2 * torch.eye(CLASSES, width)[labels]
    return LargeNet, (points[:8], labels[:8]), (points[8:], labels[8:])


@dataclass(frozen=True, kw_only=True)
class LayerByLayer(FedAvg):
    """FedAvg whose clients move each layer as soon as its gradient is there, and post it from where it lies."""

    beyond_dp_sgd: ClassVar[str] = "its steps are its own"
    alone: ClassVar[str] = beyond_dp_sgd
    beyond_late: ClassVar[str] = ""
    beyond_fedex: ClassVar[str] = "it has no adapters"

    def update(self, client: Client, round: Round) -> Tensors:
        from fedchain.learning.training.loop import run_steps

        schedule = self.schedule_in(round.number)

        def move(weight: torch.Tensor) -> None:
            assert weight.grad is not None
            with torch.no_grad():
                weight.sub_(weight.grad, alpha=schedule.learning_rate)
            weight.grad = None

        def step(images: torch.Tensor, labels: torch.Tensor, given: Any) -> torch.Tensor:
            loss = self.loss(client.model, images, labels, given)
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        hooks: list[Any] = [
            value.register_post_accumulate_grad_hook(move)  # type: ignore[no-untyped-call]
            for value in client.model.parameters()
        ]
        try:
            run_steps(client, step, schedule, round.number)
        finally:
            for hook in hooks:
                hook.remove()
        posted: Tensors = self.post_model(client)
        return posted

    def post_model(self, client: Client) -> Any:
        posted = {
            wire_name(name, True): partial(_array, value) for name, value in exchanged_state(client.model).items()
        }
        return LazyTensors(posted) | {"examples": np.array([len(client.train_labels)], dtype=np.int64)}


def _array(value: torch.Tensor) -> NDArray[Any]:
    found: NDArray[Any] = value.numpy()
    return found


def large_config(clients: int) -> LearningConfig:
    """A federation of so many members that learns it, a step a round."""
    return LearningConfig(
        method="tests.support.learning.large_task:LayerByLayer",
        dataset=OWN,
        task="tests.support.learning.large_task:load",
        clients=clients,
        hyperparameters={"local_steps": 1, "batch_size": 4, "learning_rate": 0.1},
    )
