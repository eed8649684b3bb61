"""Integers in few bits: what was packed comes back, in the size that the formula says, and other bytes are refused."""

import numpy as np
import pytest

from fedchain.learning.compression.bits import (
    high_count,
    low_width,
    pack_ascending,
    pack_bits,
    packed_size,
    unpack_ascending,
    unpack_bits,
)
from fedchain.learning.exceptions import InvalidPayload


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
