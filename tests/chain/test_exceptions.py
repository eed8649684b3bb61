"""The class of an error says whose fault it is, and its text begins with the rule."""

import pytest

from fedchain.chain import exceptions
from fedchain.chain.exceptions import ChainError, Invalid, InvalidBlock, LimitReached, Refused, Unready


def test_a_refusal_names_its_rule_and_says_more() -> None:
    error = InvalidBlock("height", "3 found, 4 expected")
    assert str(error) == "height: 3 found, 4 expected"
    assert error.rule == "height"


def test_what_is_refused_is_a_fault_or_may_heal_and_never_both() -> None:
    refusals = [
        kind
        for kind in vars(exceptions).values()
        if isinstance(kind, type) and issubclass(kind, Refused) and kind not in (Refused, Invalid, Unready)
    ]
    assert len(refusals) > 10
    assert all(issubclass(kind, Invalid) != issubclass(kind, Unready) for kind in refusals)


def test_a_full_pool_is_nobodys_fault() -> None:
    with pytest.raises(Unready):
        raise LimitReached("posts", "9 found, 8 at most")
    assert issubclass(LimitReached, ChainError)
