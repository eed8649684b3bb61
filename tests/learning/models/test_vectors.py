from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from fedchain.files.spool import InMemory, SpoolFolder, Spools
from fedchain.learning.models.base import hold_back
from fedchain.learning.models.registry import build_model
from fedchain.learning.models.vectors import (
    flatten,
    gradient_vector,
    kept_vector,
    read_state,
    read_vector,
    unflatten,
    write_state,
    write_vector,
)


@pytest.mark.parametrize("name", ["cnn", "digits-mlp"])
def test_a_model_read_and_written_is_the_same(name: str) -> None:
    model, other = build_model(name, 1), build_model(name, 2)
    vector, state = read_vector(model), read_state(model)
    assert vector.shape == (sum(value.numel() for value in model.parameters()),)
    write_vector(other, vector)
    assert torch.equal(read_vector(other), vector)
    write_state(model, read_state(build_model(name, 3)))
    assert not torch.equal(read_vector(model), vector)
    write_state(model, state)
    assert torch.equal(read_vector(model), vector)


def test_elements_come_row_by_row_whatever_the_layout_in_memory() -> None:
    image = torch.arange(24.0).reshape(1, 2, 3, 4)
    strided = image.to(memory_format=torch.channels_last)
    assert torch.equal(flatten([strided, torch.tensor([9.0])]), torch.tensor([*range(24), 9.0]))
    parts = unflatten(flatten([strided, torch.ones(2, 2)]), [strided, torch.ones(2, 2)])
    assert torch.equal(parts[0], image)
    assert torch.equal(parts[1], torch.ones(2, 2))


def test_a_vector_that_was_read_is_a_copy() -> None:
    model = torch.nn.Linear(2, 1, bias=False)
    vector = read_vector(model)
    write_vector(model, torch.zeros(2))
    assert not torch.equal(vector, torch.zeros(2))


@pytest.mark.parametrize("is_large", [False, True])
def test_a_vector_that_is_kept_is_a_copy_of_tensors_and_of_arrays_at_any_address(
    is_large: bool, tmp_path: Path
) -> None:
    spools: Spools = SpoolFolder(tmp_path, size_min=0) if is_large else InMemory
    image = torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last).requires_grad_()
    odd = np.frombuffer(b"." + np.array([1.5, -2.5], np.float32).tobytes(), np.float32, 2, 1)
    vector = kept_vector([image, torch.tensor(7.0)], spools)
    other = kept_vector([odd], spools)
    with torch.no_grad():
        image.zero_()
    assert vector.tolist() == [*range(24), 7.0]
    assert other.tolist() == [1.5, -2.5]
    assert other.data_ptr() % 4 == 0
    assert not vector.requires_grad
    assert len([*tmp_path.iterdir()]) == 2 * is_large
    assert kept_vector([torch.ones(2, dtype=torch.float64)], spools).dtype == torch.float64


def test_the_gradient_has_zeros_where_the_loss_does_not_depend() -> None:
    model = torch.nn.Linear(2, 1)
    assert torch.equal(gradient_vector(3 * model.bias.sum(), model), torch.tensor([0.0, 0.0, 3.0]))


def test_the_whole_state_leaves_out_what_is_held_back() -> None:
    first = nn.Linear(2, 3)
    model = nn.Sequential(first, nn.BatchNorm1d(3))
    hold_back(model, frozenset({"0.weight"}))
    state = read_state(model)
    assert len(state) == 3 + 4 * 3 + 1
    frozen = first.weight.clone()
    write_state(model, state + 1)
    assert torch.equal(read_state(model), state + 1)
    assert torch.equal(first.weight, frozen)
