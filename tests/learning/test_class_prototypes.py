"""The answer of a method's ``prototypes``: what a user's own one returns is looked at before anybody counts on it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from fedchain.learning.class_prototypes import class_prototypes
from fedchain.learning.exceptions import OwnCodeFailed
from fedchain.learning.methods.blade_fl import BladeFl
from fedchain.learning.round import Tensors
from fedchain.runs import simulate

ROWS = np.ones((2, 3), np.float32)
SOUND: dict[str, Any] = {"labels": np.arange(2), "prototypes": ROWS, "holders": np.arange(2)}


@dataclass(frozen=True, kw_only=True)
class Telling(BladeFl):
    """Tells what it is given."""

    def prototypes(self, knowledge: Tensors) -> Any:
        return knowledge


class Failing(Telling):
    def prototypes(self, knowledge: Tensors) -> Any:
        return knowledge["prototypes"]


def test_a_sound_answer_is_the_method_s() -> None:
    assert class_prototypes(Telling(), SOUND) is SOUND
    assert class_prototypes(BladeFl(), SOUND) is None


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ([ROWS], "this is list"),
        ({"prototypes": ROWS}, "labels is missing"),
        (SOUND | {"holders": [1, 2]}, "holders is list"),
        (SOUND | {"labels": np.ones(2)}, r"labels is float64 \(2,\)"),
        (SOUND | {"prototypes": ROWS[0]}, r"prototypes is float32 \(3,\)"),
        (SOUND | {"labels": np.arange(3)}, "they have 3 labels, 2 prototypes, 2 holders"),
    ],
    ids=str,
)
def test_another_answer_is_the_fault_of_the_method(answer: Any, said: str) -> None:
    expected = rf"prototypes of Telling must return None, or labels \(n,\), .*, as arrays: {said}$"
    with pytest.raises(OwnCodeFailed, match=expected):
        class_prototypes(Telling(), answer)


def test_an_error_names_its_line() -> None:
    with pytest.raises(OwnCodeFailed, match=r"^prototypes: KeyError: 'prototypes' \(.*test_class_prototypes.py, line "):
        class_prototypes(Failing(), {})


@dataclass(frozen=True, kw_only=True)
class Ones(BladeFl):
    """Tells prototypes of any kind."""

    kind: str = "float32"
    width: int = 32

    def prototypes(self, knowledge: Tensors) -> Any:
        return {"labels": np.arange(8), "prototypes": np.ones((8, self.width), self.kind), "holders": np.arange(8)}


@pytest.mark.parametrize("kind", ["float16", "float64"])
def test_prototypes_are_compared_whatever_their_precision_is(kind: str) -> None:
    """Numpy's own is twice that of the models: a mean without a type ended the run in torch."""
    expected = simulate(method=Ones, peers=2, rounds=1).rounds[-1]
    assert simulate(method=Ones, peers=2, rounds=1, hyperparameters={"kind": kind}).rounds[-1].taa == expected.taa


def test_prototypes_of_another_width_than_the_embeddings_are_told_in_one_line() -> None:
    with pytest.raises(OwnCodeFailed, match="the method's prototypes have 7 columns, embeddings of the model 32"):
        simulate(method=Ones, peers=2, rounds=1, hyperparameters={"width": 7})


def test_a_simulation_ends_with_it_in_one_line() -> None:
    """It was a KeyError of this package."""
    with pytest.raises(OwnCodeFailed, match="prototypes of Telling must return None"):
        simulate(method=Telling, peers=2, rounds=1)
