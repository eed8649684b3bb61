import numpy as np
import pytest

from fedchain.learning.aggregation import WEIGHT_MAX, weighted_mean


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


def test_each_array_needs_a_weight() -> None:
    with pytest.raises(ValueError, match="zip"):
        weighted_mean([np.zeros(1, np.float32)], [1, 2])
