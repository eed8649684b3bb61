"""A user's examples: what can be read becomes tensors, and what cannot is told in one line."""

import warnings
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from torch.utils.data import IterableDataset, TensorDataset

from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.task import examples
from fedchain.learning.task.examples import read_examples, validate_labels
from tests.support.learning import squares
from tests.support.learning.squares import Squares

X, Y = torch.arange(12.0).reshape(4, 3), torch.tensor([0, 2, 1, 2])


MASKED = np.ma.masked_inside(X.numpy(), 5.5, 8.5)
"""The third row, 6 to 8, is masked."""


class Stream(IterableDataset[Any]):
    """Nobody knows how long it is."""

    def __iter__(self) -> Any:
        raise AssertionError("it has no length, so it is not asked")


class Lengthless(Squares):
    """Its length is in a file that is gone."""

    def __len__(self) -> int:
        raise OSError("no index")


class Ending(Squares):
    """Would end the process of all that read it."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where

    def __len__(self) -> int:
        if self.where == "length":
            raise SystemExit("no more")
        return super().__len__()

    def __getitem__(self, place: int) -> Any:
        if self.where == "item":
            raise SystemExit("no more")
        return super().__getitem__(place)

    def __array__(self, *arguments: Any, **named: Any) -> Any:
        raise SystemExit("no more")


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
    read = read_examples("train set", data)
    inputs, labels = read.inputs, read.labels
    assert torch.equal(inputs, X)
    assert torch.equal(labels, Y)
    assert (inputs.dtype, labels.dtype, inputs.requires_grad) == (torch.float32, torch.int64, False)


def test_a_table_is_read_by_its_rows_and_not_by_their_names() -> None:
    rows = [12, 10, 11, 13]  # what a table's shuffled part is left with
    table = pandas.DataFrame(X.double().numpy(), columns=list("abc"), index=rows)
    labels = pandas.Series(Y.numpy(), index=rows)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch's own, of memory that it may not write to
        read = read_examples("train set", (table, labels))
    assert torch.equal(read.inputs, X)
    assert torch.equal(read.labels, Y)
    named = read_examples("train set", {"a": table["a"], "rest": table[["b", "c"]], "label": labels})
    assert torch.equal(named.inputs, X)
    assert torch.equal(named.labels, Y)
    items = [(table.iloc[place], labels.iloc[place]) for place in range(4)]
    assert torch.equal(read_examples("train set", items).inputs, X)
    of_fields = [{"row": row, "label": label} for row, label in items]
    assert torch.equal(read_examples("train set", of_fields).inputs, X)


@pytest.mark.parametrize("size", [examples.LAZY_SIZE, 0], ids=["held", "lazy"])
def test_fields_of_items_are_read_by_their_names_in_whatever_order_they_come(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examples, "LAZY_SIZE", size)
    named = [{"a": x[:1], "b": x[1:2], "label": int(y)} for x, y in zip(X, Y, strict=True)]
    turned = [dict(reversed(item.items())) if place % 2 else item for place, item in enumerate(named)]
    read = read_examples("train set", turned)
    assert torch.equal(read.inputs[[0, 1, 2, 3]], X[:, :2])
    assert torch.equal(read.labels, Y)
    assert [field.name for field in read.fields] == ["a", "b"]


@pytest.mark.parametrize(
    ("item", "found"),
    [
        ({"a": 1.5, "b": 0.5, "label": 1}, "('a', (), 'float32'), ('b', (), 'float32')"),
        ({"a": 1, "c": 0.5, "label": 1}, "('a', (), 'int64'), ('c', (), 'float32')"),
        ({"a": [1], "b": 0.5, "label": 1}, "('a', (1,), 'int64'), ('b', (), 'float32')"),
    ],
    ids=["a fraction where integers stood", "another name", "another shape"],
)
def test_items_have_the_fields_of_the_first_one(item: dict[str, Any], found: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_examples("train set", [{"a": 1, "b": 0.5, "label": 0}, item])
    wanted = "[('a', (), 'int64'), ('b', (), 'float32')]"
    assert str(caught.value) == f"item 1 of the train set has the fields [{found}], but item 0 has {wanted}"


def test_items_may_have_any_shape() -> None:
    read = read_examples("train set", Squares())
    inputs, labels = read.inputs, read.labels
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
        ((MASKED, Y), "inputs of the train set must be without masked values, not with 3 of them"),
        ((X, MASKED[:, 0].astype(int)), "labels of the train set must be without masked values, not with 1 of them"),
        ([(MASKED[2], 0)], "item 0 of the train set must be without masked values, not with 3 of them"),
        (({"x": MASKED}, Y), "field 'x' of the train set must be without masked values"),
        ([{"x": MASKED[2], "label": 0}], "field 'x' of item 0 of the train set must be without masked values"),
        ((X.to_sparse(), Y), "inputs of the train set must be a plain tensor, not one that is sparse"),
        ((X, Y.to_sparse()), "labels of the train set must be a plain tensor, not one that is sparse"),
        ((X.to("meta"), Y), "inputs of the train set must be a plain tensor, not one that is without data"),
        ([(X[0].to_sparse(), 0)], "item 0 of the train set must be a plain tensor, not one that is sparse"),
        ([{"x": X[0].to_sparse(), "label": 0}], "field 'x' of item 0 of the train set must be a plain tensor"),
        (Lengthless(), "the train set has no length: OSError: no index"),
        (Ending("length"), "the train set has no length: SystemExit: no more"),
        (Ending("item"), "item 0 of the train set is no (x, y): SystemExit: no more"),
        ((Ending("array"), Y), "the train set cannot be made tensors: SystemExit: no more"),
        (None, "the train set must be a torch Dataset with a length, or tensors (x, y), not NoneType"),
        (Stream(), "with a length, or tensors (x, y), not Stream"),
        ([3, 4], "item 0 of the train set is no (x, y): TypeError"),
        (Squares(broken=1), "item 1 of the train set is no (x, y): OSError: no such image (" + squares.__file__),
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
