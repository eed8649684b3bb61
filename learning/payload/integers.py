"""Integers of any size as byte strings: ciphertexts and shares, whose arithmetic is exact on every machine."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from fedchain.learning.exceptions import InvalidPayload


def write_integers(numbers: Iterable[int], size: int) -> NDArray[np.uint8]:
    """Return integers from 0 on as rows of `size` bytes each, the most significant first, (n, size).

    Raises `OverflowError` for one that does not fit.
    """
    data = b"".join(number.to_bytes(size) for number in numbers)
    return np.frombuffer(data, dtype=np.uint8).reshape(-1, size)


def read_integers(rows: NDArray[np.uint8]) -> list[int]:
    """Return the integers that rows (n, size) hold."""
    return [int.from_bytes(row.tobytes()) for row in rows]


def validate_below(name: str, numbers: Sequence[int], bound: int) -> None:
    """Raise `InvalidPayload` for an integer that is not below the bound, such as a ciphertext's modulus."""
    for place, number in enumerate(numbers):
        if number >= bound:
            raise InvalidPayload(f"{name}[{place}]: below a number of {bound.bit_length()} bits expected, found more")
