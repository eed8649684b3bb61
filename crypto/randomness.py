"""Random numbers out of random bytes.

Nothing here has a source of its own: the caller hands one over, :func:`os.urandom` for numbers that must stay secret,
and a repeatable source in tests.
"""

from collections.abc import Callable

from gmpy2 import mpz

RandomBytes = Callable[[int], bytes]
"""Number of bytes -> so many bytes, uniform and independent of all others."""


def random_bits(bits: int, random_bytes: RandomBytes) -> mpz:
    """A uniform number from 0 to 2^bits − 1."""
    size = (bits + 7) // 8
    return mpz(int.from_bytes(random_bytes(size), "big") >> (8 * size - bits))


def random_below(bound: int, random_bytes: RandomBytes) -> mpz:
    """A uniform number from 0 to ``bound`` − 1: numbers of as many bits are drawn until one is below."""
    if bound < 1:
        raise ValueError(f"no number is from 0 to {bound - 1}")
    bits = int(bound).bit_length()
    while (number := random_bits(bits, random_bytes)) >= bound:
        pass
    return number
