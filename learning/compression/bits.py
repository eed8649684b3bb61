"""Small integers, and ascending ones, in few bits. All of them have one spelling.

Ascending integers are written as by Elias, "Efficient Storage and Retrieval by Content and Address of Static Files",
Journal of the ACM 21(2), 1974, and Fano, 1971: the low bits of each as they are, the high bits as differences in unary.

Both are written and read in blocks, since there may be as many of them as a model has numbers.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedchain.files.spool import InMemory, Spools
from fedchain.learning.exceptions import InvalidPayload

BLOCK = 1 << 14
"""Integers that are looked at together; they end with a byte, whatever their width."""


def packed_size(count: int, width: int) -> int:
    """Return how many bytes so many integers of `width` bits take."""
    return (count * width + 7) // 8


class BitWriter:
    """Writes integers side by side, the lowest bits first.

    Args:
        spools: begins the bytes.
    """

    def __init__(self, spools: Spools = InMemory) -> None:
        self._spool = spools()
        self._rest = np.empty(0, dtype=np.uint8)

    def write(self, numbers: NDArray[np.int64], width: int) -> None:
        """Write integers (n,) from 0 to 2^width - 1."""
        for begin in range(0, len(numbers), BLOCK):
            self.write_bits((numbers[begin : begin + BLOCK, None] >> np.arange(width)) & 1)

    def write_bits(self, bits: NDArray[np.integer[Any]]) -> None:
        """Write bits, of which 1 is set."""
        waiting = np.concatenate([self._rest, bits.astype(np.uint8).reshape(-1)])
        whole = len(waiting) // 8 * 8
        self._spool.write(np.packbits(waiting[:whole], bitorder="little").data)
        self._rest = waiting[whole:]

    def end(self) -> NDArray[np.uint8]:
        """Return the bytes, the last one filled up with 0."""
        self._spool.write(np.packbits(self._rest, bitorder="little").data)
        return np.frombuffer(self._spool.content(b""), dtype=np.uint8)


def read_bits(name: str, data: NDArray[np.uint8], count: int, width: int) -> Iterator[NDArray[np.int64]]:
    """Yield the integers of bytes (`packed_size`,), `BLOCK` of them at a time.

    Raises `InvalidPayload` unless the bits behind the last one are 0.
    """
    for begin in range(0, count, BLOCK):
        size = min(BLOCK, count - begin)
        bits = np.unpackbits(data[begin * width // 8 :][: packed_size(size, width)], bitorder="little")
        if bits[size * width :].any():
            raise InvalidPayload(f"{name}: 0 expected behind {count} numbers of {width} bits, found {data[-1]:#04x}")
        numbers = np.zeros(size, dtype=np.int64)
        for bit, column in enumerate(bits[: size * width].reshape(size, width).T):
            numbers |= column.astype(np.int64) << bit
        yield numbers


def low_width(count: int, below: int) -> int:
    """Return how many bits of each of `count` ascending integers are written as they are."""
    return max(0, (below // count).bit_length() - 1)


def high_count(count: int, below: int) -> int:
    """Return how many bits the others take."""
    return count + (below - 1 >> low_width(count, below))


class AscendingWriter:
    """Writes integers that ascend strictly from 0.

    Args:
        count: how many there will be.
        below: their bound.
        spools: begins the bytes.
    """

    def __init__(self, count: int, below: int, spools: Spools = InMemory) -> None:
        self._width, self._high_count = low_width(count, below), high_count(count, below)
        self._low, self._high = BitWriter(spools), BitWriter(spools)
        self._written = self._reached = 0  # integers, and high bits

    def write(self, numbers: NDArray[np.int64]) -> None:
        """Write the next of them (n,)."""
        self._low.write(numbers & (1 << self._width) - 1, self._width)
        places = (numbers >> self._width) + np.arange(self._written, self._written + len(numbers))
        self._written += len(numbers)
        for begin in range(0, len(places), BLOCK):
            part = places[begin : begin + BLOCK]
            bits = np.zeros(part[-1] + 1 - self._reached, dtype=np.uint8)
            bits[part - self._reached] = 1
            self._high.write_bits(bits)
            self._reached = int(part[-1]) + 1

    def end(self) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Return their low and their high bits."""
        self._high.write_bits(np.zeros(self._high_count - self._reached, dtype=np.uint8))
        return self._low.end(), self._high.end()


def read_ascending(
    name: str, low: NDArray[np.uint8], high: NDArray[np.uint8], count: int, below: int
) -> Iterator[NDArray[np.int64]]:
    """Yield the integers, `BLOCK` of them at a time.

    Raises `InvalidPayload` unless there are `count`, they ascend strictly, and they stay below the bound.
    """
    width, bits = low_width(count, below), high_count(count, below)
    if (found := sum(int(part.sum()) for part in read_bits(name, high, bits, 1))) != count:
        raise InvalidPayload(f"{name}: {count} expected, found {found}")
    begin, last = 0, -1
    for ones, rest in zip(_ones(name, high, bits), read_bits(name, low, count, width), strict=True):
        numbers = (ones - np.arange(begin, begin + len(ones)) << width) | rest
        if numbers[-1] >= below:
            place = begin + len(numbers) - 1
            raise InvalidPayload(f"{name}[{place}]: below {below} expected, found {numbers[-1]}")
        if (falls := np.diff(numbers, prepend=last) <= 0).any():
            place = int(np.argmax(falls))
            before = numbers[place - 1] if place else last
            raise InvalidPayload(f"{name}[{begin + place}]: more than {before} expected, found {numbers[place]}")
        yield numbers
        begin, last = begin + len(numbers), int(numbers[-1])


def _ones(name: str, high: NDArray[np.uint8], count: int) -> Iterator[NDArray[np.int64]]:
    """Yield the places of bits that are 1, `BLOCK` of them at a time."""
    found = np.empty(0, dtype=np.int64)
    for number, bits in enumerate(read_bits(name, high, count, 1)):
        found = np.concatenate([found, np.flatnonzero(bits) + number * BLOCK])
        while len(found) >= BLOCK:
            yield found[:BLOCK]
            found = found[BLOCK:]
    if len(found):
        yield found
