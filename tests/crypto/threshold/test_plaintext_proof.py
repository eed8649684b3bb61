"""A member that posts ciphertexts must know their contents: copies and products of others' posts are refused."""

from dataclasses import replace

import pytest

from fedchain.crypto.threshold import (
    are_plaintexts_known,
    decode_plaintext_proof,
    plaintext_proof,
    plaintext_proof_size,
)
from fedchain.crypto.threshold.fiat_shamir import CHALLENGE_BITS
from fedchain.crypto.threshold.plaintext_proof import response_bits
from tests.crypto.threshold.dealt import full_key, small_key
from tests.support.forged_plaintexts import post, refusals


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


@pytest.mark.parametrize("most", [3, 4])
def test_more_ciphertexts_than_a_proof_hides_are_refused(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plaintext_proof, "CIPHERTEXTS_MAX", most)
    statement, proof = post(small_key())
    assert are_plaintexts_known(statement, proof) is (len(statement.ciphertexts) <= most)


def test_two_posts_of_the_same_plaintexts_share_no_randomness() -> None:
    (one, first), (two, second) = post(small_key()), post(small_key(), number=2)
    assert not set(one.ciphertexts) & set(two.ciphertexts)
    assert (first.plaintext, first.randomness) != (second.plaintext, second.randomness)
