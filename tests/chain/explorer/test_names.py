"""Hashes are named by how they begin, members by number or by how their address ends."""

import pytest

from fedchain.chain.exceptions import NotFound
from fedchain.chain.explorer.names import find_hash, find_member, range_of, read_number
from fedchain.crypto.address import address
from fedchain.crypto.exceptions import InvalidAddress
from tests.support.chain.builders import keys

HASHES = [bytes.fromhex("abcd00" + "00" * 29), bytes.fromhex("abcd11" + "00" * 29), bytes.fromhex("ffff" + "00" * 30)]
MEMBERS = [key.public_key for key in keys(3)]


def test_a_hash_is_found_by_its_first_digits_alone() -> None:
    assert find_hash("FFFF…", HASHES, "block") == HASHES[2]
    assert find_hash("abcd1", HASHES, "block") == HASHES[1]


@pytest.mark.parametrize(
    ("name", "message"),
    [("abcd", "2 blocks have a hash"), ("0000", "no block has a hash"), ("abc", "at least 4 digits")],
)
def test_a_name_of_none_or_of_several_hashes_is_refused(name: str, message: str) -> None:
    with pytest.raises(NotFound, match=message):
        find_hash(name, HASHES, "block")


def test_the_hashes_that_begin_alike_are_a_range() -> None:
    assert range_of("ab") == (b"\xab" + bytes(31), b"\xab" + b"\xff" * 31)
    assert range_of("a") == (b"\xa0" + bytes(31), b"\xaf" + b"\xff" * 31)
    assert [range_of(name) for name in ("", "xy", "0" * 65)] == [None] * 3


def test_a_member_is_found_by_number_address_and_its_end() -> None:
    name = address(MEMBERS[1])
    assert [find_member(text, MEMBERS) for text in ("1", name, f"…{name[-8:]}")] == [MEMBERS[1]] * 3


def test_who_is_no_member_is_not_found() -> None:
    with pytest.raises(NotFound, match="their numbers are 0 to 2"):
        find_member("3", MEMBERS)
    with pytest.raises(NotFound, match="is not one of the 3 members"):
        find_member(address(keys(4)[3].public_key), MEMBERS)
    with pytest.raises(InvalidAddress):
        find_member("nobody", MEMBERS)


def test_a_number_has_digits_that_a_database_has_room_for() -> None:
    assert read_number("9" * 18) == 10**18 - 1
    assert [read_number(text) for text in ("9" * 19, "-1", "", "1.0", "²", "١")] == [None] * 6
