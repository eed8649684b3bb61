"""A log names members by number and address."""

import json
import logging
from collections.abc import Iterator

import pytest

from fedchain.crypto.address import address
from fedchain.node.core.notices import ClockOff, HeadConflicts
from fedchain.node.operating.json_log import JsonFormatter
from fedchain.node.operating.member_numbers import MemberNumbers, number_members
from fedchain.node.operating.report import log_notice
from tests.support.chain.builders import genesis

NUMBERS = {"12D3KooWone": 3, "12D3KooWother": 11}


def test_the_node_s_own_lines_have_address_and_number_in_fields_of_their_own(caplog: pytest.LogCaptureFixture) -> None:
    document = genesis(3)
    log_notice(ClockOff(document.members[2], 2_000), document.index)
    (record,) = caplog.records
    assert MemberNumbers({address(document.members[2]): 2}).filter(record)
    line, named = json.loads(JsonFormatter().format(record)), address(document.members[2])
    assert (line["member"], line["member_number"], line["by"]) == (named, 2, 2.0)
    assert line["message"] == f"clock off member={named} (peer 2) by=+2.0 s against the others"


def test_a_key_that_was_replaced_since_is_told_without_a_number(caplog: pytest.LogCaptureFixture) -> None:
    member = genesis(3).members[2]
    log_notice(ClockOff(member, 2_000), {})
    assert f"clock off member={address(member)} (peer ?)" in caplog.text


def test_two_certified_blocks_are_told_with_the_members_that_signed_both(caplog: pytest.LogCaptureFixture) -> None:
    liars = genesis(3).members[:2]
    log_notice(HeadConflicts(7, (bytes(32), bytes([1]) * 32), liars), {})
    (record,) = caplog.records
    said = record.getMessage()
    assert said.startswith(f"two blocks are certified height=7: {bytes(32).hex()} and {(bytes([1]) * 32).hex()}, both")
    assert all(address(liar) in said for liar in liars)


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
