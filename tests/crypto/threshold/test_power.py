"""Powers by OpenSSL and by GMP, against Python's."""

import ctypes
from unittest.mock import patch

import pytest
from gmpy2 import mpz
from hypothesis import given
from hypothesis import strategies as st

from fedchain.crypto.threshold import power as power_module
from fedchain.crypto.threshold.power import Libcrypto, power, powers
from tests.crypto.threshold.dealt import full_key

ODD = st.integers(1, 2**640).map(lambda number: 2 * number + 1)
NUMBERS = st.lists(st.integers(0, 2**700), max_size=3)
EXPONENTS = st.one_of(st.integers(0, 9), st.integers(0, 2**650))


@given(NUMBERS, EXPONENTS, ODD)
def test_openssl_and_gmp_give_what_python_gives(bases: list[int], exponent: int, modulus: int) -> None:
    expected = [pow(base, exponent, modulus) for base in bases]
    numbers = [mpz(base) for base in bases]
    assert powers(numbers, mpz(exponent), mpz(modulus)) == expected
    with patch.object(power_module, "_libcrypto", lambda: None):
        assert powers(numbers, mpz(exponent), mpz(modulus)) == expected


def test_a_power_of_the_default_length_is_the_same_by_both() -> None:
    key = full_key()[0]
    arguments = key.verification_base, key.verification_keys[0], key.ciphertext_modulus
    found = power(*arguments)
    with patch.object(power_module, "_libcrypto", lambda: None):
        assert power(*arguments) == found


@pytest.mark.parametrize(("exponent", "modulus"), [(-1, 15), (2, 1), (2, 0), (2, 14)])
def test_what_has_no_such_power_is_refused(exponent: int, modulus: int) -> None:
    with pytest.raises(ValueError, match="an exponent from 0 and an odd modulus above 1"):
        power(mpz(2), mpz(exponent), mpz(modulus))


def test_a_library_without_the_functions_is_none() -> None:
    with pytest.raises(AttributeError, match="BN_new"):
        Libcrypto(ctypes.CDLL(None))
