"""Safe primes p = 2·p′ + 1, with p′ prime too, by a sieve over both at once.

One in 64,000 candidates of 1024 bits is a safe prime. The sieve crosses out those whose p or p′ has a small factor;
about one in 900 of the rest is a safe prime. Each of the rest costs a modular power. All of it takes a second or two.

The search begins at a random place and takes the first safe prime behind it. Primes behind a large gap come out more
often, which costs less than a bit of entropy.

Source: Wiener, "Safe prime generation with a combined sieve", IACR ePrint 2003/186; Brandt, Damgård, "On generation of
probable primes by incremental search", CRYPTO 1992.
"""

from collections.abc import Iterator
from functools import cache

import gmpy2
import numpy as np
from gmpy2 import mpz

from fedchain.crypto.randomness import RandomBytes, random_bits

BITS_MIN = 64
"""Below it, the sieve would cross out the primes themselves."""

FACTOR_MAX = 2**18
"""Largest factor that is sieved out. A larger one costs more sieving than it saves powers."""

STEPS = 2**16
"""Candidates of one sieve."""


def safe_prime(bits: int, random_bytes: RandomBytes) -> mpz:
    """Find a safe prime of exactly ``bits`` bits. Its upper two bits are set, so a product of two has 2·``bits`` bits.

    Both p and p′ pass a strong test to base 2 here and then pycryptodome's tests (Miller–Rabin to random bases and
    Lucas, as FIPS 186-4 asks for), by which the chance of an error is below 2⁻¹⁰⁰.

    Raises:
        ValueError: fewer than `BITS_MIN` bits.
    """
    if bits < BITS_MIN:
        raise ValueError(f"a safe prime of {bits} bits is not looked for, {BITS_MIN} are the fewest")
    while True:
        # p' = 5 mod 6: it is odd, and neither p' nor 2p' + 1 is a multiple of 3.
        start = (mpz(3) << (bits - 3)) + random_bits(bits - 3, random_bytes)
        start += (5 - start) % 6
        for step in _survivors(start):
            half = start + 6 * step
            prime = 2 * half + 1
            if prime.bit_length() == bits and is_safe_prime(prime, random_bytes):
                return prime


def is_safe_prime(number: mpz, random_bytes: RandomBytes) -> bool:
    """Whether ``number``, above 5, and (``number`` − 1)/2 are prime, but for a chance below 2⁻¹⁰⁰."""
    # Slow to import, as it compiles declarations in C, and needed by dealers alone.
    from Crypto.Math.Primality import PROBABLY_PRIME, test_probable_prime

    half = number >> 1
    return bool(
        number & 3 == 3  # then both are odd, as all are that the sieve leaves
        and gmpy2.is_strong_prp(half, 2)
        and gmpy2.is_strong_prp(number, 2)
        and all(test_probable_prime(int(each), random_bytes) == PROBABLY_PRIME for each in (half, number))
    )


def _survivors(start: mpz) -> Iterator[int]:
    """Steps k for which neither p' = start + 6k nor 2p' + 1 has a factor up to `FACTOR_MAX`."""
    composite = np.zeros(STEPS, dtype=bool)
    for factor, sixth, half in _sieving_primes():
        residue = int(start % factor)
        composite[-residue * sixth % factor :: factor] = True  # start + 6k = 0
        composite[(half - residue) * sixth % factor :: factor] = True  # start + 6k = -1/2, so that 2p' + 1 = 0
    return (int(step) for step in np.flatnonzero(~composite))


@cache
def _sieving_primes() -> list[tuple[int, int, int]]:
    """Each prime r from 5 to `FACTOR_MAX`, with 1/6 mod r and −1/2 mod r."""
    prime = np.ones(FACTOR_MAX + 1, dtype=bool)
    for factor in range(2, int(FACTOR_MAX**0.5) + 1):
        if prime[factor]:
            prime[factor * factor :: factor] = False
    return [(r, pow(6, -1, r), (r - 1) // 2) for r in map(int, np.flatnonzero(prime)) if r >= 5]
