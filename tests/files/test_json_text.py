"""Tests for files/json_text.py."""

import json
import math
from typing import Any

import pytest

from fedchain.files.json_text import from_json, to_json


def _refuse(name: str) -> Any:
    raise ValueError(name)


def test_numbers_that_are_not_finite_are_text() -> None:
    text = to_json({"epsilon": math.inf, "losses": (1.5, -math.inf), "one": [{"loss": math.nan}], "none": None})
    found = json.loads(text, parse_constant=_refuse)
    assert found == {"epsilon": "Infinity", "losses": [1.5, "-Infinity"], "one": [{"loss": "NaN"}], "none": None}


@pytest.mark.parametrize("number", [0.1 + 0.2, math.inf, -math.inf])
def test_numbers_are_read_as_they_were_written(number: float) -> None:
    assert from_json(to_json({"in": {"epsilon": number}})) == {"in": {"epsilon": number}}


def test_no_number_is_read_as_none() -> None:
    assert math.isnan(from_json(to_json({"loss": math.nan}))["loss"])


def test_pythons_own_form_is_read() -> None:
    assert from_json(b'{"epsilon": Infinity, "name": "infinity"}') == {"epsilon": math.inf, "name": "infinity"}


def test_the_layout_is_that_of_json_dumps() -> None:
    value, text = {"a": [1, 2], "b": "ü"}, {"a": "Infinity", "b": "ü"}
    assert to_json(value, indent=2) == json.dumps(value, indent=2)
    assert to_json(value, separators=(",", ":")) == json.dumps(value, separators=(",", ":"))
    assert to_json({"a": math.inf, "b": "ü"}, indent=2, ensure_ascii=False) == json.dumps(
        text, indent=2, ensure_ascii=False
    )
