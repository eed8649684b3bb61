"""A member's record: its form, and the round from which on a change of it holds."""

from typing import Any

import pytest

from fedchain.chain.exceptions import InvalidEncoding
from fedchain.chain.member import Member, Standing
from tests.support.chain.builders import keys

KEY = keys(1)[0].public_key


def test_a_record_survives_being_encoded() -> None:
    record = Member(KEY, Standing.ACTIVE, Standing.LEFT, 7, 2, 3)
    assert Member.from_record(record.to_record()) == record


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [(0, bytes(31), "31 bytes found"), (1, 5, "5 found, 0 to 4 expected"), (2, 9, "9 found"), (3, b"", "int expected")],
)
def test_other_forms_are_refused(place: int, value: Any, message: str) -> None:
    record = Member(KEY, Standing.ACTIVE, Standing.ACTIVE, 0).to_record()
    record[place] = value
    with pytest.raises(InvalidEncoding, match=message):
        Member.from_record(record)


def test_a_change_holds_from_its_round_on_and_silence_begins_anew() -> None:
    record = Member(KEY, Standing.AWAY, Standing.ACTIVE, 7, 1, 5)
    assert record.is_changing
    assert record.at(6) == record
    back = record.at(7)
    assert (back.standing, back.is_changing, back.idle) == (Standing.ACTIVE, False, 0)
    assert back.at(8) == back


def test_only_who_left_or_was_removed_is_gone_for_good() -> None:
    assert [standing for standing in Standing if standing.is_for_good] == [Standing.LEFT, Standing.REMOVED]
