"""Forged and mutated decryption shares: none is taken, and each is blamed on its author."""

from dataclasses import replace

import pytest
from gmpy2 import mpz

from fedchain.crypto.address import address
from fedchain.crypto.exceptions import InvalidShare, TooFewShares
from fedchain.crypto.threshold import decode_share_post
from fedchain.crypto.threshold.fiat_shamir import CHALLENGE_BITS
from fedchain.crypto.threshold.share_proof import ShareStatement, is_proven, prove_shares, response_bits
from tests.crypto.threshold.dealt import SENDERS, full_key, random_source, small_key
from tests.support.crypto import decrypt, encrypt, occasion, posts
from tests.support.forged_shares import PLAINTEXTS, mutate, refusals


@pytest.mark.long
def test_forged_shares_are_refused_and_blamed() -> None:
    """``python -m tests.soak forgeries`` makes more of them."""
    assert refusals(small_key(), 1_000) == 1_000


@pytest.mark.slow
@pytest.mark.long
def test_forged_shares_of_the_default_length_are_refused_and_blamed() -> None:
    assert refusals(full_key(), 20) == 20


def test_what_was_forged_is_right_before_it_is_forged() -> None:
    dealt = small_key()
    decryption = occasion(dealt, encrypt(dealt, PLAINTEXTS))
    for post in posts(dealt, decryption):
        decryption.validate(post)


def test_bad_posts_are_passed_over_and_named() -> None:
    dealt = small_key()
    decryption = occasion(dealt, encrypt(dealt, PLAINTEXTS))
    one, two, three, four, five = posts(dealt, decryption)
    bad, worse = mutate(one, 0, one.shares[1]), mutate(four, 2, mpz(1))
    plaintexts, refused = decrypt(decryption, [bad, two, three, worse, five])
    assert plaintexts == PLAINTEXTS
    assert [(error.index, address(SENDERS[3]) in str(error)) for error in refused] == [(1, False), (4, True)]
    with pytest.raises(TooFewShares, match="2 members sent valid shares, 3 are needed"):
        decrypt(decryption, [bad, two, three, worse])


def test_the_holder_of_a_share_proves_no_other_one() -> None:
    """Half of its proof holds: that it knows the logarithm of its verification key."""
    dealt = small_key()
    key, (share, *_) = dealt
    ciphertexts = encrypt(dealt, PLAINTEXTS)
    (post,) = posts(dealt, occasion(dealt, ciphertexts), (0,))
    for wrong, is_right in ((post, True), (mutate(post, 1, post.shares[0]), False)):
        statement = ShareStatement(key, share.index, ciphertexts, wrong.shares, bytes(32))
        assert is_proven(statement, prove_shares(statement, share, random_source("proof"))) == is_right


def test_a_share_with_the_other_sign_and_its_own_proof_changes_nothing() -> None:
    # A root of 1 times a share has the same square. The holder of the share can prove it, and it decrypts the same.
    dealt = small_key()
    key = dealt[0]
    decryption = occasion(dealt, encrypt(dealt, PLAINTEXTS))
    one, two, three, *_ = posts(dealt, decryption)
    turned = tuple(key.ciphertext_modulus - share for share in one.shares)
    assert decryption.combine([replace(one, shares=turned), two, three]) == PLAINTEXTS


@pytest.mark.parametrize("index", [0, 6, -1, 65_535])
def test_an_index_that_nobody_has_is_refused(index: int) -> None:
    dealt = small_key()
    decryption = occasion(dealt, encrypt(dealt, PLAINTEXTS))
    post = replace(posts(dealt, decryption, (0,))[0], index=index)
    with pytest.raises(InvalidShare, match="shares 1 to 5"):
        decryption.validate(post)


def test_posts_have_one_encoding() -> None:
    dealt = small_key(2)
    key = dealt[0]
    decryption = occasion(dealt, encrypt(dealt, PLAINTEXTS))
    post = posts(dealt, decryption, (1,))[0]
    data = post.encode(key)
    assert decode_share_post(key, data, len(PLAINTEXTS), 2, SENDERS[1]) == post
    for wrong in (data[:-1], data + b"\0", b"", data[: len(data) // 2]):
        with pytest.raises(InvalidShare, match=f"peer 1 .* {len(wrong)} bytes, {len(data)} expected"):
            decode_share_post(key, wrong, len(PLAINTEXTS), 2, SENDERS[1])


def test_encoded_shares_must_be_units() -> None:
    dealt = small_key()
    key = dealt[0]
    decryption = occasion(dealt, encrypt(dealt, PLAINTEXTS))
    post = posts(dealt, decryption, (4,))[0]
    for bad in (mpz(0), key.modulus, 2 * key.modulus, key.ciphertext_modulus, (mpz(1) << 8 * key.ciphertext_size) - 1):
        data = mutate(post, 1, bad).encode(key)
        with pytest.raises(InvalidShare, match=r"peer 4 .*ciphertext 1 of 3") as refusal:
            decode_share_post(key, data, len(PLAINTEXTS), 5, SENDERS[4])
        assert refusal.value.index == 5
        with pytest.raises(InvalidShare):
            decryption.validate(mutate(post, 1, bad))


def test_proofs_with_numbers_beyond_their_size_are_refused() -> None:
    dealt = small_key()
    key = dealt[0]
    decryption = occasion(dealt, encrypt(dealt, PLAINTEXTS))
    post = posts(dealt, decryption, (0,))[0]
    for proof in (
        replace(post.proof, challenge=post.proof.challenge + (1 << CHALLENGE_BITS)),
        replace(post.proof, challenge=-post.proof.challenge),
        replace(post.proof, response=post.proof.response + (1 << response_bits(key))),
        replace(post.proof, response=-post.proof.response),
    ):
        with pytest.raises(InvalidShare, match="proof"):
            decryption.validate(replace(post, proof=proof))
