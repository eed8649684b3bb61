"""Addresses with their numbers."""

import logging

import pytest

from fedchain.node.operating.console import LINE
from fedchain.node.operating.member_numbers import MemberNumbers


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
        ("%s heard %s", ("12D3KooWother", -1.5), "12D3KooWother (peer 11) heard -1.5"),
        ("%s is banned for %.0f s: %s", (Named(), 60.0, "12"), "12D3KooWone (peer 3) is banned for 60 s: 12"),
        ("%s is not admitted", ("12D3KooWstranger",), "12D3KooWstranger is not admitted"),
        ("height=%d of %s", (3, "12D3KooWone is told"), "height=3 of 12D3KooWone is told"),
        ("stopping", (), "stopping"),
    ],
)
def test_an_address_has_its_number_behind_it(message: str, values: tuple[object, ...], text: str) -> None:
    assert logging.Formatter(LINE).format(record_of(message, *values)).endswith(f" INFO fedchain.node {text}")
