"""Sealed shares: each member opens its own, and a dealer that lies is found out."""

from dataclasses import replace

import pytest
from nacl.bindings import (
    crypto_scalarmult_base,
    crypto_sign_ed25519_pk_to_curve25519,
    crypto_sign_ed25519_sk_to_curve25519,
)

from fedchain.crypto.exceptions import InvalidDealing, InvalidThresholdKey
from fedchain.crypto.threshold import (
    Dealing,
    deal_sealed,
    decode_dealing,
    open_share,
)
from fedchain.crypto.threshold.dealer import KEY_BITS_MIN_TESTING
from fedchain.crypto.threshold.sealing import seal_shares, sealed_size
from tests.crypto.threshold.dealt import SENDERS, SIGNING_KEYS, random_source, small_key

SMALL = (KEY_BITS_MIN_TESTING,)


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
