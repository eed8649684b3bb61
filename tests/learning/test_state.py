"""A method's memory survives a checkpoint, field by field."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

from fedchain.learning.exceptions import OwnCodeFailed
from fedchain.learning.state import read_record, record_size, write_record
from fedchain.learning.worker.checkpoint import copy_state, restore_state
from fedchain.learning.worker.learner import Learner
from tests.support.learning.everything import FULL, Everything, plain
from tests.support.learning.federation import config, new_client


@pytest.mark.parametrize("record", [FULL, Everything()])
def test_a_record_comes_back(record: Everything) -> None:
    assert plain(read_record(Everything, write_record(record))) == plain(record)


@dataclass
class Eager:
    """A record that is new with something in each field, or with nothing where others hold no tensor."""

    vector: torch.Tensor | None = field(default_factory=lambda: torch.zeros(2))
    window: tuple[torch.Tensor, ...] | None = None
    model: dict[str, torch.Tensor] = field(default_factory=lambda: {"a": torch.zeros(2)})
    share: float | None = 0.5


@pytest.mark.parametrize(
    "emptied",
    [{"vector": None}, {"window": ()}, {"model": {}}, {"share": None}, {"vector": None, "model": {}}],
    ids=str,
)
def test_a_field_that_was_emptied_is_not_as_in_a_new_record(emptied: dict[str, Any]) -> None:
    """A client that was put back after a forecast, or an interruption, went on with what it had thrown away."""
    found = read_record(Eager, write_record(Eager(**emptied)))
    assert {name: getattr(found, name) for name in emptied} == emptied
    client = new_client()
    client.states["Eager"] = Eager(**emptied)
    restore_state(client, copy_state(client))
    assert {name: getattr(client.state(Eager), name) for name in emptied} == emptied


def test_a_new_record_is_not_made_to_write_one() -> None:
    """Its random numbers would be missing in what a client draws next, but only where it is written."""
    made = []

    def draw() -> dict[str, torch.Tensor]:
        made.append(torch.randn(2))
        return {"a": made[-1]}

    @dataclass
    class Drawn:
        vector: torch.Tensor | None = field(default_factory=lambda: draw()["a"])
        model: dict[str, torch.Tensor] = field(default_factory=draw)

    found = read_record(Drawn, write_record(Drawn(None, {})))
    assert (found.vector, found.model, made) == (None, {}, [])


def test_numbers_of_numpy_are_numbers() -> None:
    """NumPy compares its own truth value with no number of 64 bits."""
    given: dict[str, Any] = {"count": np.uint8(3), "share": np.float32(0.5), "is_tired": np.bool_(True)}
    found = read_record(Everything, write_record(Everything(**given)))
    assert (found.count, found.share, found.is_tired) == (3, 0.5, True)


def test_long_doubles_are_kept_where_they_are_numbers_of_64_bits() -> None:
    given: dict[str, Any] = {"count": np.longdouble(3), "share": np.longdouble(0.5)}
    found = read_record(Everything, write_record(Everything(**given)))
    assert (found.count, found.share) == (3, 0.5)


def test_a_record_has_the_size_of_its_tensors() -> None:
    tensors = write_record(FULL)
    held = [value for name, value in tensors.items() if name not in ("count", "share", "is_tired")]
    assert record_size(FULL) == sum(value.nbytes for value in held) == 8 + 11 * 8 + 16 + 16
    assert record_size(Everything()) == 0


def test_a_record_is_the_same_object_every_time() -> None:
    client = new_client()
    assert client.state(Everything) is client.state(Everything)


def test_a_field_that_no_checkpoint_can_hold_is_refused() -> None:
    @dataclass
    class Wrong:
        names: list[str] = field(default_factory=list)

    for refused in (lambda: write_record(Wrong()), lambda: new_client().state(Wrong)):
        with pytest.raises(TypeError, match=r"Wrong.names is list\[str\], which no checkpoint can hold"):
            refused()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"count": torch.zeros(2)}, "count holds Tensor, not number"),
        ({"count": np.str_("3")}, "count holds str, not number"),
        ({"share": np.complex64(1)}, "share holds complex, not number"),
        ({"vector": np.zeros(2)}, "vector holds ndarray, not Tensor"),
        ({"window": [torch.zeros(2)]}, "window holds list, not tuple"),
        ({"model": {"a": 3}}, r"model\['a'\] holds int, not Tensor"),
        ({"model": {3: torch.zeros(2)}}, "model has the key 3, which must be a text"),
        ({"vector": torch.zeros(2, dtype=torch.complex64)}, "vector is of torch.complex64, torch.strided, on cpu: no "),
        ({"vector": torch.eye(2).to_sparse()}, "vector is of torch.float32, torch.sparse_coo, on cpu: no checkpoint"),
        ({"window": (torch.zeros(2, device="meta"),)}, r"window\[0\] is of torch.float32, torch.strided, on meta: no "),
        ({"count": 2**63}, "count is 9223372036854775808, which would come back as another number: it is stated as in"),
        ({"count": 2.5}, "count is 2.5, which would come back as another number: it is stated as int, of 64 bits"),
        ({"share": 2**53 + 1}, "share is 9007199254740993, which would come back as another number: it is stated as"),
        ({"share": 10**400}, "share is 10+, which would come back as another number: it is stated as float, of 64 b"),
        ({"count": math.nan}, "count is nan, which would come back as another number"),
        ({"is_tired": 2}, "is_tired is 2, which would come back as another number: it is stated as bool"),
    ],
)
def test_a_field_that_holds_something_else_than_it_says_is_told(values: dict[str, Any], message: str) -> None:
    with pytest.raises(OwnCodeFailed, match=f"Everything.{message}"):
        write_record(Everything(**values))


def test_work_of_a_client_with_such_a_field_is_not_foreseen() -> None:
    """A training process, which foresees while nobody asks, would end."""
    learner = Learner(config("fedavg"))
    learner.client(0).state(Everything).vector = np.zeros(2)  # type: ignore[assignment]
    assert learner.foresee(0, "update", 1, b"") is None
    with pytest.raises(OwnCodeFailed, match="vector holds ndarray"):
        learner.contribute(0, "update", 1, b"")
