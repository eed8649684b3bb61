"""Encryption, and sums of encrypted numbers, without a private key.

Enc(M) = (1 + n)^M · (h^(n^s))^r mod n^(s+1), with r of half as many bits as n. The factor behind the dot, the
randomizer, is nearly all of the work and knows nothing of M, so it can be made beforehand. That short exponents hide
as well as long ones follows from the hardness of factoring (Goldreich, Rosen, "On the security of modular
exponentiation with application to the construction of pseudorandom generators", Journal of Cryptology 2003).

By itself a ciphertext does not prove that its sender knows the plaintext: anybody can make multiples and quotients of
others' ciphertexts. :mod:`fedchain.crypto.threshold.plaintext_proof` adds that proof.

Source: Damgård, Jurik, Nielsen 2010 (see :mod:`fedchain.crypto.threshold.public_key`), section 4.2.
"""

from collections.abc import Sequence
from math import factorial
from typing import NamedTuple

from gmpy2 import gcd, invert, mpz, powmod

from fedchain.crypto.exceptions import InvalidCiphertext
from fedchain.crypto.randomness import RandomBytes, random_bits
from fedchain.crypto.threshold.fixed_base import FixedBase
from fedchain.crypto.threshold.public_key import ThresholdPublicKey

CIPHERTEXTS_MAX = 1 << 16
"""Most ciphertexts in a post."""


class Randomizer(NamedTuple):
    """The random factor that hides one plaintext; as secret as the plaintext."""

    exponent: mpz
    """r."""
    power: mpz
    """(h^(n^s))^r modulo n^(s+1)."""


class Encryptor:
    """Encrypts under one public key. It costs 15 ms and 1 MiB to make, and is then used again and again."""

    def __init__(self, key: ThresholdPublicKey) -> None:
        self.key = key
        self._exponent_bits = randomizer_bits(key.key_bits)
        self._powers = randomizer_powers(key, self._exponent_bits)

    def encrypt(self, plaintexts: Sequence[int], randomizers: Sequence[Randomizer]) -> list[mpz]:
        """Encrypt each plaintext with a randomizer of its own.

        Args:
            plaintexts: integers; a negative −M represents n^s − M.
            randomizers: of :meth:`randomizers`, as many. One that is used twice shows the difference of its plaintexts.

        Raises:
            ValueError: another number of randomizers, or a plaintext outside −n^s/2 … n^s/2.
        """
        if len(plaintexts) != len(randomizers):
            raise ValueError(f"{len(randomizers)} randomizers for {len(plaintexts)} plaintexts")
        key = self.key
        half, modulus = key.plaintext_modulus >> 1, key.ciphertext_modulus
        for plaintext in plaintexts:
            if not -half <= plaintext <= half:
                raise ValueError(f"a plaintext of {int(plaintext).bit_length()} bits is outside ± n^{key.s}/2")
        return [plaintext_power(key, m) * r.power % modulus for m, r in zip(plaintexts, randomizers, strict=True)]

    def randomizers(self, count: int, random_bytes: RandomBytes) -> list[Randomizer]:
        """Make ``count`` randomizers, each for one ciphertext."""
        exponents = [random_bits(self._exponent_bits, random_bytes) for _ in range(count)]
        return [Randomizer(exponent, self._powers.power(exponent)) for exponent in exponents]


def randomizer_bits(key_bits: int) -> int:
    """Bits of a randomizer's exponent: half of those of n."""
    return (key_bits + 1) // 2


def randomizer_powers(key: ThresholdPublicKey, exponent_bits: int) -> FixedBase:
    """The powers of h^(n^s) modulo n^(s+1), for exponents of at most this number of bits."""
    base = powmod(key.randomizer_base, key.plaintext_modulus, key.ciphertext_modulus)
    return FixedBase(base, key.ciphertext_modulus, exponent_bits)


def plaintext_power(key: ThresholdPublicKey, plaintext: int) -> mpz:
    """(1 + n)^M mod n^(s+1), by the binomial theorem: Σ over k ≤ s of C(M, k)·n^k."""
    n, modulus = key.modulus, key.ciphertext_modulus
    total, falling, power = mpz(1), mpz(1), mpz(1)
    for k in range(1, key.s + 1):
        falling = falling * (plaintext - k + 1) % modulus
        power *= n
        total += falling * invert(factorial(k), modulus) * power
    return total % modulus


def add(key: ThresholdPublicKey, summands: Sequence[Sequence[mpz]]) -> list[mpz]:
    """Encryptions of the sums: the product of ciphertexts, place by place.

    Args:
        key: under which all are encrypted.
        summands: K lists of equal length.

    Raises:
        ValueError: no list at all, or lists of different lengths.
    """
    if len({len(each) for each in summands}) != 1:
        raise ValueError(f"lists of {sorted({len(each) for each in summands})} ciphertexts cannot be added")
    modulus = key.ciphertext_modulus
    total = list(summands[0])
    for each in summands[1:]:
        total = [a * b % modulus for a, b in zip(total, each, strict=True)]
    return total


def validate_ciphertexts(key: ThresholdPublicKey, ciphertexts: Sequence[mpz]) -> None:
    """Check that each is from 1 to n^(s+1) − 1 and coprime to n: then it is an encryption of something.

    Raises:
        InvalidCiphertext: naming the first position that is not.
    """
    n, modulus = key.modulus, key.ciphertext_modulus
    product = mpz(1)
    for position, ciphertext in enumerate(ciphertexts):
        if not 0 < ciphertext < modulus:
            raise InvalidCiphertext(f"ciphertext {position} of {len(ciphertexts)} is not from 1 to n^{key.s + 1} - 1")
        product = product * ciphertext % n
    if gcd(product, n) != 1:
        position = next(i for i, ciphertext in enumerate(ciphertexts) if gcd(ciphertext, n) != 1)
        raise InvalidCiphertext(f"ciphertext {position} of {len(ciphertexts)} is not coprime to n")


def encode_ciphertexts(key: ThresholdPublicKey, ciphertexts: Sequence[mpz]) -> bytes:
    """All ciphertexts one behind the other, each in ``key.ciphertext_size`` bytes, big-endian."""
    return b"".join(int(ciphertext).to_bytes(key.ciphertext_size, "big") for ciphertext in ciphertexts)


def decode_ciphertexts(key: ThresholdPublicKey, data: bytes, count: int) -> list[mpz]:
    """Read ``count`` ciphertexts back.

    Raises:
        InvalidCiphertext: another number of bytes, or a number out of range or not coprime to n.
    """
    size = key.ciphertext_size
    if len(data) != count * size:
        raise InvalidCiphertext(f"{len(data)} bytes, {count * size} expected for {count} ciphertexts")
    ciphertexts = [mpz(int.from_bytes(data[at : at + size], "big")) for at in range(0, len(data), size)]
    validate_ciphertexts(key, ciphertexts)
    return ciphertexts
