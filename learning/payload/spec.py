"""Specifications of a payload's tensors, stated before any is read: name, shape, type and bounds."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

MAGNITUDE_MAX = 1e6
"""Largest absolute value of a float, unless a method states another one for a tensor."""

WIRE_DTYPES: Mapping[str, np.dtype[Any]] = MappingProxyType(
    {
        "float32": np.dtype("<f4"),
        "float16": np.dtype("<f2"),
        "int64": np.dtype("<i8"),
        "uint8": np.dtype("u1"),
    }
)
"""Name of each type -> how its elements stand in a document."""

_NAMES = {np.dtype(name): name for name in WIRE_DTYPES}

ENTRY_OVERHEAD_BYTES_MAX = 96


def name_of_dtype(dtype: np.dtype[Any]) -> str:
    """Return numpy's name of a type, which numpy puts together anew each time that it is asked."""
    return _NAMES.get(dtype) or dtype.name


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Specification of one tensor. Its floats are 0 or normal numbers: never subnormal, and never -0."""

    name: str
    """Name in the document."""

    shape: tuple[int, ...]
    """Size of each dimension; -1 is any size from 1 to `free_max`."""

    dtype: Literal["float32", "float16", "int64", "uint8"] = "float32"
    """Type of the elements. float16 halves a payload: aggregation computes with float64 all the same."""

    free_max: int = 1
    """Largest size of a dimension that is -1."""

    minimum: int | None = None
    """Smallest allowed element; None is no bound."""

    maximum: int | None = None
    """Largest allowed element; None is no bound."""

    magnitude_max: float = MAGNITUDE_MAX
    """Largest allowed absolute value of a float."""

    @property
    def size_bytes_max(self) -> int:
        """Bytes that the encoded tensor cannot exceed."""
        elements = math.prod(self.free_max if size == -1 else size for size in self.shape)
        name = len(self.name.encode())
        return elements * WIRE_DTYPES[self.dtype].itemsize + name + ENTRY_OVERHEAD_BYTES_MAX


def byte_strings(name: str, size: int, count: int | None = None, *, count_max: int = 1) -> TensorSpec:
    """State byte strings of `size` bytes each, such as hashes or ciphertexts.

    As a tensor of uint8: one is (size,), `count` of them are (count, size), and a count of -1 is any from 1 to
    `count_max`. `payload/integers.py` reads and writes integers of any size in this form.
    """
    shape = (size,) if count is None else (count, size)
    return TensorSpec(name, shape, "uint8", free_max=count_max)
