"""A method's memory survives a checkpoint, field by field."""

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from fedchain.learning.state import read_record, write_record
from fedchain.learning.worker.checkpoint import copy_state, load_state, restore_state, save_state
from tests.support.learning.federation import new_client


@dataclass(slots=True)
class Everything:
    vector: torch.Tensor | None = None
    window: tuple[torch.Tensor, ...] = ()
    model: dict[str, torch.Tensor] = field(default_factory=dict)
    count: int = -1
    share: float | None = None
    is_tired: bool = False


FULL = Everything(
    vector=torch.tensor([1.0, 1e-45]),
    window=tuple(torch.full((2,), float(place)) for place in range(11)),
    model={"fc.weight": torch.ones(2, 2), "fc.bias": torch.zeros(2, dtype=torch.int64)},
    count=2**62 + 1,
    share=0.1,
    is_tired=True,
)


def plain(record: Any) -> Any:
    """A record in values that can be compared."""
    vector = None if record.vector is None else record.vector.tolist()
    model = {name: value.tolist() for name, value in record.model.items()}
    window = [value.tolist() for value in record.window]
    return vector, window, model, record.count, record.share, record.is_tired


@pytest.mark.parametrize("record", [FULL, Everything()])
def test_a_record_comes_back(record: Everything) -> None:
    assert plain(read_record(Everything, write_record(record))) == plain(record)


def test_a_checkpoint_holds_the_record() -> None:
    client, other = new_client(), new_client()
    client.states["Everything"] = FULL
    load_state(other, save_state(client))
    assert save_state(other) == save_state(client), "before anybody asked for it"
    assert plain(other.state(Everything)) == plain(FULL)
    assert save_state(other) == save_state(client)


def test_what_is_set_aside_is_a_copy() -> None:
    client = new_client()
    client.state(Everything).vector = torch.zeros(2)
    before = copy_state(client)
    vector = client.state(Everything).vector
    assert vector is not None
    vector += 1
    client.state(Everything).count = 7
    restore_state(client, before)
    assert plain(client.state(Everything)) == ([0.0, 0.0], [], {}, -1, None, False)


def test_a_record_is_the_same_object_every_time() -> None:
    client = new_client()
    assert client.state(Everything) is client.state(Everything)


def test_a_field_that_no_checkpoint_can_hold_is_refused() -> None:
    @dataclass
    class Wrong:
        names: list[str] = field(default_factory=list)

    with pytest.raises(TypeError, match=r"Wrong.names is list\[str\], which no checkpoint can hold"):
        write_record(Wrong())
