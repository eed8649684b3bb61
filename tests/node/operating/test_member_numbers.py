"""A log names members by number and address."""

import json
import logging
from collections.abc import Iterator

import pytest

from fedchain.crypto.address import address
from fedchain.node.core.notices import ClockOff
from fedchain.node.operating.console import LINE
from fedchain.node.operating.json_log import JsonFormatter
from fedchain.node.operating.member_numbers import MemberNumbers, number_members
from fedchain.node.operating.report import log_notice
from tests.support.chain.builders import genesis


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


def test_the_node_s_own_lines_have_address_and_number_in_fields_of_their_own(caplog: pytest.LogCaptureFixture) -> None:
    document = genesis(3)
    log_notice(ClockOff(document.members[2], 2_000), document)
    (record,) = caplog.records
    assert MemberNumbers({address(document.members[2]): 2}).filter(record)
    line, named = json.loads(JsonFormatter().format(record)), address(document.members[2])
    assert (line["member"], line["member_number"], line["by"]) == (named, 2, 2.0)
    assert line["message"] == f"clock off member={named} (peer 2) by=+2.0 s against the others"


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
