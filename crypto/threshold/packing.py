"""Many signed numbers in one plaintext, with room for their sums.

A plaintext is read as a number with digits of w bits, each from −2^(w−1) to 2^(w−1) − 1. Digit j of a sum of plaintexts
is the sum of their digits j, as long as it fits. With K summands of magnitude B at most, |Σ| ≤ K·B, and w is chosen so
that K·B < 2^(w−1): no digit ever touches its neighbour. With k digits, a sum is below 2^(k·w − 1) in magnitude, and k
is chosen so that k·w ≤ (bits of n^s) − 1. Then it is below n^s/2, and a negative sum can be told from a positive one.

An encrypted number that is larger than allowed cannot be seen as such. A digit of a sum beyond K·B proves that somebody
did; one within K·B may still be wrong, as may every number that a member states.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import gmpy2
import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from fedchain.crypto.exceptions import PackingOverflow

DIGIT_BITS_MAX = 62
"""A sum of digits is computed with in 64 bits, and stays away from their end."""


@dataclass(frozen=True, slots=True)
class Packing:
    """How numbers lie in plaintexts.

    Raises:
        ValueError: bounds below 1, digits of more than `DIGIT_BITS_MAX` bits, or a plaintext that holds not even one.
    """

    plaintext_bits: int
    """Bits of n^s."""
    magnitude_max: int
    """B: largest magnitude of a number, as an integer."""
    summands_max: int
    """K: most plaintexts that are added."""

    def __post_init__(self) -> None:
        if self.magnitude_max < 1 or self.summands_max < 1:
            raise ValueError(f"{self.summands_max} summands of magnitude {self.magnitude_max}, at least 1 expected")
        if self.digit_bits > DIGIT_BITS_MAX:
            raise ValueError(f"digits of {self.digit_bits} bits, {DIGIT_BITS_MAX} at most")
        if self.numbers_per_plaintext < 1:
            raise ValueError(f"no digit of {self.digit_bits} bits fits into {self.plaintext_bits} bits")

    @property
    def sum_max(self) -> int:
        """K·B: largest magnitude of a sum."""
        return self.summands_max * self.magnitude_max

    @property
    def digit_bits(self) -> int:
        """w: the fewest bits with K·B < 2^(w−1)."""
        return self.sum_max.bit_length() + 1

    @property
    def numbers_per_plaintext(self) -> int:
        """k: digits of a plaintext."""
        return (self.plaintext_bits - 1) // self.digit_bits

    def plaintexts_of(self, numbers: int) -> int:
        """Number of plaintexts that hold ``numbers`` numbers."""
        return -(-numbers // self.numbers_per_plaintext)

    def pack(self, numbers: NDArray[np.int64]) -> list[mpz]:
        """Pack numbers into plaintexts, signed integers below n^s/2 in magnitude.

        Args:
            numbers: int64, shape (N,), each of magnitude B at most.

        Raises:
            PackingOverflow: a number is larger.
        """
        self._validate(numbers, self.magnitude_max, "number")
        lifted = (numbers + self._offset).tolist()
        per, bits = self.numbers_per_plaintext, self.digit_bits
        rows = (lifted[at : at + per] for at in range(0, len(lifted), per))
        return [gmpy2.pack(row, bits) - self._lift(len(row)) for row in rows]

    def unpack(self, plaintexts: Sequence[int], numbers: int) -> NDArray[np.int64]:
        """The digits of a sum of plaintexts.

        Args:
            plaintexts: signed integers, as many as `plaintexts_of` says.
            numbers: N, how many were packed.

        Returns:
            int64, shape (N,).

        Raises:
            PackingOverflow: a digit is beyond K·B, or there is something beyond the last digit: then somebody packed
                what is not allowed, or more were added.
            ValueError: another number of plaintexts.
        """
        self._expect(plaintexts, numbers)
        for position, (plaintext, count) in enumerate(zip(plaintexts, self._counts(numbers), strict=True)):
            lifted = plaintext + self._lift(count)
            if lifted < 0 or lifted.bit_length() > count * self.digit_bits:
                raise PackingOverflow(f"plaintext {position} holds more than {count} digits of {self.digit_bits} bits")
        sums = np.array(self._digits(plaintexts, numbers), dtype=np.int64) - self._offset
        self._validate(sums, self.sum_max, "sum")
        return sums

    def unpack_nearest(self, plaintexts: Sequence[int], numbers: int, summands: int) -> NDArray[np.int64]:
        """As :meth:`unpack`, but with a result whatever was encrypted: a digit beyond h·B becomes the nearest within.

        Anything beyond the last digit is ignored. If nobody lied, both methods return the same.

        Args:
            plaintexts: as for :meth:`unpack`.
            numbers: N, how many were packed.
            summands: h, of how many members they are sums, at most K.

        Raises:
            ValueError: another number of plaintexts.
        """
        self._expect(plaintexts, numbers)
        sums = np.array(self._digits(plaintexts, numbers), dtype=np.int64) - self._offset
        sum_max = summands * self.magnitude_max
        return np.clip(sums, -sum_max, sum_max)

    @property
    def _offset(self) -> int:
        """2^(w−1): added to a digit, it makes it a natural number."""
        return 1 << (self.digit_bits - 1)

    def _lift(self, count: int) -> mpz:
        """The offset in each of ``count`` digits."""
        return self._offset * (((mpz(1) << (count * self.digit_bits)) - 1) // ((mpz(1) << self.digit_bits) - 1))

    def _expect(self, plaintexts: Sequence[int], numbers: int) -> None:
        expected = self.plaintexts_of(numbers)
        if len(plaintexts) != expected:
            raise ValueError(f"{len(plaintexts)} plaintexts, {expected} expected for {numbers} numbers")

    def _counts(self, numbers: int) -> list[int]:
        """How many digits each plaintext holds."""
        per = self.numbers_per_plaintext
        return [min(per, numbers - begin) for begin in range(0, numbers, per)]

    def _digits(self, plaintexts: Sequence[int], numbers: int) -> list[int]:
        """The digits as natural numbers, without anything beyond the last one of a plaintext."""
        digits = list[int]()
        for plaintext, count in zip(plaintexts, self._counts(numbers), strict=True):
            lifted = (plaintext + self._lift(count)) % (mpz(1) << (count * self.digit_bits))
            row = [int(digit) for digit in gmpy2.unpack(lifted, self.digit_bits)]
            digits += row[:count] + [0] * (count - len(row))  # leading zeros are not unpacked
        return digits

    def _validate(self, numbers: NDArray[np.int64], limit: int, name: str) -> None:
        beyond = np.flatnonzero((numbers > limit) | (numbers < -limit))
        if beyond.size:
            position = int(beyond[0])
            raise PackingOverflow(f"{name} {position} is {int(numbers[position])}, its magnitude may be {limit}")


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """Real numbers as integers: x becomes the integer next to x·2^f, halves to the even side."""

    fraction_bits: int
    """f: the error is 2^(−f−1) at most."""
    magnitude_max: float
    """Largest magnitude of a number."""

    @property
    def integer_max(self) -> int:
        """Largest magnitude of an integer, B of the packing."""
        return int(np.ceil(np.ldexp(np.float64(self.magnitude_max), self.fraction_bits)))

    def encode(self, numbers: NDArray[np.floating]) -> NDArray[np.int64]:
        """Real numbers as integers, in the same shape; the same bits on every machine.

        Raises:
            PackingOverflow: a number is not finite, or larger than allowed. It does not say which number: that is to be
                encrypted, and what an error says is logged, and shown by explorers.
        """
        wide = np.asarray(numbers, dtype=np.float64)
        if not (np.abs(wide) <= self.magnitude_max).all():  # not a number is not below, either
            raise PackingOverflow(f"a number is not finite or too large, their magnitude may be {self.magnitude_max}")
        return np.rint(np.ldexp(wide, self.fraction_bits)).astype(np.int64)

    def decode(self, integers: NDArray[np.int64]) -> NDArray[np.float64]:
        """Integers, or sums of them, as real numbers: exact up to 2^53, rounded to nearest beyond."""
        return np.ldexp(integers.astype(np.float64), -self.fraction_bits)
