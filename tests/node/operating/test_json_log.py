"""Log lines as JSON: one object a line, with what the message names in fields of its own."""

import json
import logging
import math
import sys
from typing import Any

from fedchain.node.operating.json_log import JsonFormatter


def logged(message: str, *values: Any, error: bool = False) -> dict[str, Any]:
    information: Any = sys.exc_info() if error else None
    record = logging.LogRecord("fedchain.node", logging.INFO, __file__, 1, message, values, information)
    record.created = 1_700_000_000.25
    text = JsonFormatter().format(record)
    assert "\n" not in text
    line: dict[str, Any] = json.loads(text)
    return line


def test_named_values_are_fields() -> None:
    values = {"height": 7, "hash": "ab", "took": 0.123, "word": "and", "finished": True}
    assert logged("head height=%(height)d hash=%(hash)s took=%(took).2f %(word)s finished=%(finished)s", values) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "info",
        "logger": "fedchain.node",
        "message": "head height=7 hash=ab took=0.12 and finished=True",
        **values,
    }


def test_what_values_hold_makes_no_fields_and_no_lines() -> None:
    text = 'x\nheight=9 "level": "error" %(height)d'
    for line in (logged("refused: %s", text), logged("refused: %(reason)s", {"reason": text})):
        assert ("height" in line, line["level"], line["message"]) == (False, "info", f"refused: {text}")


def test_a_reserved_name_is_not_replaced() -> None:
    line = logged("100%% height=%(height)d level=%(level)s", {"height": 3, "level": "loud"})
    assert (line["height"], line["level"], line["message"]) == (3, "info", "100% height=3 level=loud")


def test_values_that_json_does_not_know_are_written_as_text() -> None:
    assert logged("peer=%(peer)s", {"peer": b"\x01"})["peer"] == "b'\\x01'"


def test_a_number_that_is_not_finite_is_written_as_text() -> None:
    assert logged("epsilon=%(epsilon)s", {"epsilon": math.inf})["epsilon"] == "Infinity"


def test_an_exception_is_one_field() -> None:
    try:
        raise ValueError("bad")
    except ValueError:
        assert "ValueError: bad" in logged("it failed", error=True)["error"]
