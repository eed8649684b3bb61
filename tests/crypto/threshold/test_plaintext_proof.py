"""A sender must know the content of its ciphertexts: others' posts, and mixtures of them, are refused."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest
from gmpy2 import invert, mpz

from fedchain.crypto.threshold import (
    Encryptor,
    PlaintextProof,
    PlaintextStatement,
    are_plaintexts_known,
    decode_plaintext_proof,
    plaintext_proof_size,
    prove_plaintexts,
)
from fedchain.crypto.threshold.fiat_shamir import CHALLENGE_BITS
from fedchain.crypto.threshold.plaintext_proof import response_bits
from tests.crypto.threshold.dealt import SENDERS, Dealt, full_key, random_source, small_key

PLAINTEXTS = [5, -6, 0, 2**80]

Posted = tuple[PlaintextStatement, PlaintextProof]


def post(dealt: Dealt, member: int = 0, number: int = 1, plaintexts: list[int] = PLAINTEXTS) -> Posted:
    """The post of a member that keeps to the rules."""
    key, source = dealt[0], random_source(f"post/{member}/{number}/{plaintexts}")
    encryptor = Encryptor(key)
    randomizers = encryptor.randomizers(len(plaintexts), source)
    ciphertexts = encryptor.encrypt(plaintexts, randomizers)
    statement = PlaintextStatement(key, b"\7" * 32, number, "update", SENDERS[member], ciphertexts)
    return statement, prove_plaintexts(statement, plaintexts, randomizers, source)


def forgeries(dealt: Dealt, rng: Random) -> Iterator[Posted]:
    """Posts by member 1, which knows what member 0 has posted but not what is in it, of a different kind each."""
    key = dealt[0]
    modulus, encryptor = key.ciphertext_modulus, Encryptor(key)
    (theirs, proof), (own, own_proof) = post(dealt), post(dealt, member=1)

    def about(ciphertexts: list[mpz]) -> PlaintextStatement:
        return replace(own, ciphertexts=ciphertexts)

    while True:
        place = rng.randrange(len(PLAINTEXTS))
        blinded = [
            c * r.power % modulus
            for c, r in zip(
                theirs.ciphertexts, encryptor.randomizers(4, random_source(rng.randbytes(8).hex())), strict=True
            )
        ]
        quotients = [invert(c, modulus) for c in theirs.ciphertexts]
        yield replace(theirs, sender=own.sender), proof  # another's, as it is
        yield about(list(theirs.ciphertexts)), own_proof
        yield about(blinded), proof
        yield about(blinded), own_proof
        yield about(quotients), own_proof
        # A cheat that chooses knows the sum of two plaintexts, and neither of them.
        pair = [theirs.ciphertexts[0], invert(theirs.ciphertexts[0], modulus)]
        known = encryptor.randomizers(2, random_source(f"pair/{rng.random()}"))
        yield about(pair), prove_plaintexts(about(pair), [0, 0], known, random_source(f"pair/{rng.random()}"))
        guessed = [value + (index == place) for index, value in enumerate(PLAINTEXTS)]
        yield own, prove_plaintexts(own, guessed, encryptor.randomizers(4, random_source("guess")), random_source("g"))
        mixed = list(own.ciphertexts)
        mixed[place] = mixed[place] * theirs.ciphertexts[place] % modulus
        yield about(mixed), own_proof
        yield about([*own.ciphertexts[1:], own.ciphertexts[0]]), own_proof
        yield about(list(own.ciphertexts[:-1])), own_proof
        yield replace(own, round=own.round + 1 + rng.randrange(9)), own_proof
        yield replace(own, chain_id=rng.randbytes(32)), own_proof
        yield replace(own, phase=f"phase{rng.random()}"), own_proof
        yield own, replace(own_proof, challenge=rng.getrandbits(CHALLENGE_BITS))
        yield own, replace(own_proof, challenge=own_proof.challenge ^ 1 << rng.randrange(CHALLENGE_BITS))
        yield (
            own,
            replace(own_proof, plaintext=int((own_proof.plaintext + rng.getrandbits(99) + 1) % key.plaintext_modulus)),
        )
        yield own, replace(own_proof, randomness=own_proof.randomness ^ 1 << rng.randrange(response_bits(key.key_bits)))
        yield own, PlaintextProof(0, 0, 0)


def refusals(dealt: Dealt, count: int) -> int:
    found = zip(range(count), forgeries(dealt, Random(7)), strict=False)
    return sum(not are_plaintexts_known(*forged) for _, forged in found)


@pytest.mark.parametrize("s", [1, 2])
def test_who_knows_what_it_posts_can_prove_it(s: int) -> None:
    dealt = small_key(s)
    assert are_plaintexts_known(*post(dealt))
    half = int(dealt[0].plaintext_modulus) // 2
    assert are_plaintexts_known(*post(dealt, plaintexts=[half, -half]))


def test_forged_proofs_are_refused() -> None:
    """``python -m tests.soak forgeries`` makes more of them."""
    assert refusals(small_key(), 1_000) == 1_000


def test_at_the_default_length_as_well() -> None:
    assert are_plaintexts_known(*post(full_key()))
    assert refusals(full_key(), 18) == 18


def test_a_proof_has_one_encoding_of_one_length() -> None:
    for dealt in (small_key(), small_key(2)):
        key = dealt[0]
        _, proof = post(dealt)
        data = proof.encode(key)
        assert decode_plaintext_proof(key, data) == proof
        assert len(data) == plaintext_proof_size(key.key_bits, key.s)
        assert decode_plaintext_proof(key, data[:-1]) is None
        assert decode_plaintext_proof(key, data + b"\0") is None


def test_numbers_beyond_their_size_are_refused() -> None:
    statement, proof = post(small_key())
    key = statement.key
    for wrong in (
        replace(proof, challenge=proof.challenge + (1 << CHALLENGE_BITS)),
        replace(proof, plaintext=proof.plaintext + int(key.plaintext_modulus)),
        replace(proof, randomness=proof.randomness + (1 << response_bits(key.key_bits))),
        replace(proof, randomness=-proof.randomness),
    ):
        assert not are_plaintexts_known(statement, wrong)


def test_two_posts_of_the_same_plaintexts_share_no_randomness() -> None:
    (one, first), (two, second) = post(small_key()), post(small_key(), number=2)
    assert not set(one.ciphertexts) & set(two.ciphertexts)
    assert (first.plaintext, first.randomness) != (second.plaintext, second.randomness)
