"""Random numbers below a bound."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedchain.crypto.randomness import random_below, random_bits
from tests.crypto.threshold.dealt import random_source


@given(st.integers(1, 300))
def test_random_numbers_stay_below_their_bound(bound: int) -> None:
    source = random_source(str(bound))
    drawn = [random_below(bound, source) for _ in range(20)]
    assert all(0 <= number < bound for number in drawn)
    assert all(0 <= random_bits(bits, source) < 2**bits for bits in range(20))
    with pytest.raises(ValueError, match="no number"):
        random_below(0, source)


def test_random_numbers_reach_every_value_alike() -> None:
    source = random_source("uniform")
    drawn = [int(random_below(5, source)) for _ in range(5_000)]
    assert all(900 < drawn.count(value) < 1_100 for value in range(5))
