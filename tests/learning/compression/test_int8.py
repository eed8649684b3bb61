"""A byte a number: within a level of the number, right on the average, and nothing else is taken."""

from typing import Any

import numpy as np
import pytest

from fedchain.learning.compression.compressor import CHANGE_MAX
from fedchain.learning.compression.int8 import Int8
from fedchain.learning.exceptions import InvalidPayload
from fedchain.learning.payload.codec import decode, encode

CHANGES = [np.array([1.0, -2.0, 0.3, 0.0], np.float32), np.array([1e-3], np.float32), np.zeros(2, np.float32)]
SIZES = [4, 1, 2]


def read(packed: dict[str, Any], sizes: list[int]) -> list[np.ndarray]:
    found = Int8().unpack(decode(encode(packed), Int8().spec(sizes)), sizes)
    return [np.concatenate([moves for _, moves in parts]) for parts in found]


def unpacked(seed: int) -> list[np.ndarray]:
    packed = Int8().pack(iter(CHANGES), SIZES, np.random.default_rng(seed))
    assert packed["packed.levels"].shape == (7,)
    return read(packed, SIZES)


def test_each_number_is_less_than_a_level_away_and_the_largest_is_itself() -> None:
    for found, change in zip(unpacked(0), CHANGES, strict=True):
        scale = np.abs(change).max() / 127
        assert np.all(np.abs(found - change) <= scale)
    assert unpacked(0)[0][1] == pytest.approx(-2.0, rel=1e-6)
    assert unpacked(0)[2].tolist() == [0.0, 0.0]


def test_rounding_is_right_on_the_average_and_follows_the_generator() -> None:
    found = np.mean([unpacked(seed)[0] for seed in range(400)], axis=0)
    scale = 2.0 / 127
    np.testing.assert_allclose(found, CHANGES[0], atol=4 * scale * 0.5 / np.sqrt(400))
    assert unpacked(3)[0].tolist() == unpacked(3)[0].tolist() != unpacked(4)[0].tolist()


def test_a_scale_that_is_too_small_to_be_posted_is_zero_and_one_too_large_is_the_largest() -> None:
    tiny, huge = np.full(2, 1e-37, np.float32), np.full(2, 1e9, np.float32)
    found = read(Int8().pack([tiny, huge], [2, 2], np.random.default_rng(0)), [2, 2])
    assert found[0].tolist() == [0.0, 0.0]
    np.testing.assert_allclose(found[1], CHANGE_MAX, rtol=1e-6)


@pytest.mark.parametrize(
    ("level", "scale", "message"),
    [
        (255, 1.0, "elements of packed.levels: at most 254 expected, found 255"),
        (0, -1.0, "elements of packed.scales: at least 0 expected, found -1"),
        (0, np.nan, "elements of packed.scales: finite numbers expected, found nan"),
        (0, np.inf, "elements of packed.scales: finite numbers expected, found inf"),
        (0, 1e30, "elements of packed.scales: a magnitude of at most 15748 expected, found 1"),
    ],
)
def test_levels_and_scales_out_of_bounds_are_refused(level: int, scale: float, message: str) -> None:
    posted: dict[str, Any] = {
        "packed.levels": np.array([level], np.uint8),
        "packed.scales": np.array([scale], np.float32),
    }
    with pytest.raises(InvalidPayload, match=message):
        decode(encode(posted), Int8().spec([1]))
