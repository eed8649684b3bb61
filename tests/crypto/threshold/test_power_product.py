"""Products of powers, against powers one by one."""

import pytest
from gmpy2 import mpz, powmod
from hypothesis import given
from hypothesis import strategies as st

from fedchain.crypto.threshold.power_product import power_product


@given(
    st.integers(2, 2**200),
    st.lists(st.tuples(st.integers(0, 2**210), st.integers(0, 2**130)), max_size=6),
)
def test_it_is_the_product_of_the_powers(modulus: int, factors: list[tuple[int, int]]) -> None:
    expected = mpz(1) % modulus
    for number, exponent in factors:
        expected = expected * powmod(number, exponent, modulus) % modulus
    numbers, exponents = [mpz(number) for number, _ in factors], [exponent for _, exponent in factors]
    assert power_product(numbers, exponents, mpz(modulus)) == expected


def test_every_number_has_one_exponent_that_is_not_negative() -> None:
    with pytest.raises(ValueError, match="shorter"):
        power_product([mpz(2), mpz(3)], [1], mpz(7))
    with pytest.raises(ValueError, match="an exponent of −1 is below 0"):
        power_product([mpz(2)], [-1], mpz(7))
