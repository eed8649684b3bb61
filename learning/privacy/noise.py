"""Gaussian noise that only one member can repeat, and the rule that no noise is ever added to two values.

Noise follows from the member's root of private randomness, the labels of the release, and the value itself. So a peer
that crashed and computes the same value again sends the same bytes again; and one that computes another value in the
same phase, because its model or its data were lost, draws other noise: the difference of the two sent values does not
show that of the hidden ones. Equal values that are counted apart, such as two steps' sums, need a label that differs.
"""

import hashlib
import math

import numpy as np
from numpy.typing import NDArray

from fedchain.learning.sums.secrets import Secrets

GRID_BITS = 32
"""Value and noise are multiples of 2^-32 of sigma's power of two, so that the last bits of a sum of floats, which
differ from value to value (Mironov, CCS 2012), say nothing. Rounding moves each number by a billionth of sigma."""

_UNIFORM_MIN = 2.0**-53
"""Smallest uniform number, which one in so many is raised to. It bounds the noise: encrypted numbers are bounded."""


def add_noise(value: NDArray[np.float64], sigma: float, secrets: Secrets, *labels: str | int) -> NDArray[np.float64]:
    """Return a value of any shape with N(0, sigma^2) added to each number, both rounded to the grid.

    `labels` name the release, such as a phase, a round and a purpose. The same value under the same labels gives the
    same result. Raises `SecretMissing` for a member without private randomness.
    """
    assert 0 < sigma < math.inf, sigma
    grid = math.ldexp(1.0, math.frexp(sigma)[1] - 1 - GRID_BITS)
    value = np.ascontiguousarray(value, dtype=np.float64)
    noise = normals(value.size, secrets, *labels, "value", fingerprint(value, sigma)).reshape(value.shape)
    return np.asarray((np.rint(value / grid) + np.rint(sigma * noise / grid)) * grid, dtype=np.float64)


def fingerprint(value: NDArray[np.float64], sigma: float) -> str:
    """Return 64 hexadecimal digits that differ for different values, or noises, of a release.

    They follow from the hidden value: nobody but its owner may see them.
    """
    digest = hashlib.sha256(np.array([sigma, *value.shape], dtype="<f8").tobytes())
    digest.update(np.ascontiguousarray(value, dtype="<f8").tobytes())
    return digest.hexdigest()


def normals(count: int, secrets: Secrets, *labels: str | int) -> NDArray[np.float64]:
    """Return so many independent standard normal numbers, (count,), of the private stream that the labels name.

    By Box and Muller's method. A radius follows from a uniform number of 128 bits: of 53 bits, the few smallest ones
    would be rings that others can see through the grid, and on which the noise of a wrong value does not lie. No number
    is larger than 8.6.
    """
    pairs = (count + 1) // 2
    words = np.frombuffer(secrets.draw(24 * pairs, "normals", *labels), dtype="<u8")
    high, low = words[:pairs].astype(np.float64), words[pairs : 2 * pairs].astype(np.float64)
    uniform = np.maximum(high * 2.0**-64 + low * 2.0**-128, _UNIFORM_MIN)
    turns = (words[2 * pairs :] >> np.uint64(11)).astype(np.float64) * 2.0**-53  # [0, 1)
    radius, angle = np.sqrt(-2.0 * np.log(uniform)), 2.0 * np.pi * turns
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]
