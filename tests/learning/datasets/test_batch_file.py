"""CIFAR's Python form is read without running it."""

import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedchain.learning.datasets.batch_file import read_batch_file
from fedchain.learning.exceptions import DatasetError
from tests.learning.datasets.official import (
    cifar_python,
)
from tests.support.learning.unchecked import unchecked as unchecked


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"cos\nsystem\n(U\x04evilq\x00tR.", "it asks for 'os system'"),
        (b"\x80\x02cbuiltins\neval\nU\x01a\x85R.", "it asks for 'builtins eval'"),
        (b"(ios\nsystem\n.", "instruction INST"),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "instruction STACK_GLOBAL"),
        (b"\x80\x02]q\x00.", "must hold a dictionary, not list"),
        (b"\x80\x02}q\x00", "pickle exhausted before seeing STOP"),
        (b"", "pickle exhausted"),
        (b"\x80\x02}h\x07.", "7"),
        (b"\x80\x02u.", "pop from empty|out of range"),
        (b"\x80\x02}K\x01K\x02u.", "a mark is missing"),
        (cifar_python([1])[:-40], "expected|exhausted"),
    ],
    ids=[
        "call",
        "reduce",
        "old call",
        "new call",
        "list",
        "endless",
        "empty",
        "memory",
        "nothing",
        "no mark",
        "cut off",
    ],
)
def test_a_python_file_that_wants_anything_else_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        read_batch_file(Path("batch"), content)


ASKED: list[str] = []
"""Names that were imported or unpickled while the test listened."""


def _listen(event: str, arguments: tuple[object, ...]) -> None:
    if event in ("pickle.find_class", "import") and ASKED[:1] == ["listening"]:
        ASKED.append(f"{event} {arguments[:2]}")


def test_reading_a_python_file_imports_nothing_and_calls_nothing() -> None:
    read_batch_file(Path("batch"), cifar_python([3]))  # now every import of ours is done
    sys.addaudithook(_listen)
    ASKED[:] = ["listening"]
    try:
        found = read_batch_file(Path("batch"), cifar_python([3, 4]))
        with pytest.raises(DatasetError):
            read_batch_file(Path("batch"), b"cantigravity\ngeohash\n)R.")
    finally:
        heard, ASKED[:] = ASKED[1:], []
    assert heard == []
    assert found["labels"] == [3, 4]


@given(place=st.integers(0, len(cifar_python([3, 4])) - 1), value=st.integers(0, 255))
def test_a_python_file_with_a_wrong_byte_is_read_or_refused(place: int, value: int) -> None:
    content = bytearray(cifar_python([3, 4]))
    content[place] = value
    with suppress(DatasetError):
        assert isinstance(read_batch_file(Path("batch"), bytes(content)), dict)
