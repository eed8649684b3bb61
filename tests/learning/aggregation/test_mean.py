import numpy as np
import pytest

from fedchain.learning.aggregation.mean import _BLOCK, WEIGHT_MAX, moved_mean, round_once, weighted_mean, weighted_sum


def test_the_mean_is_numpys_average() -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(4, 5)).astype(np.float32) for _ in range(7)]
    weights = rng.integers(1, 100, size=7).tolist()
    expected = np.average(np.stack(arrays).astype(np.float64), axis=0, weights=weights)
    found = weighted_mean(arrays, weights)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-7)


def test_the_mean_of_equal_arrays_is_the_array_to_the_bit() -> None:
    array = np.random.default_rng(1).normal(size=1000).astype(np.float32)
    assert weighted_mean([array] * 20, [WEIGHT_MAX] * 20).tobytes() == array.tobytes()


@pytest.mark.parametrize("size", [1, _BLOCK - 1, _BLOCK, 2 * _BLOCK + 3])
def test_blocks_and_views_change_no_bit(size: int) -> None:
    rng = np.random.default_rng(size)
    rows = [rng.standard_normal(size, dtype=np.float32) * np.float32(10.0**k) for k in (-30, 0, 30, 3, 1)]
    weights = [1, WEIGHT_MAX, 3, 7, 5]
    total = np.zeros(size, dtype=np.float64)
    for row, weight in zip(rows, weights, strict=True):
        total += row.astype(np.float64) * float(weight)
    unaligned = [np.frombuffer(b"x" + row.tobytes(), dtype=np.float32, offset=1) for row in rows]
    for arrays in (rows, unaligned):
        assert weighted_sum(arrays, weights).tobytes() == total.tobytes()
        expected = (total / float(sum(weights))).astype(np.float32)
        assert weighted_mean(arrays, weights).tobytes() == expected.tobytes()


def test_the_layout_in_memory_does_not_change_a_bit() -> None:
    rng = np.random.default_rng(2)
    arrays = [rng.normal(size=(33, 17)).astype(np.float32) for _ in range(5)]
    strided = [np.repeat(array, 2, axis=1)[:, ::2] for array in arrays]
    expected = weighted_mean(arrays, [1] * 5).tobytes()
    assert weighted_mean([np.asfortranarray(array) for array in arrays], [1] * 5).tobytes("C") == expected
    assert weighted_mean(strided, [1] * 5).tobytes() == expected


def test_the_largest_numbers_stay_finite() -> None:
    largest = np.full(3, np.finfo(np.float32).max)
    assert np.isfinite(weighted_mean([largest] * 50, [WEIGHT_MAX] * 50)).all()


def test_a_model_that_is_moved_is_rounded_once_and_stays_finite() -> None:
    largest = np.finfo(np.float32).max
    known, late, base = (
        np.array(row, np.float32) for row in ([1.0, largest], [2**-24, largest], [-(2**-50), -largest])
    )
    assert moved_mean(known, [late], [base], [3.0]).tolist() == [1.0 + 2**-23, float(largest)]


def test_each_array_needs_a_weight() -> None:
    with pytest.raises(ValueError, match="zip"):
        weighted_mean([np.zeros(1, np.float32)], [1, 2])


def test_the_weighted_sum_is_not_rounded() -> None:
    arrays = [np.array([1.0, 3.0], np.float32), np.array([0.25, -1.0], np.float32)]
    found = weighted_sum(arrays, [1.0, 1e-12])
    assert found.dtype == np.float64
    assert found.tolist() == [1.0 + 0.25e-12, 3.0 - 1e-12]


def test_rounding_saturates_instead_of_leaving_the_finite_numbers() -> None:
    largest = float(np.finfo(np.float32).max)
    found = round_once(np.array([1e300, -1e300, largest, 0.1]))
    assert found.dtype == np.float32
    assert found.tolist() == [largest, -largest, largest, float(np.float32(0.1))]
