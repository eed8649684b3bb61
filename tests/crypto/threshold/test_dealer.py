"""Output of a dealer: safe primes, a public key without the secret, shares that nobody else can open or replace."""

from dataclasses import fields, replace

import pytest
from Crypto.Math import Primality
from gmpy2 import mpz, powmod
from nacl.bindings import (
    crypto_scalarmult_base,
    crypto_sign_ed25519_pk_to_curve25519,
    crypto_sign_ed25519_sk_to_curve25519,
)

from fedchain.crypto.exceptions import InvalidDealing, InvalidThresholdKey
from fedchain.crypto.keys import PrivateKey
from fedchain.crypto.threshold import (
    Dealing,
    KeyShare,
    ThresholdPublicKey,
    deal,
    deal_sealed,
    decode_dealing,
    decode_public_key,
    open_share,
)
from fedchain.crypto.threshold.dealer import KEY_BITS_MIN_TESTING, deal_for_testing
from fedchain.crypto.threshold.safe_prime import is_safe_prime, safe_prime
from fedchain.crypto.threshold.sealing import seal_shares, sealed_size, validate_key_share
from tests.crypto.threshold.dealt import SENDERS, SIGNING_KEYS, full_key, random_source, small_key

SMALL = (KEY_BITS_MIN_TESTING,)


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


def test_x25519_keys_are_the_members_own() -> None:
    # RFC 7748 section 4.1 on one side, the clamped hash of the seed on the other.
    for member in SIGNING_KEYS:
        secret = crypto_sign_ed25519_sk_to_curve25519(member.seed + member.public_key)
        assert crypto_scalarmult_base(secret) == crypto_sign_ed25519_pk_to_curve25519(member.public_key)


def test_each_member_opens_its_share_and_no_other() -> None:
    key, shares = small_key()
    sealed = seal_shares(key, shares, SENDERS)
    for index, (private_key, share) in enumerate(zip(SIGNING_KEYS, shares, strict=True), 1):
        assert open_share(key, sealed[index - 1], index, private_key) == share
        other = index % 5 + 1
        for wrong_place, wrong_key in ((other, private_key), (index, SIGNING_KEYS[other - 1])):
            with pytest.raises(InvalidDealing, match="cannot be opened"):
                open_share(key, sealed[index - 1], wrong_place, wrong_key)


def test_a_sealed_share_is_of_one_federation() -> None:
    key, shares = small_key()
    sealed = seal_shares(key, shares, SENDERS)
    elsewhere = replace(key, threshold=2)
    with pytest.raises(InvalidDealing, match="cannot be opened"):
        open_share(elsewhere, sealed[0], 1, SIGNING_KEYS[0])


def test_every_damaged_byte_of_a_sealed_share_is_noticed() -> None:
    key, shares = small_key()
    sealed = seal_shares(key, shares, SENDERS)[0]
    assert len(sealed) == sealed_size(key)
    for position in range(len(sealed)):
        if position == 31:
            continue  # its upper bit is no part of the point (RFC 7748)
        damaged = bytearray(sealed)
        damaged[position] ^= 0x80
        with pytest.raises(InvalidDealing):
            open_share(key, bytes(damaged), 1, SIGNING_KEYS[0])
    for wrong in (b"", sealed[:-1], sealed + b"\0", bytes(len(sealed))):
        with pytest.raises(InvalidDealing):
            open_share(key, wrong, 1, SIGNING_KEYS[0])


def test_a_dealer_that_seals_something_else_is_found_out() -> None:
    key, shares = small_key()
    wrong = (replace(shares[0], secret=shares[0].secret + 1), *shares[1:])
    with pytest.raises(InvalidDealing, match="does not fit"):
        open_share(key, seal_shares(key, wrong, SENDERS)[0], 1, SIGNING_KEYS[0])


def test_dealings_have_one_encoding() -> None:
    key, shares = small_key()
    dealing = Dealing(key, seal_shares(key, shares, SENDERS))
    data = dealing.encode()
    assert decode_dealing(data, SMALL) == dealing
    for wrong in (b"", data[:3], data[:100], data[:-1], data + b"\0", b"\xff" * len(data), bytes(2**21 + 1)):
        with pytest.raises((InvalidDealing, InvalidThresholdKey)):
            decode_dealing(wrong, SMALL)


def test_a_dealing_is_for_different_members_with_keys() -> None:
    with pytest.raises(ValueError, match="3 members, of which 2 are different"):
        deal_sealed([SENDERS[0], SENDERS[1], SENDERS[0]], 2, random_source(""))
    key, shares = small_key()
    with pytest.raises(ValueError, match="no Ed25519 key"):
        seal_shares(key, shares, [*SENDERS[:4], bytes(32)])


@pytest.mark.long
def test_a_dealing_of_the_default_length_is_opened_by_its_members() -> None:
    members = [PrivateKey(bytes([member]) * 32) for member in range(3)]
    dealing = deal_sealed([member.public_key for member in members], 2, random_source("sealed"))
    dealing = decode_dealing(dealing.encode())
    for index, member in enumerate(members, 1):
        share = open_share(dealing.public_key, dealing.sealed_shares[index - 1], index, member)
        assert share.index == index
