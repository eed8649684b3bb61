"""Forged shares, counted."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest
from gmpy2 import invert, mpz, powmod

from fedchain.crypto.address import address
from fedchain.crypto.exceptions import InvalidShare
from fedchain.crypto.threshold import Decryption, KeyShare, SharePost
from fedchain.crypto.threshold.fiat_shamir import CHALLENGE_BITS
from fedchain.crypto.threshold.share_proof import ShareProof, response_bits
from tests.crypto.threshold.dealt import MEMBERS, SENDERS, Dealt, random_source
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
