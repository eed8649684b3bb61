"""A member's record: its form, and the round from which on a change of it holds."""

from dataclasses import replace
from typing import Any

import pytest

from fedchain.chain.exceptions import InvalidEncoding
from fedchain.chain.membership.member import WEIGHT_MAX, WEIGHT_MIN, Member, Standing
from tests.support.chain.builders import keys

KEY = keys(1)[0].public_key


def test_a_record_survives_being_encoded() -> None:
    for weight in (WEIGHT_MIN, -1, 0, WEIGHT_MAX):
        for first in (b"", keys(2)[1].public_key):
            begun = Member(KEY, Standing.ACTIVE, Standing.LEFT, 7, 2, 3, weight, first=first, decided=2)
            record = replace(begun, owed_ms=7, shortened=8, since_ms=9)
            assert Member.from_record(record.to_record()) == record
            assert record.came_with == (first or KEY)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (0, bytes(31), "31 bytes found"),
        (1, 5, "5 found, 0 to 4 expected"),
        (2, 9, "9 found"),
        (3, b"", "int expected"),
        (6, 17, "17 found, at most 16 expected"),
        (7, [[bytes(31), 1, 2, 1]], "former key: 31 bytes found"),
        (10, 65, "65 found, at most 64 expected"),
        (12, [KEY], "the key that it has is not written twice"),
        (12, [bytes(31)], "31 bytes found"),
    ],
)
def test_other_forms_are_refused(place: int, value: Any, message: str) -> None:
    record = Member(KEY, Standing.ACTIVE, Standing.ACTIVE, 0).to_record()
    record[place] = value
    with pytest.raises(InvalidEncoding, match=message):
        Member.from_record(record)


def test_a_change_holds_from_its_round_on_and_silence_begins_anew() -> None:
    record = Member(KEY, Standing.AWAY, Standing.ACTIVE, 7, 1, 5)
    assert record.is_changing
    assert record.at(6, -3, 8_000) == record
    back = record.at(7, -3, 8_000)
    assert (back.standing, back.is_changing, back.idle, back.since_ms) == (Standing.ACTIVE, False, 0, 8_000)
    assert back.at(8, -9, 9_000) == back


def test_a_member_begins_with_no_more_weight_than_the_lowest_and_going_away_gives_none_back() -> None:
    newcomer = Member(KEY, Standing.COMING, Standing.ACTIVE, 7)
    assert newcomer.at(7, -3, 1).weight == -3
    assert replace(newcomer, standing=Standing.AWAY, weight=-5).at(7, -3, 1).weight == -5
    leaver = Member(KEY, Standing.ACTIVE, Standing.AWAY, 7, weight=5)
    assert leaver.at(7, -3, 1).weight == 5, "it is judged when it comes back"


def test_only_who_left_or_was_removed_is_gone_for_good() -> None:
    assert [standing for standing in Standing if standing.is_for_good] == [Standing.LEFT, Standing.REMOVED]
