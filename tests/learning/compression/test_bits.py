"""Integers in few bits: what was packed comes back, in the size that the formula says, and other bytes are refused."""

import numpy as np
import pytest
from numpy.typing import NDArray

from fedchain.learning.compression.bits import (
    BLOCK,
    AscendingWriter,
    BitWriter,
    high_count,
    low_width,
    packed_size,
    read_ascending,
    read_bits,
)
from fedchain.learning.exceptions import InvalidPayload


def pack_bits(numbers: NDArray[np.int64], width: int, *cuts: int) -> NDArray[np.uint8]:
    writer = BitWriter()
    for part in np.split(numbers, cuts):
        writer.write(part, width)
    return writer.end()


def unpack_bits(name: str, data: NDArray[np.uint8], count: int, width: int) -> NDArray[np.int64]:
    return np.concatenate(list(read_bits(name, data, count, width)))


def pack_ascending(numbers: NDArray[np.int64], below: int, *cuts: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    writer = AscendingWriter(len(numbers), below)
    for part in np.split(numbers, cuts):
        writer.write(part)
    return writer.end()


def unpack_ascending(
    name: str, low: NDArray[np.uint8], high: NDArray[np.uint8], count: int, below: int
) -> NDArray[np.int64]:
    return np.concatenate(list(read_ascending(name, low, high, count, below)))


def test_small_integers_lie_side_by_side_the_lowest_bits_first() -> None:
    packed = pack_bits(np.array([1, 2, 3, 0, 3]), 2)
    assert packed.tolist() == [0b00_11_10_01, 0b11]
    assert unpack_bits("x", packed, 5, 2).tolist() == [1, 2, 3, 0, 3]


def test_bits_behind_the_last_number_are_zero() -> None:
    with pytest.raises(InvalidPayload, match="x: 0 expected behind 5 numbers of 2 bits, found 0x07"):
        unpack_bits("x", np.array([0, 7], np.uint8), 5, 2)


@pytest.mark.parametrize(("count", "below"), [(1, 1), (1, 4096), (3, 3), (64, 4096), (300, 4096), (4096, 4096)])
def test_ascending_integers_come_back_in_as_many_bits_as_stated(count: int, below: int) -> None:
    drawn = np.random.default_rng(count).permutation(below)[:count]
    for numbers in (np.sort(drawn), np.arange(count), np.arange(below - count, below)):
        low, high = pack_ascending(numbers, below)
        assert len(low) == packed_size(count, low_width(count, below))
        assert len(high) == packed_size(high_count(count, below), 1)
        assert unpack_ascending("x", low, high, count, below).tolist() == numbers.tolist()


def test_64_of_4096_take_eight_bits_each() -> None:
    low, high = pack_ascending(np.arange(0, 4096, 64), 4096)
    assert len(low) + len(high) == 64


def test_others_than_so_many_ascending_integers_below_the_bound_are_refused() -> None:
    low, high = pack_ascending(np.array([0, 1, 2, 39]), 40)  # 3 low bits each; high: 111 00001
    assert (low.tolist(), high.tolist()) == ([0b10_001_000, 0b1110], [0b10000111])
    for low_bytes, high_bytes, message in (
        ([0b10_001_000, 0b1110], [0b10000011], "x: 4 expected, found 3"),
        ([0b10_001_000, 0b1110], [0b10010111], "x: 4 expected, found 5"),
        ([0b01_001_000, 0b1110], [0b10000111], r"x\[2\]: more than 1 expected, found 1"),
        ([0b01_010_000, 0b1110], [0b10000111], r"x\[2\]: more than 2 expected, found 1"),
    ):
        with pytest.raises(InvalidPayload, match=message):
            unpack_ascending("x", np.array(low_bytes, np.uint8), np.array(high_bytes, np.uint8), 4, 40)
    with pytest.raises(InvalidPayload, match=r"x\[3\]: below 38 expected, found 39"):
        unpack_ascending("x", low, high, 4, 38)


@pytest.mark.parametrize("below", [4 * BLOCK, 200 * BLOCK])
def test_many_integers_are_read_and_written_in_blocks(below: int) -> None:
    count = 3 * BLOCK + 5
    numbers = np.arange(count, dtype=np.int64) * (below // count)
    low, high = pack_ascending(numbers, below)
    for cuts in ((1, 20, 2 * BLOCK + 3), (BLOCK,)):
        other_low, other_high = pack_ascending(numbers, below, *cuts)
        assert (other_low.tobytes(), other_high.tobytes()) == (low.tobytes(), high.tobytes())
    blocks = list(read_ascending("x", low, high, count, below))
    assert [len(block) for block in blocks] == [BLOCK] * 3 + [5]
    assert np.array_equal(np.concatenate(blocks), numbers)
    twice = numbers.copy()
    twice[BLOCK] = twice[BLOCK - 1]  # from one block to the next
    with pytest.raises(
        InvalidPayload, match=rf"x\[{BLOCK}\]: more than {twice[BLOCK]} expected, found {twice[BLOCK]}$"
    ):
        unpack_ascending("x", *pack_ascending(twice, below), count, below)
    packed = pack_bits(numbers % 8, 3, 7)
    assert packed.tobytes() == pack_bits(numbers % 8, 3).tobytes()
    assert np.array_equal(unpack_bits("x", packed, count, 3), numbers % 8)
