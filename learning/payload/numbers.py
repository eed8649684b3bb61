"""Which numbers a tensor may hold: finite, of bounded magnitude, zero or normal, and zero in one form only.

A machine that flushes subnormal numbers would compute other bytes from them, and where -0 lies in an order is open, so
neither is ever posted. The tests read bits: without its sign, a float32 grows with its bits read as an integer.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedchain.learning.exceptions import InvalidPayload, UnsoundNumbers
from fedchain.learning.payload.spec import TensorSpec

_WITHOUT_SIGN = np.uint32(0x7FFF_FFFF)
_SMALLEST_NORMAL = np.uint32(0x0080_0000)

_LARGEST = float(np.finfo(np.float32).max)

_CHUNK = 1 << 16
"""Elements looked at together: what is made of them on the way stays in the processor's cache."""


def validate_elements(spec: TensorSpec, tensor: NDArray[Any]) -> None:
    """Raise `UnsoundNumbers` for a float that no tensor may hold, `InvalidPayload` for one out of the spec's range."""
    if tensor.dtype.kind == "f":
        _validate_floats(spec, tensor)
    if spec.minimum is not None and (tensor < spec.minimum).any():
        raise InvalidPayload(f"elements of {spec.name}: at least {spec.minimum} expected, found {tensor.min()}")
    if spec.maximum is not None and (tensor > spec.maximum).any():
        raise InvalidPayload(f"elements of {spec.name}: at most {spec.maximum} expected, found {tensor.max()}")


def replace_tiny(tensor: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the tensor with +0 for -0 and for every subnormal number; itself, if it has none."""
    if not any(_is_tiny(bits).any() for bits in _chunks(tensor)):
        return tensor
    kept = np.concatenate([np.where(_is_tiny(bits), np.uint32(0), bits) for bits in _chunks(tensor)])
    return kept.view(np.float32).reshape(tensor.shape)


def clip_elements(spec: TensorSpec, tensor: NDArray[Any]) -> NDArray[Any]:
    """Return the tensor with every element moved to the nearest that the spec allows; what is no number becomes 0."""
    if tensor.dtype.kind != "f":
        return np.asarray(np.clip(tensor, spec.minimum, spec.maximum))
    low = max(-spec.magnitude_max, -np.inf if spec.minimum is None else spec.minimum)
    high = min(spec.magnitude_max, np.inf if spec.maximum is None else spec.maximum)
    numbers = np.where(np.isnan(tensor), np.float32(0), tensor)
    return replace_tiny(np.asarray(np.clip(numbers, _towards_zero(low), _towards_zero(high))))


def _validate_floats(spec: TensorSpec, tensor: NDArray[np.float32]) -> None:
    span = _towards_zero(spec.magnitude_max).view(np.uint32) - _SMALLEST_NORMAL
    for bits in _chunks(tensor):
        is_sound = (bits & _WITHOUT_SIGN) - _SMALLEST_NORMAL <= span  # smaller ones wrap round and are large
        if is_sound.all():
            continue
        is_sound |= bits == 0
        if not is_sound.all():
            _refuse(spec, bits[~is_sound].view(np.float32)[0])


def _refuse(spec: TensorSpec, found: np.float32) -> None:
    if not np.isfinite(found):
        expected = "finite numbers"
    elif abs(float(found)) > spec.magnitude_max:
        expected = f"a magnitude of at most {spec.magnitude_max:g}"
    else:
        expected = "0 or a normal number"
    raise UnsoundNumbers(f"elements of {spec.name}: {expected} expected, found {found}")


def _is_tiny(bits: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Tell which are subnormal or -0."""
    is_tiny: NDArray[np.bool_] = ((bits & _WITHOUT_SIGN) < _SMALLEST_NORMAL) & (bits != 0)
    return is_tiny


def _chunks(tensor: NDArray[np.float32]) -> Iterator[NDArray[np.uint32]]:
    """Yield the elements' bits, row by row."""
    bits = np.ascontiguousarray(tensor).reshape(-1).view(np.uint32)
    for begin in range(0, len(bits), _CHUNK):
        yield bits[begin : begin + _CHUNK]


def _towards_zero(value: float) -> np.float32:
    """Round to float32 so that no magnitude grows."""
    value = min(max(value, -_LARGEST), _LARGEST)
    rounded = np.float32(value)
    return rounded if abs(float(rounded)) <= abs(value) else np.nextafter(rounded, np.float32(0))
