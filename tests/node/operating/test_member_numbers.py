"""A log names members by number and address."""

import json
import logging
from collections.abc import Iterator

import pytest

from fedchain.node.operating.console import LINE
from fedchain.node.operating.json_log import JsonFormatter
from fedchain.node.operating.member_numbers import MemberNumbers, number_members


class Named:
    """Writes itself as an address, as libp2p's peer ids do."""

    def __str__(self) -> str:
        return "12D3KooWone"


NUMBERS = {"12D3KooWone": 3, "12D3KooWother": 11}


def record_of(message: str, *values: object) -> logging.LogRecord:
    record = logging.LogRecord("fedchain.node", logging.INFO, __file__, 1, message, values, None)
    assert MemberNumbers(NUMBERS).filter(record)
    return record


@pytest.mark.parametrize(
    ("message", "values", "text"),
    [
        (
            "clock off member=%s by=%+.1f s",
            ("12D3KooWother", -1.5),
            "clock off member=12D3KooWother (peer 11) by=-1.5 s",
        ),
        ("%s is banned for %.0f s: %s", (Named(), 60.0, "12"), "12D3KooWone (peer 3) is banned for 60 s: 12"),
        ("%s is not admitted", ("12D3KooWstranger",), "12D3KooWstranger is not admitted"),
        ("height=%d of %s", (3, "12D3KooWone is told"), "height=3 of 12D3KooWone is told"),
        ("stopping", (), "stopping"),
    ],
)
def test_an_address_has_its_number_behind_it(message: str, values: tuple[object, ...], text: str) -> None:
    assert logging.Formatter(LINE).format(record_of(message, *values)).endswith(f" INFO fedchain.node {text}")


def test_the_number_is_a_field_of_its_own_in_json() -> None:
    record = record_of("clock off member=%s by=%+.1f s", "12D3KooWone", 2.0)
    line = json.loads(JsonFormatter().format(record))
    assert (line["member"], line["member_number"], line["by"]) == ("12D3KooWone", 3, 2.0)
    assert line["message"] == "clock off member=12D3KooWone (peer 3) by=+2.0 s"


@pytest.fixture
def handler() -> Iterator[logging.Handler]:
    handler = logging.NullHandler()
    logging.getLogger().addHandler(handler)
    yield handler
    logging.getLogger().removeHandler(handler)


def test_another_federation_s_numbers_take_the_place_of_the_last_one_s(handler: logging.Handler) -> None:
    number_members(NUMBERS)
    number_members({"12D3KooWone": 0})
    record = logging.LogRecord("fedchain.node", logging.INFO, __file__, 1, "%s", ("12D3KooWone",), None)
    assert handler.filter(record)
    assert record.getMessage() == "12D3KooWone (peer 0)"
    number_members({})
