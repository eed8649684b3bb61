"""A sound task passes; one that brings something else each time is found."""

from typing import Any

import pytest
import torch

from fedchain import testing
from fedchain.learning.exceptions import ConfigurationError
from tests.python.tasks import Bag, Sound, load
from tests.support.learning import lora_task


def test_a_sound_task_passes_and_its_shapes_are_returned() -> None:
    shapes = testing.check_task(load, method=Sound(local_steps=2))
    assert (shapes.input_shape, shapes.input_type, shapes.classes) == ((6,), "int64", 3)


def test_members_that_have_the_same_frozen_weights_pass() -> None:
    assert testing.check_task(lora_task.load, "fedavg").frozen


def test_a_task_that_brings_something_else_each_time_is_found() -> None:
    calls = iter(range(100))

    def other_examples(member: int) -> Any:
        _, train, test = load(member)
        return Bag, (train[0], torch.roll(train[1], next(calls))), test

    def other_model() -> Any:
        model = Bag()
        with torch.no_grad():
            model.head.bias[0] = next(calls)
        return model, *load(0)[1:]

    with pytest.raises(AssertionError, match=r"member 0 has other train_labels when called again"):
        testing.check_task(other_examples)
    with pytest.raises(AssertionError, match=r"member 0 has another initial head.bias when called again"):
        testing.check_task(other_model)
    with pytest.raises(ConfigurationError, match="must be returned, not NoneType"):
        testing.check_task(lambda: None)
