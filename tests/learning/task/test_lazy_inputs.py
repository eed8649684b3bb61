"""A large set is read as far as it is needed."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.task.examples import read_examples
from fedchain.learning.task.lazy_inputs import LazyInputs
from tests.support.learning.squares import Squares


class Counted(Squares):
    """A data set that says its labels, as torchvision's do, and notes which items were read."""

    def __init__(self, broken: int = -1) -> None:
        super().__init__(broken)
        self.targets, self.read = [2, 0, 1], list[int]()
        self.target_transform: Callable[[int], int] | None = None

    def __getitem__(self, place: int) -> Any:
        self.read.append(place)
        label = self.targets[place]
        return super().__getitem__(place)[0], self.target_transform(label) if self.target_transform else label


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


def test_labels_of_a_large_set_are_those_of_its_items(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedchain.learning.task.examples.LAZY_SIZE", 40)
    data = Counted()
    data.target_transform = lambda label: label // 2
    assert read_examples("train set", data).labels.tolist() == [1, 0, 0]
    assert read_examples("train set", torch.utils.data.Subset(data, [2, 0, 1])).labels.tolist() == [0, 1, 0]


@pytest.mark.parametrize("targets", [["a.xml", "b.xml", "c.xml"], [2.0, 0.0, 1.0]], ids=["names", "fractions"])
def test_targets_that_are_no_integers_are_not_the_labels_of_a_large_set(
    targets: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedchain.learning.task.examples.LAZY_SIZE", 40)

    class Told(Squares):
        def __init__(self) -> None:
            super().__init__()
            self.targets = targets

    data = Told()
    assert read_examples("train set", data).labels.tolist() == [1, 1, 1]
    assert read_examples("train set", torch.utils.data.Subset(data, [2, 0])).labels.tolist() == [1, 1]
    with pytest.raises(ConfigurationError, match=r"^item 1 of the train set is no \(x, y\): IndexError"):
        read_examples("train set", torch.utils.data.Subset(Counted(), [2, 3]))


def test_a_large_set_whose_items_have_other_labels_than_it_states_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedchain.learning.task.examples.LAZY_SIZE", 40)

    class Merged(Counted):
        def __getitem__(self, place: int) -> Any:
            x, label = super().__getitem__(place)
            return x, min(label, 1)

    wrong = r"^item 0 of the train set has label 1, but its `targets` say 2$"
    with pytest.raises(ConfigurationError, match=wrong):
        read_examples("train set", Merged()).inputs.index_select(0, torch.tensor([1, 0]))


def test_a_large_set_whose_items_change_their_labels_is_refused_in_words_that_fit_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fedchain.learning.task.examples.LAZY_SIZE", 40)
    data = [(torch.zeros(8), 0), (torch.zeros(8), 1)]
    inputs = read_examples("train set", data).inputs
    data[1] = torch.zeros(8), 5
    wrong = r"^item 1 of the train set has label 5, but it had 1 when it was read before$"
    with pytest.raises(ConfigurationError, match=wrong):
        inputs[:2].sum()
