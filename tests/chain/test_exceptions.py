"""An error can be copied with its class, its rule and its words."""

import copy

import pytest

from fedchain.chain.exceptions import AlreadyKnown, InvalidBlock, LimitReached, Refused


@pytest.mark.parametrize("kind", [Refused, InvalidBlock, AlreadyKnown, LimitReached])
def test_an_error_is_copied_whole(kind: type[Refused]) -> None:
    error = kind("bits", "bits: 7 found, 8 expected")
    again = copy.copy(error)
    assert type(again) is kind
    assert (again.rule, str(again)) == ("bits", "bits: bits: 7 found, 8 expected") == (error.rule, str(error))
