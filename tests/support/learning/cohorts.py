"""Clients with small models and few examples, whose trainings can be one batch of models."""

from typing import Any

import torch
import torch.nn.functional as F

from fedchain.learning.client import Client, Forward
from fedchain.learning.models.registry import build_model, describe
from fedchain.learning.training.loop import Training
from fedchain.learning.worker.client_examples import as_seen
from tests.support.learning.linear_client import schedule


def shape_of(name: str) -> dict[str, int]:
    size, channels = (8, 1) if name.startswith(("digits", "split-mlp", "frozen")) else (28, 1)
    if "resnet" in name:
        size, channels = 32 if "18" in name or "fixup" in name else 8, 3
    if name == "covid-cnn":
        size, channels = 3, 3
    return {"classes": 3, "channels": channels, "size": size, "features": channels * size * size}


def new_clients(name: str, count: int) -> list[Client]:
    """Clients with models of one seed and nine examples each."""
    shape, made = shape_of(name), list[Client]()
    for index in range(count):
        model, drawn = build_model(name, seed=1, **shape), torch.Generator().manual_seed(index)
        images = torch.rand(9, shape["channels"], shape["size"], shape["size"], generator=drawn)
        labels = torch.randint(0, 3, (9,), generator=drawn)
        seen, order = as_seen(model, images), torch.Generator().manual_seed(index)
        made.append(Client(index, model, describe(model), seen, labels, seen, labels, (0, 1, 2), order))
    return made


def cross_entropy(forward: Forward, images: torch.Tensor, labels: torch.Tensor, given: Any) -> torch.Tensor:
    return F.cross_entropy(forward(images)[1], labels)


def training_of(client: Client, **changes: Any) -> Training:
    return Training(client, cross_entropy, schedule(steps=2, momentum=0.5, weight_decay=1e-3), 1, **changes)


def dropout_of(client: Client) -> torch.Generator:
    return torch.Generator().manual_seed(100 + client.index)
