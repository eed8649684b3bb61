"""Forged and mutated decryption shares: none is taken, and each is blamed on its author."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest
from gmpy2 import invert, mpz, powmod

from fedchain.crypto.address import address
from fedchain.crypto.exceptions import InvalidShare, TooFewShares
from fedchain.crypto.threshold import Decryption, KeyShare, SharePost, decode_share_post
from fedchain.crypto.threshold.fiat_shamir import CHALLENGE_BITS
from fedchain.crypto.threshold.share_proof import ShareProof, response_bits
from tests.crypto.threshold.dealt import MEMBERS, SENDERS, Dealt, full_key, random_source, small_key
from tests.support.crypto import encrypt, occasion, posts

PLAINTEXTS = [5, -6, 7]


def forgeries(dealt: Dealt, rng: Random) -> Iterator[tuple[Decryption, SharePost]]:
    """Posts that are not what they should be, of a different kind each, without end."""
    key = dealt[0]
    modulus = key.ciphertext_modulus
    decryption = occasion(dealt, encrypt(dealt, PLAINTEXTS))
    other = occasion(dealt, encrypt(dealt, PLAINTEXTS, "other"))  # other ciphertexts of the same plaintexts
    right, elsewhere = posts(dealt, decryption), posts(dealt, other)
    while True:
        member, place = rng.randrange(MEMBERS), rng.randrange(len(PLAINTEXTS))
        post, unit = right[member], mpz(rng.getrandbits(int(modulus.bit_length()))) % modulus
        wrong = mutate(post, place, unit)
        power = powmod(unit, rng.getrandbits(100), modulus)
        share = post.shares[place]
        stranger = (member + 1 + rng.randrange(MEMBERS - 1)) % MEMBERS
        proof, neighbour = post.proof, (place + 1) % len(PLAINTEXTS)
        yield decryption, wrong
        yield decryption, mutate(post, place, share * power % modulus)
        yield decryption, mutate(post, place, modulus - share)  # the same square
        yield decryption, mutate(post, place, invert(share, modulus))
        yield decryption, mutate(post, place, share ^ (mpz(1) << rng.randrange(key.key_bits)))
        yield decryption, mutate(post, place, right[stranger].shares[place])
        yield decryption, mutate(post, place, elsewhere[member].shares[place])
        yield decryption, elsewhere[member]
        yield decryption, replace(post, sender=SENDERS[stranger])
        yield decryption, replace(right[stranger], index=post.index, sender=post.sender)
        yield decryption, replace(post, proof=right[stranger].proof)
        yield decryption, replace(post, proof=replace(proof, challenge=rng.getrandbits(CHALLENGE_BITS)))
        yield decryption, replace(post, proof=replace(proof, challenge=proof.challenge ^ 1 << rng.randrange(128)))
        yield decryption, replace(post, proof=replace(proof, response=rng.getrandbits(response_bits(key))))
        flipped = proof.response ^ 1 << rng.randrange(response_bits(key) - 1)
        yield decryption, replace(post, proof=replace(proof, response=flipped))
        yield decryption, replace(post, proof=ShareProof(0, 0))
        # Two errors that cancel out, if they are weighed alike.
        both = mutate(post, place, share * unit % modulus)
        yield decryption, mutate(both, neighbour, post.shares[neighbour] * invert(unit, modulus) % modulus)
        yield decryption, swapped(post, place, neighbour)
        yield replace(decryption, round=decryption.round + 1 + rng.randrange(9)), post
        yield replace(decryption, phase=f"phase{rng.random()}"), post
        yield replace(decryption, chain_id=rng.randbytes(32)), post
        yield replace(decryption, ciphertexts=[*decryption.ciphertexts[:2], unit]), post
        yield with_another_secret(dealt, decryption, member, rng)


def mutate(post: SharePost, place: int, share: mpz) -> SharePost:
    return replace(post, shares=tuple(share if i == place else each for i, each in enumerate(post.shares)))


def swapped(post: SharePost, one: int, two: int) -> SharePost:
    return mutate(mutate(post, one, post.shares[two]), two, post.shares[one])


def with_another_secret(dealt: Dealt, decryption: Decryption, member: int, rng: Random) -> tuple[Decryption, SharePost]:
    """Everything by the rules, but with a share that the member was not dealt."""
    secret = dealt[1][member].secret + rng.choice((1, -1)) * (1 + rng.getrandbits(64))
    return decryption, decryption.share(KeyShare(member + 1, secret), SENDERS[member], random_source("another"))


def refusals(dealt: Dealt, count: int) -> int:
    found = 0
    for number, (decryption, post) in enumerate(forgeries(dealt, Random(3))):
        if number == count:
            break
        with pytest.raises(InvalidShare) as refusal:
            decryption.validate(post)
        assert (refusal.value.index, refusal.value.sender) == (post.index, address(post.sender))
        found += 1
    return found


@pytest.mark.long
def test_forged_shares_are_refused_and_blamed() -> None:
    """``python -m tests.soak forgeries`` makes more of them."""
    assert refusals(small_key(), 1_000) == 1_000


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
    decrypted = decryption.decrypt([bad, two, three, worse, five])
    assert decrypted.plaintexts == PLAINTEXTS
    assert [error.index for error in decrypted.refused] == [1, 4]
    with pytest.raises(TooFewShares, match=f"2 members sent valid shares, 3 .*peer 0 .*{address(SENDERS[3])}"):
        decryption.decrypt([bad, two, three, worse])


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
