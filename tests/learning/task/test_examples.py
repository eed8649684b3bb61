"""A user's examples: what can be read becomes tensors, and what cannot is told in one line."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.models.model_info import InputField
from fedchain.learning.task.adapter import unpack
from fedchain.learning.task.examples import read_examples, validate_labels
from fedchain.learning.task.lazy_inputs import LazyInputs

X, Y = torch.arange(12.0).reshape(4, 3), torch.tensor([0, 2, 1, 2])


class Squares(Dataset[Any]):
    """Items as a contributor might write them: an array and an integer; one of them may be broken."""

    def __init__(self, broken: int = -1, label: Any = 1, shape: tuple[int, ...] = (2, 2)) -> None:
        self.broken, self.label, self.shape = broken, label, shape

    def __len__(self) -> int:
        return 3

    def __getitem__(self, place: int) -> Any:
        if place == self.broken:
            raise OSError("no such\nimage")
        return np.full(self.shape if place else (2, 2), place, dtype=np.float32), self.label


class Stream(IterableDataset[Any]):
    """Nobody knows how long it is."""

    def __iter__(self) -> Any:
        raise AssertionError("it has no length, so it is not asked")


@pytest.mark.parametrize(
    "data",
    [
        (X, Y),
        (X.double().numpy(), Y.int().numpy()),
        (X.clone().requires_grad_(), Y.to(torch.uint8)),
        TensorDataset(X, Y),
        torch.utils.data.Subset(TensorDataset(X, Y), range(4)),
        [(x, int(y)) for x, y in zip(X.numpy(), Y, strict=True)],
    ],
    ids=["tensors", "arrays", "other types", "data set", "subset", "list"],
)
def test_whatever_holds_the_examples_they_are_the_same(data: Any) -> None:
    examples = read_examples("train set", data)
    inputs, labels = examples.inputs, examples.labels
    assert torch.equal(inputs, X)
    assert torch.equal(labels, Y)
    assert (inputs.dtype, labels.dtype, inputs.requires_grad) == (torch.float32, torch.int64, False)


def test_items_may_have_any_shape() -> None:
    examples = read_examples("train set", Squares())
    inputs, labels = examples.inputs, examples.labels
    assert inputs.shape == (3, 2, 2)
    assert inputs[:, 0, 0].tolist() == [0.0, 1.0, 2.0]
    assert labels.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((X[:0], Y[:0]), "the train set is empty"),
        ([], "the train set is empty"),
        ((X, Y[:3]), "one label for each input, not inputs of shape (4, 3) and labels of shape (3,)"),
        ((X, Y.unsqueeze(1)), "labels of shape (4, 1)"),
        ((X, Y, Y), "a pair of tensors (x, y), not 3 things"),
        ((X.to(torch.complex64), Y), "must be floating-point numbers or integers, not torch.complex64"),
        ((X, Y.float()), "labels of the train set must be integers, not torch.float32"),
        ((X / 0, Y), "are not all finite numbers"),
        ((["a"], Y), "the train set cannot be made tensors: "),
        (None, "the train set must be a torch Dataset with a length, or tensors (x, y), not NoneType"),
        (Stream(), "with a length, or tensors (x, y), not Stream"),
        ([3, 4], "item 0 of the train set is no (x, y): TypeError"),
        (Squares(broken=1), "item 1 of the train set is no (x, y): OSError: no such image (" + __file__),
        (Squares(label=1.5), "item 0 of the train set is no (x, y): TypeError"),
        (Squares(shape=(2, 3)), "item 1 of the train set has shape (2, 3), but item 0 has (2, 2)"),
    ],
)
def test_what_cannot_be_used_is_told_in_one_line(data: Any, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_examples("train set", data)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("label", [-1, 3])
def test_a_label_without_an_output_is_named(label: int) -> None:
    validate_labels("test set", Y, classes=3)
    with pytest.raises(ConfigurationError, match=f"^label {label} in the test set: a model with 3 outputs has 0 to 2$"):
        validate_labels("test set", torch.tensor([0, label]), classes=3)


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
        ([{"x": [1], "label": 1}, {"x": [1.0], "label": 1}], "item 1 of the train set is torch.float32, but item 0 is"),
        (({"x": X, "n": Y + 2**24}, Y), "field 'n' of the train set has integers above 16777216 beside floats"),
    ],
)
def test_fields_that_cannot_be_used_are_told_in_one_line(data: Any, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_examples("train set", data)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


class Counted(Squares):
    """A data set that says its labels, as torchvision's do, and notes which items were read."""

    def __init__(self, broken: int = -1) -> None:
        super().__init__(broken)
        self.targets, self.read = [2, 0, 1], list[int]()

    def __getitem__(self, place: int) -> Any:
        self.read.append(place)
        return super().__getitem__(place)


def test_of_a_large_set_only_what_is_needed_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedchain.learning.task.examples.LAZY_SIZE", 40)
    data = Counted()
    examples = read_examples("train set", torch.utils.data.Subset(data, [2, 0, 1]))
    inputs = examples.inputs
    assert isinstance(inputs, LazyInputs)
    assert (inputs.shape, inputs.dtype, len(inputs)) == ((3, 2, 2), torch.float32, 3)
    assert examples.labels.tolist() == [1, 2, 0]
    data.read.clear()
    assert inputs.index_select(0, torch.tensor([2, 0]))[:, 0, 0].tolist() == [1.0, 2.0]
    assert data.read == [1, 2]
    assert inputs[torch.tensor([1])][0, 0, 0] == inputs[1][0, 0] == 0.0
    data.read.clear()
    with torch.inference_mode():
        parts = torch.split(inputs, 2)
        assert data.read == []
        assert inputs[0:1].sum() == 8.0
        data.read.clear()
        assert [part.mean(dim=(1, 2)).tolist() for part in parts] == [[2.0, 0.0], [1.0]]
    assert data.read == [2, 0, 1]
    assert torch.equal(inputs[1:] + 0, torch.stack([torch.zeros(2, 2), torch.ones(2, 2)]))
    assert torch.cat([inputs, inputs]).shape == (6, 2, 2)


def test_what_is_wrong_in_a_large_set_is_told_when_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedchain.learning.task.examples.LAZY_SIZE", 40)
    inputs = read_examples("train set", Counted(broken=1)).inputs
    with pytest.raises(ConfigurationError, match=r"item 1 of the train set is no \(x, y\): OSError: no such image"):
        inputs.index_select(0, torch.tensor([1]))
    data = [(torch.tensor([float("inf")] * 8), 0), (torch.zeros(8), 1)]
    with pytest.raises(ConfigurationError, match="the inputs of the test set are not all finite numbers"):
        read_examples("test set", data).inputs[:1].sum()
