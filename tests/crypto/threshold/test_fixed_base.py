"""Powers of one base by table."""

import pytest
from gmpy2 import mpz
from hypothesis import given
from hypothesis import strategies as st

from fedchain.crypto.threshold.fixed_base import FixedBase


@given(st.integers(1, 200), st.data())
def test_fixed_base_powers_are_powers(bits: int, data: st.DataObject) -> None:
    modulus = data.draw(st.integers(2, 2**90)) | 1
    base, exponent = data.draw(st.integers(0, modulus)), data.draw(st.integers(0, 2**bits - 1))
    table = FixedBase(mpz(base), mpz(modulus), bits)
    for each in (exponent, 0, 1, 2**bits - 1):
        assert table.power(each) == pow(base, each, modulus)
    for wrong in (-1, 2**bits):
        with pytest.raises(ValueError, match="the table is for"):
            table.power(wrong)
