"""A round knows its members' places, and what their posts leave behind."""

import pytest

from fedchain.learning.round import Round


def test_a_member_has_its_place_and_a_stranger_none() -> None:
    opened = Round(1, None, members=(b"\1", b"\2"))
    assert [opened.place_of(sender) for sender in opened.members] == [0, 1]
    with pytest.raises(LookupError, match="03 is none of 2 members"):
        opened.place_of(b"\3")
