"""A federation in memory plays rounds."""

from collections.abc import Iterator

import pytest
import torch

from fedchain import testing
from fedchain.learning.task.choice import TaskFunction
from tests.python.tasks import load


def test_a_federation_in_memory_plays_rounds() -> None:
    federation = testing.Federation.of("fedavg", task=load, clients=2, local_steps=2)
    made = federation.play(rounds=2)
    assert (federation.round, len(made)) == (2, 2)
    assert "model.words.weight" in federation.known()


@pytest.fixture
def in_float64() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="module")
def expected() -> dict[TaskFunction | None, bytes]:
    return {task: _learned(task) for task in (load, None)}


def _learned(task: TaskFunction | None) -> bytes:
    federation = testing.Federation.of("dfpl", task=task, clients=2, local_steps=2)
    federation.play()
    return federation.knowledge


@pytest.mark.parametrize("task", [load, None], ids=["own class", "digits"])
def test_it_learns_the_same_where_a_notebook_computes_in_doubles(
    task: TaskFunction | None, expected: dict[TaskFunction | None, bytes], in_float64: None
) -> None:
    assert _learned(task) == expected[task]


def test_it_learns_the_same_where_a_notebook_puts_new_numbers_elsewhere(
    expected: dict[TaskFunction | None, bytes],
) -> None:
    """As on a card: what stands on no device is nothing that one could learn from."""
    torch.set_default_device("meta")
    try:
        assert _learned(None) == expected[None]
        assert torch.rand(1).device.type == "meta", "it is left as it was"
    finally:
        torch.set_default_device(None)


@pytest.mark.parametrize("task", [load, None], ids=["own class", "digits"])
def test_it_learns_the_same_where_a_notebook_takes_no_gradients(
    task: TaskFunction | None, expected: dict[TaskFunction | None, bytes]
) -> None:
    with torch.no_grad():
        assert _learned(task) == expected[task]
