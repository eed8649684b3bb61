"""Output of a dealer: safe primes, a public key without the secret, shares that nobody else can open or replace."""

from dataclasses import fields

import pytest
from gmpy2 import is_prime, legendre, mpz, powmod

from fedchain.crypto.exceptions import InvalidThresholdKey
from fedchain.crypto.keys import PrivateKey
from fedchain.crypto.randomness import RandomBytes, random_below
from fedchain.crypto.threshold import (
    ThresholdPublicKey,
    deal,
    deal_sealed,
    decode_dealing,
    decode_public_key,
    open_share,
)
from fedchain.crypto.threshold.dealer import deal_for_testing
from tests.crypto.threshold.dealt import full_key, random_source, small_key


@pytest.mark.long
def test_the_default_length_is_the_default() -> None:
    key, shares = full_key()
    assert (key.key_bits, key.s, key.threshold, key.members, len(shares)) == (2048, 1, 3, 5, 5)
    assert decode_public_key(key.encode()) == key


@pytest.mark.parametrize("s", [1, 2, 3, 4])
def test_the_public_key_does_not_hold_the_secret(s: int) -> None:
    key, shares = small_key(s)
    assert {field.name for field in fields(ThresholdPublicKey)} == {
        *("modulus", "s", "threshold", "randomizer_base", "verification_base", "verification_keys")
    }
    # Anybody that knows a multiple of the order of the squares decrypts: no public number is one, nor its square.
    numbers = [key.modulus, key.randomizer_base, key.verification_base, *key.verification_keys]
    for number in numbers:
        assert powmod(4, number, key.modulus) != 1
        assert powmod(4, number - 1, key.modulus) != 1
    assert not {share.secret for share in shares} & set(numbers)
    encoded = key.encode()
    for share in shares:
        assert int(share.secret).to_bytes((int(share.secret).bit_length() + 7) // 8, "big") not in encoded


def test_what_is_drawn_is_drawn_from_all_that_it_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chance alone would never show it: each step is handed what it has to refuse."""
    first, other = _safe_prime_above(2**160), _safe_prime_above(2**161)
    primes, bounds = [first, first, other], list[int]()

    def below(bound: mpz, source: RandomBytes) -> mpz:
        bounds.append(int(bound))
        return first if len(bounds) in (3, 5) else random_below(bound, source)

    monkeypatch.setattr("fedchain.crypto.threshold.dealer.safe_prime", lambda *_: primes.pop(0))
    monkeypatch.setattr("fedchain.crypto.threshold.dealer.random_below", below)
    key, _ = deal_for_testing(3, 3, random_source("drawn"))
    n, m = int(first * other), int((first >> 1) * (other >> 1))
    assert int(key.modulus) == n, "two primes, and not one twice"
    # Two coefficients hide the share of the order m, too; units that share a factor with n are drawn again.
    assert bounds == [n * m, n * m, n, n, n * n, n * n]
    assert [legendre(key.verification_base, prime) for prime in (first, other)] == [1, 1]
    assert [legendre(-key.randomizer_base, prime) for prime in (first, other)] == [1, 1]


def _safe_prime_above(number: int) -> mpz:
    return next(mpz(p) for p in range(number + 3, 2 * number, 4) if is_prime(p >> 1) and is_prime(p))


def test_a_share_does_not_show_its_secret() -> None:
    assert repr(small_key()[1][0]) == "KeyShare(index=1)"


@pytest.mark.parametrize(
    ("members", "threshold", "key_bits", "s", "about"),
    [
        (5, 0, 320, 1, "threshold 0 of 5"),
        (5, 6, 320, 1, "threshold 6 of 5"),
        (0, 0, 320, 1, "threshold 0 of 0"),
        (257, 3, 320, 1, "threshold 3 of 257"),
        (5, 3, 320, 0, "s = 0"),
        (5, 3, 320, 5, "s = 5"),
        (5, 3, 304, 1, "304 bits"),
        (5, 3, 321, 1, "321 bits"),
    ],
)
def test_parameters_out_of_bounds_are_refused(members: int, threshold: int, key_bits: int, s: int, about: str) -> None:
    with pytest.raises(ValueError, match=about):
        deal_for_testing(members, threshold, random_source(""), key_bits=key_bits, s=s)


def test_short_keys_are_for_tests_alone() -> None:
    with pytest.raises(ValueError, match="320 bits, allowed are 2048, 3072"):
        deal(5, 3, random_source(""), key_bits=320)
    with pytest.raises(InvalidThresholdKey, match="320 bits, allowed are 2048, 3072"):
        decode_public_key(small_key()[0].encode())


@pytest.mark.long
def test_a_dealing_of_the_default_length_is_opened_by_its_members() -> None:
    members = [PrivateKey(bytes([member]) * 32) for member in range(3)]
    dealing = deal_sealed([member.public_key for member in members], 2, random_source("sealed"))
    dealing = decode_dealing(dealing.encode())
    for index, member in enumerate(members, 1):
        share = open_share(dealing.public_key, dealing.sealed_shares[index - 1], index, member)
        assert share.index == index
