"""Inputs of several fields and of integers."""

from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.models.model_info import InputField
from fedchain.learning.task.adapter import unpack
from fedchain.learning.task.examples import read_examples

X, Y = torch.arange(12.0).reshape(4, 3), torch.tensor([0, 2, 1, 2])
TOKENS = torch.tensor([[5, 0, 2], [1, 1, 9], [3, 4, 0], [7, 7, 7]])
MASK = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 1], [1, 1, 1]])
FIELDS = (InputField("input_ids", (3,), "int64"), InputField("attention_mask", (3,), "int64"))


class Rows(Dataset[Any]):
    """Items made from fields; the label beside them, or under one of its names."""

    def __init__(self, label: str = "") -> None:
        self.label, self.asked = label, list[int]()

    def __len__(self) -> int:
        return len(Y)

    def __getitem__(self, place: int) -> Any:
        self.asked.append(place)
        fields = {"input_ids": TOKENS[place].tolist(), "attention_mask": MASK[place].bool()}
        return {**fields, self.label: int(Y[place])} if self.label else (fields, Y[place])


def test_integers_stay_integers() -> None:
    assert torch.equal(read_examples("train set", (TOKENS.to(torch.int32), Y)).inputs, TOKENS)
    assert read_examples("train set", TensorDataset(TOKENS, Y)).inputs.dtype == torch.int64


@pytest.mark.parametrize(
    "data",
    [
        ({"input_ids": TOKENS, "attention_mask": MASK}, Y),
        {"input_ids": TOKENS.numpy(), "attention_mask": MASK.numpy(), "labels": Y.tolist()},
        Rows(),
        Rows("label"),
        Rows("labels"),
    ],
    ids=["pair", "dict", "pairs", "items with a label", "items with labels"],
)
def test_fields_lie_side_by_side_and_come_back_by_name(data: Any) -> None:
    examples = read_examples("train set", data)
    assert (examples.fields, examples.inputs.dtype) == (FIELDS, torch.int64)
    assert torch.equal(examples.labels, Y)
    fields = unpack(examples.inputs[1:], examples.fields)
    assert torch.equal(fields["input_ids"], TOKENS[1:])
    assert torch.equal(fields["attention_mask"], MASK[1:])


def test_integers_beside_floats_are_held_as_floats_and_come_back_as_they_were() -> None:
    examples = read_examples("train set", ({"pixels": X.reshape(4, 1, 3), "kind": Y}, Y))
    assert examples.inputs.dtype == torch.float32
    fields = unpack(examples.inputs, examples.fields)
    assert torch.equal(fields["pixels"], X.reshape(4, 1, 3))
    assert torch.equal(fields["kind"], Y)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"x": X}, "the train set must have inputs by name and labels or label, not x"),
        ({"labels": Y}, "must have inputs by name and labels or label, not labels"),
        (
            {"x": X, "z": X[:3], "label": Y},
            "the fields of the train set must have one row for each label, not {",
        ),
        ([{"text": "a", "label": 1}], "field 'text' of item 0 of the train set is str, not numbers; leave it out"),
        ([{"x": [1], "label": 1}, {"x": [1.0], "label": 1}], "item 1 of the train set has the fields [('x', (1,), 'f"),
        (({"x": X, "n": Y + 2**24}, Y), "field 'n' of the train set has integers above 16777216 beside floats"),
    ],
)
def test_fields_that_cannot_be_used_are_told_in_one_line(data: Any, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_examples("train set", data)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
