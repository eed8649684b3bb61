"""Challenges follow from the whole statement and from nothing else."""

from hashlib import sha256, shake_256

from gmpy2 import mpz

from fedchain.crypto.threshold.fiat_shamir import CHALLENGE_BITS, draw_challenge, draw_coefficients

SEED = b"statement"


def test_a_challenge_is_the_first_128_bits_of_a_hash() -> None:
    data = SEED + (5).to_bytes(4, "big") + (7).to_bytes(4, "big")
    assert draw_challenge(SEED, [mpz(5), mpz(7)], 4) == int.from_bytes(sha256(data).digest()[:16], "big")


def test_order_seed_and_each_commitment_change_it() -> None:
    challenges = {
        draw_challenge(seed, [mpz(number) for number in numbers], 4)
        for seed, numbers in ((SEED, (5, 7)), (SEED, (7, 5)), (SEED, (5, 8)), (SEED, (5,)), (b"other", (5, 7)))
    }
    assert len(challenges) == 5
    assert max(challenges) < 1 << CHALLENGE_BITS


def test_coefficients_are_one_stream_of_which_fewer_are_the_beginning() -> None:
    coefficients = draw_coefficients(SEED, 3)
    assert coefficients[1] == int.from_bytes(shake_256(SEED).digest(48)[16:32], "big")
    assert draw_coefficients(SEED, 2) == coefficients[:2]
    assert draw_coefficients(SEED, 0) == []
