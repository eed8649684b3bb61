"""Ciphertexts: by their formula, in one encoding, and refused where nobody could have made them."""

import pytest
from gmpy2 import mpz
from hypothesis import given
from hypothesis import strategies as st

from fedchain.crypto.exceptions import InvalidCiphertext
from fedchain.crypto.randomness import random_bits
from fedchain.crypto.threshold import Encryptor, decode_ciphertexts, encode_ciphertexts
from tests.crypto.threshold.dealt import random_source, small_key


@pytest.mark.parametrize("s", [1, 2, 3, 4])
def test_ciphertexts_follow_the_formula(s: int) -> None:
    key = small_key(s)[0]
    encryptor = Encryptor(key)
    n, h, modulus = int(key.modulus), int(key.randomizer_base), int(key.ciphertext_modulus)
    plaintexts = [0, 1, -1, n // 3, -n // 3, n**s // 2, -(n**s // 2)]
    ciphertexts = encryptor.encrypt(plaintexts, encryptor.randomizers(len(plaintexts), random_source("formula")))
    exponents = random_source("formula")
    for plaintext, ciphertext in zip(plaintexts, ciphertexts, strict=True):
        r = int(random_bits(key.key_bits // 2, exponents))
        assert ciphertext == pow(1 + n, plaintext, modulus) * pow(h, n**s * r, modulus) % modulus


def test_plaintexts_that_have_two_readings_are_refused() -> None:
    key = small_key()[0]
    encryptor, half = Encryptor(key), int(key.plaintext_modulus) // 2
    for wrong in (half + 1, -half - 1):
        with pytest.raises(ValueError, match="outside"):
            encryptor.encrypt([wrong], encryptor.randomizers(1, random_source("")))


def test_every_plaintext_needs_a_randomizer() -> None:
    encryptor = Encryptor(small_key()[0])
    with pytest.raises(ValueError, match="1 randomizers for 2 plaintexts"):
        encryptor.encrypt([1, 2], encryptor.randomizers(1, random_source("")))


def test_the_same_plaintext_has_different_ciphertexts() -> None:
    encryptor = Encryptor(small_key()[0])
    assert len(set(encryptor.encrypt([1] * 50, encryptor.randomizers(50, random_source(""))))) == 50


@pytest.mark.parametrize("s", [1, 2])
def test_ciphertexts_have_one_encoding(s: int) -> None:
    key = small_key(s)[0]
    ciphertexts = [mpz(1), mpz(2), key.ciphertext_modulus - 1]
    data = encode_ciphertexts(key, ciphertexts)
    assert len(data) == 3 * key.ciphertext_size
    assert decode_ciphertexts(key, data, 3) == ciphertexts
    assert decode_ciphertexts(key, b"", 0) == []
    for count, wrong in ((2, data), (4, data), (3, data[:-1]), (3, data + b"\0"), (2**40, data)):
        with pytest.raises(InvalidCiphertext, match=f"{len(wrong)} bytes"):
            decode_ciphertexts(key, wrong, count)


@given(st.integers(0, 4), st.sampled_from(("zero", "modulus", "most", "n", "multiple of n")))
def test_ciphertexts_out_of_range_or_not_coprime_are_refused_by_position(position: int, kind: str) -> None:
    key = small_key()[0]
    bad = {
        "zero": mpz(0),
        "modulus": key.ciphertext_modulus,
        "most": (mpz(1) << 8 * key.ciphertext_size) - 1,
        "n": key.modulus,
        "multiple of n": 12_345 * key.modulus,
    }[kind]
    ciphertexts = [bad if i == position else mpz(i + 1) for i in range(5)]
    with pytest.raises(InvalidCiphertext, match=f"ciphertext {position} of 5"):
        decode_ciphertexts(key, encode_ciphertexts(key, ciphertexts), 5)
