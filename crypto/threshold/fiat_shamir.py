"""Numbers that proofs draw from hashes instead of a verifier: challenges, and coefficients for a batch."""

import hashlib
from collections.abc import Iterable

from gmpy2 import mpz

from fedchain.crypto.hashing import sha256

CHALLENGE_BITS = 128
"""Bits of a challenge and of each coefficient; below the bits of every prime factor of the order of the squares."""

CHALLENGE_SIZE = CHALLENGE_BITS // 8
"""Bytes of each."""

HIDING_BITS = 128
"""Bits by which a number that hides a secret is longer than the secret."""


def draw_coefficients(seed: bytes, count: int) -> list[int]:
    """So many coefficients: 16 bytes each of one SHAKE-256 stream over a seed."""
    data = hashlib.shake_256(seed).digest(CHALLENGE_SIZE * count)
    return [int.from_bytes(data[at : at + CHALLENGE_SIZE], "big") for at in range(0, len(data), CHALLENGE_SIZE)]


def draw_challenge(seed: bytes, commitments: Iterable[mpz], size: int) -> int:
    """The first 128 bits of a hash over a seed and commitments, each in ``size`` bytes."""
    encoded = b"".join(int(number).to_bytes(size, "big") for number in commitments)
    return int.from_bytes(sha256(seed + encoded)[:CHALLENGE_SIZE], "big")
