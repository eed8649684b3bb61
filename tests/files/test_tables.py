"""Tables of TOML files: each mistake is told with its place, what is there, and what would be right."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, time
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from fedchain.files.tables import Range, build, nearest, read_toml


class TableError(Exception):
    pass


@dataclass(frozen=True, kw_only=True)
class Row:
    at_s: float
    names: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Whole:
    count: int = 0
    colour: Literal["red", "green"] = "red"
    colours: tuple[Literal["red", "green"], ...] = ()
    ratio: float = 0.0
    share: Annotated[float, Range(0, 1)] = 0.0
    pair: tuple[int, int] = (0, 0)
    rows: tuple[Row, ...] = ()
    settings: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    numbers: Mapping[str, Sequence[float]] = field(default_factory=dict)
    anything: Mapping[str, Any] = field(default_factory=dict)


def test_what_is_right_is_taken_as_it_is() -> None:
    table = {
        "ratio": 3,
        "pair": [1, 2],
        "rows": [{"at_s": 1, "names": ["a"]}],
        "settings": {"a": True, "b": 2, "c": 2.5, "d": "x"},
        "numbers": {"a": [1, 2.5]},
        "anything": {"a": [1, "x"]},
    }
    whole = build(Whole, table, "it", TableError)
    assert (type(whole.ratio), whole.ratio, whole.pair, whole.rows) == (
        float,
        3.0,
        (1, 2),
        (Row(at_s=1, names=("a",)),),
    )
    assert [type(value) for value in whole.settings.values()] == [bool, int, float, str]
    assert (whole.numbers, whole.anything) == ({"a": [1.0, 2.5]}, {"a": [1, "x"]})
    assert build(Whole, {"rows": whole.rows}, "it", TableError).rows == whole.rows, "what is built already may stay"


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (3, "it is 3, it must be a table"),
        ({"cuont": 3}, "it has no key 'cuont'; did you mean 'count'?"),
        ({"rows": [{"at_s": 1.0}, {"when": 1}]}, "it rows[1] has no key 'when'; known are at_s, names"),
        ({"rows": [{}]}, "it rows[0] lacks the key 'at_s'"),
        ({"rows": [3]}, "it rows[0] is 3, it must be a table"),
        ({"rows": [{"at_s": 1.0, "names": ["a", 2]}]}, "it rows[0] names[1] is 2, it must be of type str"),
        ({"count": 2**64}, "it count holds an integer of 65 bits, at most 64 are allowed"),
        ({"anything": {"a": [{"b": -(2**70)}]}}, "it anything holds an integer of 71 bits, at most 64 are allowed"),
        (
            {"settings": {"d": "x"}, "rows": [{"at_s": 1.0, "names": ["a", "b\0"]}]},
            "it rows[0] names holds a NUL character",
        ),
        ({"colour": "red\0"}, "it colour holds a NUL character"),
        ({"count": "\udcff"}, "it count holds what is no text in UTF-8"),
        ({"settings": {"\udcff": 1}}, "it settings holds what is no text in UTF-8"),
        ({"share": 1.01}, "it share is 1.01, it must be between 0 and 1"),
        ({"share": 2}, "it share is 2, it must be between 0 and 1"),
        ({"share": -0.01}, "it share is -0.01, it must be between 0 and 1"),
        ({"colour": "gren"}, "it colour is 'gren'; did you mean 'green'?"),
        ({"colour": 3}, "it colour is 3, it must be of type str"),
        ({"colours": ["red", "blue"]}, "it colours is 'blue'; known are red, green"),
        ({"colours": "red"}, "it colours is 'red', it must be an array"),
        ({"pair": [1]}, "it pair is [1], it must be an array of 2"),
        ({"settings": {"a": 1, "b": [2]}}, "it settings b is [2], it must be of type bool, int, float, str"),
        ({"numbers": {"a": [1.0], "b": [1.0, "x"]}}, "it numbers b[1] is 'x', it must be of type float"),
        ({"numbers": {"a": [1.0], "b": "x"}}, "it numbers b is 'x', it must be an array"),
        ({"count": np.int64(3)}, f"it count is {np.int64(3)!r}, it must be of type int"),
        ({"settings": {"a": 1, "b": None}}, "it settings b is None, it must be of type bool, int, float, str"),
        ({"count": date(2026, 1, 2)}, "it count is datetime.date(2026, 1, 2), it must be of type int"),
        (
            {"settings": {"a": 1, "b": time(1)}},
            "it settings b is datetime.time(1, 0), it must be of type bool, int, float, str",
        ),
        ({"count": Decimal(1)}, "it count is Decimal('1'), it must be of type int"),
        ({"settings": {"a": 1, 3: 1}}, "it settings has the key 3, it must be of type str"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(table: Any, message: str) -> None:
    with pytest.raises(TableError) as caught:
        build(Whole, table, "it", TableError)
    assert str(caught.value) == message


@pytest.mark.parametrize("share", [0, 0.0, 1, 1.0])
def test_the_ends_of_a_range_are_in_it(share: float) -> None:
    assert build(Whole, {"share": share}, "it", TableError).share == share


@pytest.mark.parametrize("content", [b"a = " + b"[" * 10_000, b"a = \xff", b"a = " + b"9" * 10_000])
def test_a_file_that_no_parser_takes_is_told_in_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "it.toml").write_bytes(content)
    with pytest.raises(TableError, match=r"^.*it\.toml is not TOML: .*$"):
        read_toml(tmp_path / "it.toml", TableError)


def test_a_file_without_end_is_read_as_far_as_settings_may_reach() -> None:
    with pytest.raises(TableError, match=r"^/dev/zero is no file of settings: it has more than 4,194,304 bytes$"):
        read_toml(Path("/dev/zero"), TableError)


def test_a_word_that_looks_like_none_is_answered_with_all() -> None:
    assert nearest("zzzz", ("one", "two")) == "; known are one, two"
    assert nearest("zzzz", ("", "one")) == "; known are '', one", "an empty text is one of the words"
