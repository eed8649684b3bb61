"""The dealer: makes the keys of a federation once, when it is founded, and forgets them.

With m = p′·q′ the order of the squares modulo n, d is 0 modulo m and 1 modulo n^s; c^d then is (1 + n)^M. The dealer
shares d as Shamir does, by a polynomial f of degree t − 1 modulo n^s·m with f(0) = d: member i gets s_i = f(i).

The numbers drawn here decide everything: anybody who sees the primes can read all ciphertexts. So this runs on a
trusted machine, and none of the numbers is written down. Python cannot wipe memory; ending the process does.

Source: Damgård, Jurik 2001 and Damgård, Jurik, Nielsen 2010 (see :mod:`fedchain.crypto.threshold.public_key`).
"""

from math import factorial, gcd

from gmpy2 import invert, mpz

from fedchain.crypto.randomness import RandomBytes, random_below
from fedchain.crypto.threshold.power import power
from fedchain.crypto.threshold.public_key import KEY_BITS, MEMBERS_MAX, S_MAX, KeyShare, ThresholdPublicKey
from fedchain.crypto.threshold.safe_prime import safe_prime

KEY_BITS_MIN_TESTING = 320
"""Fewest bits in tests: below it, p′ and q′ are not above 2¹²⁸, and proofs of shares would prove nothing."""


def deal(
    members: int, threshold: int, random_bytes: RandomBytes, *, key_bits: int = KEY_BITS[0], s: int = 1
) -> tuple[ThresholdPublicKey, tuple[KeyShare, ...]]:
    """Make a public key and every member's share of the private one; some seconds.

    Args:
        members: L, how many hold a share.
        threshold: t, how many of them decrypt together.
        random_bytes: the operating system's source; the keys are only as secret as its bytes.
        key_bits: of n, one of `KEY_BITS`.
        s: plaintexts are integers modulo n^s.

    Raises:
        ValueError: a parameter out of bounds; the message has both values.
    """
    if key_bits not in KEY_BITS:
        raise ValueError(f"a modulus of {key_bits} bits, allowed are {', '.join(map(str, KEY_BITS))}")
    return _deal(members, threshold, random_bytes, key_bits, s)


def deal_for_testing(
    members: int, threshold: int, random_bytes: RandomBytes, *, key_bits: int = KEY_BITS_MIN_TESTING, s: int = 1
) -> tuple[ThresholdPublicKey, tuple[KeyShare, ...]]:
    """Do the same as :func:`deal` with a modulus that is short enough for tests, and protects nothing.

    Raises:
        ValueError: a parameter out of bounds, or an odd number of bits or fewer than `KEY_BITS_MIN_TESTING`.
    """
    if key_bits < KEY_BITS_MIN_TESTING or key_bits % 16:
        raise ValueError(f"a modulus of {key_bits} bits, multiples of 16 from {KEY_BITS_MIN_TESTING} expected")
    return _deal(members, threshold, random_bytes, key_bits, s)


def _deal(
    members: int, threshold: int, random_bytes: RandomBytes, key_bits: int, s: int
) -> tuple[ThresholdPublicKey, tuple[KeyShare, ...]]:
    if not 1 <= threshold <= members <= MEMBERS_MAX:
        raise ValueError(f"threshold {threshold} of {members} members, of at most {MEMBERS_MAX}")
    if not 1 <= s <= S_MAX:
        raise ValueError(f"s = {s}, 1 to {S_MAX} expected")
    p, q = _prime_pair(key_bits, random_bytes)
    n, m = p * q, (p >> 1) * (q >> 1)
    plaintext_modulus, ciphertext_modulus = n**s, n ** (s + 1)
    d = m * invert(m, plaintext_modulus)  # 0 mod m, 1 mod n^s
    coefficients = [d, *(random_below(plaintext_modulus * m, random_bytes) for _ in range(threshold - 1))]
    secrets = [_evaluate(coefficients, i, plaintext_modulus * m) for i in range(1, members + 1)]
    x, y = _unit(n, n, random_bytes), _unit(ciphertext_modulus, n, random_bytes)
    v = y * y % ciphertext_modulus  # a generator of the squares, but for a chance of 4/min(p', q')
    delta = factorial(members)
    keys = tuple(power(v, delta * secret, ciphertext_modulus) for secret in secrets)
    public_key = ThresholdPublicKey(n, s, threshold, -x * x % n, v, keys)
    return public_key, tuple(KeyShare(i, secret) for i, secret in enumerate(secrets, 1))


def _prime_pair(key_bits: int, random_bytes: RandomBytes) -> tuple[mpz, mpz]:
    """Two different safe primes; equally long ones have a product that is coprime to its totient."""
    p = safe_prime(key_bits // 2, random_bytes)
    while (q := safe_prime(key_bits // 2, random_bytes)) == p:
        pass
    return p, q


def _unit(modulus: mpz, n: mpz, random_bytes: RandomBytes) -> mpz:
    """A uniform number below ``modulus``, a power of n, that is coprime to n."""
    while gcd(int(number := random_below(modulus, random_bytes)), int(n)) != 1:
        pass
    return number


def _evaluate(coefficients: list[mpz], x: int, modulus: mpz) -> mpz:
    """The polynomial's value at ``x``, by Horner's rule; the constant term comes first."""
    value = mpz(0)
    for coefficient in reversed(coefficients):
        value = (value * x + coefficient) % modulus
    return value
