"""Public keys of a threshold scheme: one encoding, and what nobody dealt."""

from dataclasses import replace

import pytest
from gmpy2 import mpz

from fedchain.crypto.exceptions import InvalidDealing, InvalidThresholdKey
from fedchain.crypto.threshold import (
    KeyShare,
    decode_public_key,
)
from fedchain.crypto.threshold.dealer import KEY_BITS_MIN_TESTING
from fedchain.crypto.threshold.sealing import validate_key_share
from tests.crypto.threshold.dealt import small_key

SMALL = (KEY_BITS_MIN_TESTING,)


@pytest.mark.parametrize("s", [1, 3])
def test_verification_keys_fit_their_shares_alone(s: int) -> None:
    key, shares = small_key(s)
    for share in shares:
        validate_key_share(key, share)
        for wrong in (replace(share, secret=share.secret + 1), replace(share, index=share.index % 5 + 1)):
            with pytest.raises(InvalidDealing, match="does not fit"):
                validate_key_share(key, wrong)
    for index, secret in ((0, 1), (6, 1), (1, 0), (1, key.ciphertext_modulus), (1, -1)):
        with pytest.raises(InvalidDealing):
            validate_key_share(key, KeyShare(index, mpz(secret)))


@pytest.mark.parametrize("s", [1, 2, 3, 4])
def test_public_keys_have_one_encoding(s: int) -> None:
    key = small_key(s)[0]
    data = key.encode()
    assert decode_public_key(data, SMALL) == key
    for wrong in (b"", data[:6], data[:7], data[:-1], data + b"\0", bytes(2**20 + 1)):
        with pytest.raises(InvalidThresholdKey):
            decode_public_key(wrong, SMALL)


def test_public_keys_that_nobody_dealt_are_refused() -> None:
    key = small_key()[0]
    n, data = key.modulus, bytearray(key.encode())
    for position, value in ((2, 0), (2, 5), (4, 0), (4, 6), (5, 2)):  # s, t and L
        wrong = bytearray(data)
        wrong[position] = value
        with pytest.raises(InvalidThresholdKey):
            decode_public_key(bytes(wrong), SMALL)
    for bad in (
        replace(key, modulus=n - 1),
        replace(key, randomizer_base=mpz(0)),
        replace(key, randomizer_base=mpz(1)),
        replace(key, verification_base=n),
        replace(key, verification_base=key.ciphertext_modulus + 1),
        replace(key, verification_keys=(*key.verification_keys[:4], 7 * n)),
    ):
        with pytest.raises(InvalidThresholdKey):
            decode_public_key(bad.encode(), SMALL)
