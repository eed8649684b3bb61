import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedchain.learning.exceptions import InvalidPayload
from fedchain.learning.payload.integers import read_integers, validate_below, write_integers


@given(st.lists(st.integers(0, 2**2048 - 1), max_size=4))
def test_integers_come_back(numbers: list[int]) -> None:
    rows = write_integers(numbers, 256)
    assert rows.shape == (len(numbers), 256)
    assert read_integers(rows) == numbers


def test_the_most_significant_byte_comes_first() -> None:
    assert write_integers([258], 3).tolist() == [[0, 1, 2]]
    assert read_integers(np.array([[1, 0]], dtype=np.uint8)) == [256]


def test_an_integer_that_does_not_fit_is_our_own_mistake() -> None:
    with pytest.raises(OverflowError):
        write_integers([256], 1)


def test_an_integer_at_its_bound_is_refused_by_its_place() -> None:
    validate_below("c", [0, 6], 7)
    with pytest.raises(InvalidPayload, match=re.escape("c[1]: below a number of 3 bits expected")):
        validate_below("c", [6, 7], 7)
