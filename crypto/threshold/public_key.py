"""The public key of a threshold Damgård–Jurik scheme, and one member's share of the private one.

n = p·q is a product of safe primes, plaintexts are integers modulo n^s, ciphertexts are integers modulo n^(s+1) that
are coprime to n. With s = 1 it is Paillier's scheme. Any t of L members decrypt together, and t − 1 learn nothing.

Source: Damgård, Jurik, "A generalisation, a simplification and some applications of Paillier's probabilistic
public-key system", PKC 2001; Damgård, Jurik, Nielsen, "A generalization of Paillier's public-key system with
applications to electronic voting", International Journal of Information Security 9, 2010.
"""

import struct
from collections.abc import Collection
from dataclasses import dataclass, field
from math import factorial, gcd

from gmpy2 import mpz

from fedchain.crypto.exceptions import InvalidThresholdKey
from fedchain.crypto.hashing import Hash, sha256

KEY_BITS = (2048, 3072)
"""Bits of n that are allowed; the first is the default."""

S_MAX = 4
"""Largest s. A larger one packs more into a ciphertext, at a cost per bit that grows faster than it saves."""

MEMBERS_MAX = 256
"""Most members: exponents grow with the bits of their factorial."""

ENCODED_SIZE_MAX = 2**20
"""Bytes of an encoded public key; with 2048 bits, s = 1 and 256 members it has 132 KiB."""

_HEADER = struct.Struct(">HBHH")


@dataclass(frozen=True, slots=True)
class ThresholdPublicKey:
    """The public part of the key. The secret, which is the order of the group of squares, is not in it."""

    modulus: mpz
    """n, a product of two safe primes of equal length."""
    s: int
    """Plaintexts are integers modulo n^s."""
    threshold: int
    """t, the number of members that decrypt together."""
    randomizer_base: mpz
    """h = −x² mod n for a random x; ciphertexts are blinded with powers of h^(n^s)."""
    verification_base: mpz
    """v, a generator of the squares modulo n^(s+1)."""
    verification_keys: tuple[mpz, ...]
    """v_i = v^(Δ·s_i) for each member's share s_i, in the order of members."""

    @property
    def members(self) -> int:
        """L, how many members hold a share."""
        return len(self.verification_keys)

    @property
    def delta(self) -> mpz:
        """Δ = L!, by which interpolation stays with integers."""
        return mpz(factorial(self.members))

    @property
    def key_bits(self) -> int:
        """Bits of n."""
        return int(self.modulus.bit_length())

    @property
    def plaintext_modulus(self) -> mpz:
        """n^s."""
        return self.modulus**self.s

    @property
    def ciphertext_modulus(self) -> mpz:
        """n^(s+1)."""
        return self.modulus ** (self.s + 1)

    @property
    def plaintext_bits(self) -> int:
        """Bits of n^s."""
        return int(self.plaintext_modulus.bit_length())

    @property
    def ciphertext_size(self) -> int:
        """Bytes of a ciphertext."""
        return (int(self.ciphertext_modulus.bit_length()) + 7) // 8

    @property
    def share_bits_max(self) -> int:
        """Most bits of a share s_i, which is below n^(s+1)."""
        return int(self.ciphertext_modulus.bit_length())

    @property
    def key_id(self) -> Hash:
        """The key's identifier: the hash of its encoding."""
        return sha256(self.encode())

    def encode(self) -> bytes:
        """Bits of n, s, t and L in 2, 1, 2 and 2 bytes; n and h in as many as n has; v and all v_i; all big-endian."""
        header = _HEADER.pack(self.key_bits, self.s, self.threshold, self.members)
        small = [int(number).to_bytes(self.key_bits // 8, "big") for number in (self.modulus, self.randomizer_base)]
        size = self.ciphertext_size
        large = [int(number).to_bytes(size, "big") for number in (self.verification_base, *self.verification_keys)]
        return b"".join((header, *small, *large))


@dataclass(frozen=True, slots=True)
class KeyShare:
    """One member's share of the private key. It never appears in a log: its ``repr`` shows only the member's number."""

    index: int
    """Number of the member, from 1: the point at which the sharing polynomial was evaluated."""
    secret: mpz = field(repr=False)
    """s_i, a value of the sharing polynomial modulo n^s·p′·q′."""


def decode_public_key(data: bytes, allowed_bits: Collection[int] = KEY_BITS) -> ThresholdPublicKey:
    """Read a public key back.

    That n is a product of safe primes and that v generates the squares cannot be seen here; the dealer is trusted
    with it.

    Args:
        data: bytes that :meth:`ThresholdPublicKey.encode` made.
        allowed_bits: of n; tests with small keys say so here.

    Raises:
        InvalidThresholdKey: wrong size, a parameter out of bounds, or a number out of range or not coprime to n.
    """
    if not _HEADER.size <= len(data) <= ENCODED_SIZE_MAX:
        raise InvalidThresholdKey(f"{len(data)} bytes, {_HEADER.size} to {ENCODED_SIZE_MAX} expected")
    bits, s, threshold, members = _HEADER.unpack_from(data)
    if bits not in allowed_bits:
        raise InvalidThresholdKey(f"a modulus of {bits} bits, allowed are {', '.join(map(str, allowed_bits))}")
    if not 1 <= s <= S_MAX:
        raise InvalidThresholdKey(f"s = {s}, 1 to {S_MAX} expected")
    if not 1 <= threshold <= members <= MEMBERS_MAX:
        raise InvalidThresholdKey(f"threshold {threshold} of {members} members, of at most {MEMBERS_MAX}")
    begin, size = _HEADER.size, bits // 8
    modulus = mpz(int.from_bytes(data[begin : begin + size], "big"))
    if modulus.bit_length() != bits or not modulus & 1:
        raise InvalidThresholdKey(f"a modulus of {modulus.bit_length()} bits or an even one, odd of {bits} expected")
    large = (int((modulus ** (s + 1)).bit_length()) + 7) // 8
    expected = begin + 2 * size + (1 + members) * large
    if len(data) != expected:
        raise InvalidThresholdKey(f"{len(data)} bytes, {expected} expected for {members} members")
    middle = begin + 2 * size
    base = mpz(int.from_bytes(data[begin + size : middle], "big"))
    numbers = [mpz(int.from_bytes(data[at : at + large], "big")) for at in range(middle, expected, large)]
    key = ThresholdPublicKey(modulus, s, threshold, base, numbers[0], tuple(numbers[1:]))
    _validate_numbers(key)
    return key


def _validate_numbers(key: ThresholdPublicKey) -> None:
    """Raise unless all numbers are reduced, coprime to n, and above 1."""
    bounds = [("h", key.randomizer_base, key.modulus), ("v", key.verification_base, key.ciphertext_modulus)]
    bounds += [(f"v_{i}", number, key.ciphertext_modulus) for i, number in enumerate(key.verification_keys, 1)]
    for name, number, modulus in bounds:
        if not 1 < number < modulus or gcd(int(number), int(key.modulus)) != 1:
            raise InvalidThresholdKey(f"{name} is 0 or 1, not below its modulus, or not coprime to n")
