"""A method's memory survives a checkpoint, field by field."""

from dataclasses import dataclass, field

import pytest

from fedchain.learning.state import read_record, record_size, write_record
from tests.support.learning.everything import FULL, Everything, plain
from tests.support.learning.federation import new_client


@pytest.mark.parametrize("record", [FULL, Everything()])
def test_a_record_comes_back(record: Everything) -> None:
    assert plain(read_record(Everything, write_record(record))) == plain(record)


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

    with pytest.raises(TypeError, match=r"Wrong.names is list\[str\], which no checkpoint can hold"):
        write_record(Wrong())
