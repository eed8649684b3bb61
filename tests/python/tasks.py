"""Small tasks and methods for tests of what Python programs use."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from fedchain.learning.client import Client
from fedchain.learning.methods.fedavg import FedAvg
from fedchain.learning.round import Round, Tensors


class Bag(nn.Module):
    """The mean of the words of a sentence decides its topic."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(32, 8), nn.Linear(8, 3)

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        embedding = self.words(tokens).mean(dim=1)
        return embedding, self.head(embedding)


def load(member: int) -> Any:
    """Sentences of three topics."""
    draw = torch.Generator().manual_seed(member)
    topics = torch.randint(3, (60,), generator=draw)
    tokens = 10 * topics[:, None] + torch.randint(12, (60, 6), generator=draw)
    return Bag, (tokens[:40], topics[:40]), (tokens[40:], topics[40:])


@dataclass(frozen=True, kw_only=True)
class Forgetful(FedAvg):
    """Remembers in a place of its own how often it was asked, which no checkpoint has."""

    def update(self, client: Client, round: Round) -> Tensors:
        COUNTED[client.index] = COUNTED.get(client.index, 0) + 1
        posted = dict(super().update(client, round))
        posted["examples"] = np.array([COUNTED[client.index]], dtype=np.int64)
        return posted


COUNTED: dict[int, int] = {}


@dataclass(frozen=True, kw_only=True)
class Sound(FedAvg):
    """FedAvg under another name."""

    unused: float = 1.0
