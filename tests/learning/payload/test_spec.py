"""A specification bounds the bytes of its tensor."""

import numpy as np
import pytest

from fedchain.learning.payload.codec import encode
from fedchain.learning.payload.spec import WIRE_DTYPES, TensorSpec, byte_strings


@pytest.mark.parametrize("dtype", WIRE_DTYPES)
def test_no_tensor_that_fits_is_encoded_in_more(dtype: str) -> None:
    spec = TensorSpec("a name of some length", (-1, 3), dtype, free_max=50)  # type: ignore[arg-type]
    full = {spec.name: np.zeros((50, 3), WIRE_DTYPES[dtype])}
    assert len(encode(full)) <= spec.size_bytes_max
    assert spec.size_bytes_max >= 150 * WIRE_DTYPES[dtype].itemsize


def test_byte_strings_are_rows_of_bytes() -> None:
    assert byte_strings("hash", 32).shape == (32,)
    many = byte_strings("hashes", 32, -1, count_max=9)
    assert (many.shape, many.dtype, many.free_max) == ((-1, 32), "uint8", 9)
