"""Small integers, and ascending ones, in few bits. All of them have one spelling.

Ascending integers are written as by Elias, "Efficient Storage and Retrieval by Content and Address of Static Files",
Journal of the ACM 21(2), 1974, and Fano, 1971: the low bits of each as they are, the high bits as differences in unary.
"""

import numpy as np
from numpy.typing import NDArray

from fedchain.learning.exceptions import InvalidPayload


def packed_size(count: int, width: int) -> int:
    """Return how many bytes so many integers of `width` bits take."""
    return (count * width + 7) // 8


def pack_bits(numbers: NDArray[np.int64], width: int) -> NDArray[np.uint8]:
    """Return integers (n,) from 0 to 2^width - 1 side by side, the lowest bits first, (`packed_size`,)."""
    bits = (numbers[:, None] >> np.arange(width)) & 1  # (n, width)
    return np.packbits(bits.astype(np.uint8).reshape(-1), bitorder="little")


def unpack_bits(name: str, data: NDArray[np.uint8], count: int, width: int) -> NDArray[np.int64]:
    """Return the integers (count,) of bytes (`packed_size`,).

    Raises `InvalidPayload` unless the bits behind the last one are 0.
    """
    bits = np.unpackbits(data, bitorder="little")
    if bits[count * width :].any():
        raise InvalidPayload(f"{name}: 0 expected behind {count} numbers of {width} bits, found {data[-1]:#04x}")
    numbers = np.zeros(count, dtype=np.int64)
    for bit, column in enumerate(bits[: count * width].reshape(count, width).T):
        numbers |= column.astype(np.int64) << bit
    return numbers


def low_width(count: int, below: int) -> int:
    """Return how many bits of each of `count` ascending integers are written as they are."""
    return max(0, (below // count).bit_length() - 1)


def high_count(count: int, below: int) -> int:
    """Return how many bits the others take."""
    return count + (below - 1 >> low_width(count, below))


def pack_ascending(numbers: NDArray[np.int64], below: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return the low and the high bits of integers (n,) that ascend strictly from 0 and stay below a bound."""
    count, width = len(numbers), low_width(len(numbers), below)
    high = np.zeros(high_count(count, below), dtype=np.int64)
    high[(numbers >> width) + np.arange(count)] = 1
    return pack_bits(numbers & (1 << width) - 1, width), pack_bits(high, 1)


def unpack_ascending(
    name: str, low: NDArray[np.uint8], high: NDArray[np.uint8], count: int, below: int
) -> NDArray[np.int64]:
    """Return the integers (count,).

    Raises `InvalidPayload` unless there are as many, they ascend strictly, and they stay below the bound.
    """
    width = low_width(count, below)
    ones = np.flatnonzero(unpack_bits(name, high, high_count(count, below), 1))
    if len(ones) != count:
        raise InvalidPayload(f"{name}: {count} expected, found {len(ones)}")
    numbers = (ones - np.arange(count) << width) | unpack_bits(name, low, count, width)
    if numbers[-1] >= below:
        raise InvalidPayload(f"{name}[{count - 1}]: below {below} expected, found {numbers[-1]}")
    if (falls := np.diff(numbers) <= 0).any():
        place = int(np.argmax(falls)) + 1
        raise InvalidPayload(f"{name}[{place}]: more than {numbers[place - 1]} expected, found {numbers[place]}")
    return numbers
