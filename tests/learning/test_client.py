"""A client keeps a method's records, one of each kind, and takes them from a checkpoint when they are asked for."""

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from fedchain.learning.client import Client
from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import SecretMissing
from fedchain.learning.task.lazy_inputs import LazyInputs
from fedchain.learning.worker.learner import Learner


@dataclass
class Memory:
    rounds: int = 0
    last: torch.Tensor = field(default_factory=lambda: torch.zeros(2))


def client_of() -> Client:
    return Learner(LearningConfig(clients=2))._clients.get(0)


def test_a_record_is_made_once_and_stays() -> None:
    client = client_of()
    client.state(Memory).rounds = 3
    assert client.state(Memory).rounds == 3
    assert list(client.states) == ["Memory"]


def test_a_record_of_a_checkpoint_is_read_when_it_is_asked_for() -> None:
    client = client_of()
    client.saved["Memory"] = {"rounds": torch.tensor(5), "last": torch.ones(2)}
    assert client.states == {}
    assert client.state(Memory).rounds == 5
    assert client.state(Memory).last.tolist() == [1.0, 1.0]
    assert client.saved == {}


def test_two_records_of_one_name_are_our_own_mistake() -> None:
    client = client_of()
    client.state(Memory)
    other: Any = dataclass(type("Memory", (), {}))
    with pytest.raises(AssertionError, match="two records of client 0 are called Memory"):
        client.state(other)


def test_a_client_that_was_given_no_secrets_has_none() -> None:
    with pytest.raises(SecretMissing):
        client_of().secrets.draw(1)


def test_the_size_of_a_client_is_that_of_what_is_in_memory() -> None:
    client = client_of()
    examples = (client.train_images, client.train_labels, client.test_images, client.test_labels)
    tensors = (*examples, *client.model.state_dict().values())
    size = sum(value.nbytes for value in tensors)
    assert client.size == size
    client.state(Memory)
    assert client.size == size + 8
    held = client.train_images
    client.train_images = LazyInputs(lambda places: held[list(places)], range(len(held)), held[0])
    assert client.size == size + 8 - held.nbytes
