"""A task of one's own, as a user writes it."""

from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

from fedchain.learning.config import OWN, LearningConfig


class Net(nn.Module):
    """For vectors; with a norm, whose state has a whole number, and a part that is not trained."""

    def __init__(self, inputs: int = 4, width: int = 6, classes: int = 3) -> None:
        super().__init__()
        self.frozen = nn.Linear(inputs, inputs).requires_grad_(False)
        self.hidden, self.norm = nn.Linear(inputs, width), nn.BatchNorm1d(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> Any:
        embedding = torch.relu(self.norm(self.hidden(x + self.frozen(x))))
        return embedding, self.head(embedding)


def points(count: int, member: int = 0, classes: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    """Three clouds of points."""
    generator = torch.Generator().manual_seed(member)
    labels = torch.randint(classes, (count,), generator=generator)
    return torch.randn(count, 4, generator=generator) + 3 * torch.eye(3, 4)[labels], labels


def load(member: int, members: int) -> tuple[type[nn.Module], Any, Any]:
    assert members == 3
    return Net, TensorDataset(*points(60 + member, member)), points(20, 9)


def config(method: str = "dfpl", **changes: Any) -> LearningConfig:
    settings = LearningConfig(method=method, clients=3, dataset=OWN, hyperparameters={"local_steps": 10})
    return replace(settings, **changes)
