"""How many steps a round has."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fedchain.learning.client import Forward
from fedchain.learning.training.loop import Training, train
from fedchain.learning.training.schedule import count_steps
from tests.support.learning.linear_client import new_client, schedule


def cross_entropy(forward: Forward, images: torch.Tensor, labels: torch.Tensor, given: Any) -> torch.Tensor:
    return F.cross_entropy(forward(images)[1], labels)


@pytest.mark.parametrize(("epochs", "examples", "steps"), [(0, 10, 6), (1, 10, 2), (3, 10, 6), (3, 12, 9), (2, 3, 2)])
def test_epochs_replace_steps(epochs: int, examples: int, steps: int) -> None:
    assert count_steps(schedule(epochs=epochs), examples) == steps
    client = new_client(examples)
    train(Training(client, cross_entropy, schedule(epochs=epochs), 1))
    assert client.steps == steps
