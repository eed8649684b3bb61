"""A client with a linear model and few examples, and a schedule for it."""

import torch

from fedchain.learning.client import Client
from fedchain.learning.models.registry import build_model, describe_model
from fedchain.learning.training.schedule import Schedule


def schedule(**changes: float) -> Schedule:
    defaults = {"learning_rate": 0.1, "batch_size": 4, "steps": 6, "epochs": 0, "momentum": 0.0, "weight_decay": 0.0}
    return Schedule(**(defaults | changes))  # type: ignore[arg-type]


def new_client(examples: int = 10) -> Client:
    images = torch.randn(examples, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(examples) % 3
    return Client(
        index=5,
        model=build_model("digits-mlp", 0),
        info=describe_model("digits-mlp"),
        train_images=images,
        train_labels=labels,
        test_images=images,
        test_labels=labels,
        classes=(0, 1, 2),
        generator=torch.Generator().manual_seed(2),
    )
