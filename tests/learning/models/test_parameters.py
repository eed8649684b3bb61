"""A model's parameters as a payload: names on the wire, and the common model under its own names again."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.models.parameters import (
    average_parameters,
    common_parameters,
    load_parameters,
    parameter_spec,
    read_parameters,
)
from fedchain.learning.models.registry import build_model, describe_model
from fedchain.learning.worker.model_file import load_model, state_of_knowledge
from fedchain.node.founding.task import with_shapes
from tests.support.learning.federation import Federation, posts
from tests.support.learning.own_task import config

NORMED = "digits-mlp-bn"


def test_buffers_are_posted_beside_the_parameters_and_variances_are_never_negative() -> None:
    specs = {spec.name: spec for spec in parameter_spec(describe_model(NORMED))}
    assert specs.keys() == read_parameters(build_model(NORMED, 0)).keys()
    buffers = {name for name in specs if name.startswith("buffer.")}
    assert buffers
    assert all(name.startswith("model.") for name in specs.keys() - buffers)
    positive = {name for name, spec in specs.items() if spec.minimum == 0}
    assert positive == {name for name in buffers if name.endswith(("running_var", "num_batches_tracked"))}


def test_a_model_that_is_read_and_loaded_is_the_same_and_names_that_are_missing_stay() -> None:
    model, other = build_model(NORMED, 1), build_model(NORMED, 2)
    tensors = read_parameters(model)
    kept = next(iter(tensors))
    before = read_parameters(other)[kept]
    load_parameters(other, {name: value for name, value in tensors.items() if name != kept})
    found = read_parameters(other)
    assert np.array_equal(found.pop(kept), before)
    assert all(np.array_equal(tensors[name], value) for name, value in found.items())


def test_reading_is_copying() -> None:
    model = build_model(NORMED, 1)
    tensors = read_parameters(model)
    before = {name: value.copy() for name, value in tensors.items()}
    with torch.no_grad():
        for value in model.state_dict().values():
            value.add_(1)
    assert all(np.array_equal(before[name], value) for name, value in tensors.items())


def test_the_common_model_has_the_module_s_own_names_and_must_be_whole() -> None:
    info, tensors = describe_model(NORMED), read_parameters(build_model(NORMED, 1))
    assert list(common_parameters(tensors, info)) == [name for name, _ in info.parameters]
    without = dict(list(tensors.items())[1:])
    with pytest.raises(ConfigurationError, match=rf"{len(without)} of the model's {len(tensors)} tensors, without "):
        common_parameters(without, info)


def test_averages_are_weighted_and_leave_out_what_is_no_parameter() -> None:
    first, second = ({"model.w": np.array([value], np.float32), "examples": np.array([9])} for value in (1, 5))
    averaged = average_parameters(posts([first, second]), [3, 1])
    assert averaged.keys() == {"model.w"}
    assert averaged["model.w"].tolist() == [2.0]


class OneName(nn.Module):
    """Tokens are read and written by the same numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.read = nn.Embedding(8, 4)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(self.read(tokens).mean(1), self.read.weight)


class TwoNames(OneName):
    """So does this, whose state has them by two names."""

    def __init__(self) -> None:
        super().__init__()
        self.write = nn.Linear(4, 8, bias=False)
        self.write.weight = self.read.weight


@pytest.mark.parametrize(
    ("method", "settings"),
    [("fedavg", {}), ("fedavg", {"compression": "sparse"}), ("fedavg", {"compression": "int8"}), ("fedadam", {})],
    ids=str,
)
def test_a_parameter_of_two_names_is_posted_by_the_one_under_which_it_is_trained(
    method: str, settings: dict[str, str]
) -> None:
    def play(model: type[nn.Module], *, is_older: bool = False) -> Federation:
        def load(member: int) -> Any:
            tokens = torch.randint(8, (40, 3), generator=torch.Generator().manual_seed(member))
            examples = tokens, tokens[:, 0]
            return model, examples, examples

        task = config(method, hyperparameters={"local_steps": 3, "learning_rate": 0.5, **settings})
        if is_older:
            task = with_shapes(task, load)
            assert task.shapes is not None
            task = replace(task, shapes=replace(task.shapes, tied=()))
        federation = Federation(task, task=load)
        federation.play(4)
        return federation

    one, two, older = play(OneName), play(TwoNames), play(TwoNames, is_older=True)
    expected = one.known()["model.read.weight"]
    for federation in (two, older):
        assert np.array_equal(federation.known()["model.read.weight"], expected)
    assert two.known().keys() == one.known().keys()
    assert older.known().keys() - one.known().keys() == {"buffer.write.weight"}
    common = common_parameters(two.known(), two.rules.info)
    assert list(common) == ["read.weight", "write.weight"]
    assert common["read.weight"] is common["write.weight"] is two.known()["model.read.weight"]
    load_model(TwoNames(), state_of_knowledge(two.known(), two.rules.info), "the common")
