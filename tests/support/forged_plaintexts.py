"""Forged proofs of plaintexts, counted."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from gmpy2 import invert, mpz

from fedchain.crypto.threshold import (
    Encryptor,
    PlaintextProof,
    PlaintextStatement,
    are_plaintexts_known,
    prove_plaintexts,
)
from fedchain.crypto.threshold.fiat_shamir import CHALLENGE_BITS
from fedchain.crypto.threshold.plaintext_proof import response_bits
from tests.crypto.threshold.dealt import SENDERS, Dealt, random_source

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
