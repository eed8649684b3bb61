"""SOLO learns nothing in common."""

from fedchain.learning.methods.solo import Solo
from tests.support.learning.formulas import (
    aggregate,
)


def test_solo_learns_nothing_in_common() -> None:
    assert aggregate(Solo(), [{}, {}]) == {}
    assert not Solo().exchanges
