"""Kinds of trainings: models are one batch if they differ in their numbers alone."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedchain.learning.models.base import Model
from fedchain.learning.models.registry import MODELS
from fedchain.learning.training.kinds import attributes_of, kind_of
from tests.support.learning.cohorts import new_clients, training_of


def kinds_with(*models: nn.Module) -> list[Hashable]:
    """Kinds of the trainings of clients with these models."""
    clients = new_clients("digits-mlp", len(models))
    for client, model in zip(clients, models, strict=True):
        client.model = model  # type: ignore[assignment]
    return [kind_of(training_of(client)) for client in clients]


@pytest.mark.parametrize("name", MODELS)
def test_models_that_were_built_alike_are_of_one_kind(name: str) -> None:
    first, second = new_clients(name, 2)
    for value in second.model.parameters():
        value.data.add_(1.0)
    assert kind_of(training_of(first)) == kind_of(training_of(second))


def test_another_model_batch_or_extra_is_another_kind() -> None:
    first, second = new_clients("digits-mlp", 2)
    (wide,) = new_clients("cnn-wide", 1)
    assert kind_of(training_of(first)) != kind_of(training_of(wide))
    assert kind_of(training_of(first)) != kind_of(training_of(second, given=lambda batch: batch))
    second.train_images, second.train_labels = second.train_images[:3], second.train_labels[:3]
    assert kind_of(training_of(first)) != kind_of(training_of(second)), "its batches are smaller"
    one, other = kinds_with(*(nn.Sequential(nn.Linear(3, 3), nn.Dropout(share)) for share in (0.1, 0.2)))
    assert one != other
    one, other = kinds_with(nn.BatchNorm1d(3), nn.BatchNorm1d(3).double())
    assert one != other


@dataclass
class Settings:
    """Settings of a model."""

    depth: int
    names: list[str]


class Custom:
    """Says itself what it is equal to."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


class Scaled(Model):
    """Has an attribute, and a method that another attribute may be."""

    embedding_size = classes = 3

    def __init__(self, scale: Any) -> None:
        super().__init__()
        self.fc = nn.Linear(64, 3)
        self.scale = scale(self) if callable(scale) and getattr(scale, "__name__", "") == "<lambda>" else scale

    def twice(self, value: torch.Tensor) -> torch.Tensor:
        return value * 2

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = self.fc(images.flatten(1)) * self.scale
        return logits, logits


SHARED = object()
GENERATOR = torch.Generator()


@pytest.mark.parametrize(
    "new",
    [
        lambda: 2.0,
        lambda: [1, (2, {"a": 3}), None],
        lambda: Settings(3, ["a", "b"]),
        lambda: torch.tensor([1.0, 2.0]),
        lambda: np.array([1.0, 2.0]),
        lambda: {1, 2},
        lambda: partial(F.leaky_relu, negative_slope=0.2),
        lambda: F.relu,
        lambda: torch.float32,
        lambda: float("nan"),
        lambda: SHARED,
        lambda: lambda model: model.twice,
        lambda: lambda model: [model.fc, model],
    ],
)
def test_attributes_that_are_equal_keep_models_together(new: Callable[[], Any]) -> None:
    first, second = kinds_with(Scaled(new()), Scaled(new()))
    assert first == second


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (2.0, 3.0),
        (1, 1.0),
        (1, True),
        (0.0, -0.0),
        ([1, 2], [1, 3]),
        ({"a": 1}, {"a": 2}),
        (Settings(3, ["a"]), Settings(3, ["b"])),
        (torch.tensor([1.0]), torch.tensor([2.0])),
        (torch.tensor([1.0]), torch.tensor([1.0], dtype=torch.float64)),
        (np.array([1.0]), np.array([2.0])),
        (partial(F.leaky_relu, negative_slope=0.1), partial(F.leaky_relu, negative_slope=0.2)),
        (F.relu, F.gelu),
        (object(), object()),
        (torch.Generator(), torch.Generator()),
        (Custom(), Custom()),
        ([nn.Linear(3, 3)], [nn.Linear(3, 3)]),
    ],
)
def test_attributes_that_differ_or_that_nobody_can_compare_do_not(one: Any, other: Any) -> None:
    first, second = kinds_with(Scaled(one), Scaled(other))
    assert first != second


def test_a_parameter_that_an_attribute_names_is_one_that_no_cohort_trains() -> None:
    """It would be read where it was before the training."""
    first, second = kinds_with(*(Scaled(lambda model: [model.fc.weight]) for _ in range(2)))
    assert first != second
    with pytest.raises(Exception, match="a Parameter"):
        attributes_of(Scaled(lambda model: [model.fc.weight]))


def test_hooks_are_part_of_a_model() -> None:
    def double(module: nn.Module, args: Any, output: Any) -> Any:
        return output[0] * 2, output[1] * 2

    hooked, plain = [Scaled(1.0), Scaled(1.0)], Scaled(1.0)
    for model in hooked:
        model.fc.register_forward_hook(double)
    first, second, third = kinds_with(*hooked, plain)
    assert first == second != third


def test_the_order_in_memory_counts() -> None:
    """Dropout follows it."""
    models = [nn.Conv2d(3, 4, 3) for _ in range(3)]
    models[2].to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    first, second, third = kinds_with(*models)
    assert first == second != third
