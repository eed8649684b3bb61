"""Noise is Gaussian, the owner's alone, the same after a crash, and never the same on two values."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import kstest

from fedchain.learning.exceptions import SecretMissing
from fedchain.learning.privacy.noise import GRID_BITS, add_noise, normals
from fedchain.learning.sums.secrets import ROOT_SIZE, Secrets

MINE = Secrets(0, bytes(range(ROOT_SIZE)))
VALUE = np.linspace(-3, 3, 60).reshape(6, 10)


def noise_on(value: NDArray[np.float64], secrets: Secrets = MINE, *labels: str | int) -> NDArray[np.float64]:
    return add_noise(value, 2.0, secrets, *(labels or ("update", 1))) - value


def test_it_is_gaussian() -> None:
    drawn = normals(200_001, MINE, "a stream")
    assert drawn.shape == (200_001,)
    assert kstest(drawn, "norm").pvalue > 1e-3
    first, second = drawn[:100_000], drawn[100_001:]  # the two halves of each pair
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.01
    assert abs(np.corrcoef(first**2, second**2)[0, 1]) < 0.01


def test_large_noise_lies_on_no_rings() -> None:
    """Pairs that follow from the few smallest uniform numbers of 53 bits show the value that was under them."""
    pairs = normals(2_000_000, MINE, "a stream").reshape(2, -1)
    numbers = np.exp(-(pairs**2).sum(axis=0) / 2) * 2.0**53
    smallest = numbers[numbers < 2.0**42]  # whose places among all numbers of 53 bits are seen in a float
    assert len(smallest) > 300
    assert np.abs(smallest - np.rint(smallest)).mean() == pytest.approx(0.25, abs=0.04)


def test_one_value_with_two_sigmas_has_noise_of_two_draws() -> None:
    """Otherwise both results together would show the value."""
    one, two = (add_noise(VALUE, sigma, MINE, "update", 1) - VALUE for sigma in (1.0, 2.0))
    assert not np.isclose(2 * one, two).any()


def test_the_grid_is_that_of_the_noise_however_small_the_value() -> None:
    noised = add_noise(1e-9 * VALUE, 1.0, MINE, "update", 1)
    assert (noised * 2.0**GRID_BITS == np.rint(noised * 2.0**GRID_BITS)).all()


def test_the_same_value_gets_the_same_noise_and_any_other_another() -> None:
    assert (noise_on(VALUE) == noise_on(VALUE.copy())).all()
    moved = VALUE.copy()
    moved[5, 9] += 1e-12
    others = [
        noise_on(moved),
        noise_on(VALUE, Secrets(0, bytes(ROOT_SIZE))),
        noise_on(VALUE, MINE, "update", 2),
        noise_on(VALUE, MINE, "other", 1),
        noise_on(VALUE.reshape(10, 6)).reshape(6, 10),
    ]
    for other in others:
        assert not np.isclose(noise_on(VALUE), other).any()


def test_sigma_scales_it_and_the_grid_hides_the_last_bits() -> None:
    for sigma in (1e-3, 1.0, 3.7, 1e4):
        value = np.full(10_000, 5.0 * sigma)
        noised = add_noise(value, sigma, MINE, "update", 1)
        assert (noised - value).std() == pytest.approx(sigma, rel=0.05)
        grid = 2.0 ** (np.floor(np.log2(sigma)) - GRID_BITS)
        assert (noised / grid == np.rint(noised / grid)).all()


def test_a_member_without_private_randomness_is_named() -> None:
    with pytest.raises(SecretMissing, match="member 4 has no root of private randomness"):
        add_noise(VALUE, 1.0, Secrets(4, b""), "update", 1)
