"""Safe primes."""

import pytest
from Crypto.Math import Primality
from gmpy2 import mpz

from fedchain.crypto.threshold.safe_prime import is_safe_prime, safe_prime
from tests.crypto.threshold.dealt import random_source


@pytest.mark.parametrize("bits", [64, 65, 100, 160, 512])
def test_safe_primes_are_prime_twice_and_as_long_as_asked(bits: int) -> None:
    prime = safe_prime(bits, random_source(str(bits)))
    assert prime.bit_length() == bits
    assert prime >> (bits - 2) == 3
    for each in (int(prime), int(prime) // 2):
        assert Primality.test_probable_prime(each) != Primality.COMPOSITE


def test_what_is_no_safe_prime_is_told_from_one() -> None:
    source = random_source("safe")
    safe = [number for number in range(6, 3_000) if is_safe_prime(mpz(number), source)]
    primes = {number for number in range(2, 3_000) if all(number % factor for factor in range(2, number))}
    assert safe == [number for number in range(6, 3_000) if number in primes and number // 2 in primes and number & 1]


def test_short_safe_primes_are_not_looked_for() -> None:
    with pytest.raises(ValueError, match="63 bits"):
        safe_prime(63, random_source(""))
