"""Which numbers a tensor may hold: finite, of bounded magnitude, zero or normal, and zero in one form only.

A machine that flushes subnormal numbers would compute other bytes from them, and where -0 lies in an order is open, so
neither is ever posted. The tests read bits: without its sign, a float grows with its bits read as an integer.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedchain.learning.exceptions import InvalidPayload, UnsoundNumbers
from fedchain.learning.payload.spec import TensorSpec, name_of_dtype


@dataclass(frozen=True, slots=True)
class _Form:
    """How a type of floats is built."""

    bits: np.dtype[Any]
    """Unsigned integers of its size."""

    smallest_normal: int
    """Bits of its smallest normal number."""

    largest: float
    """Its largest number."""

    @property
    def without_sign(self) -> int:
        """Mask of all bits but the sign."""
        return (1 << 8 * self.bits.itemsize - 1) - 1


_FORMS = {
    "float32": _Form(np.dtype(np.uint32), 0x0080_0000, float(np.finfo(np.float32).max)),
    "float16": _Form(np.dtype(np.uint16), 0x0400, float(np.finfo(np.float16).max)),
}

_CHUNK = 1 << 15
"""Elements looked at together: intermediate results of so many stay in the processor's cache."""


def validate_elements(spec: TensorSpec, tensor: NDArray[Any]) -> None:
    """Raise `UnsoundNumbers` for a float that no tensor may hold, `InvalidPayload` for one out of the spec's range."""
    if tensor.dtype.kind == "f":
        _validate_floats(spec, tensor)
    if spec.minimum is not None and any((part < spec.minimum).any() for part in _parts(tensor)):
        raise InvalidPayload(f"elements of {spec.name}: at least {spec.minimum} expected, found {tensor.min()}")
    if spec.maximum is not None and any((part > spec.maximum).any() for part in _parts(tensor)):
        raise InvalidPayload(f"elements of {spec.name}: at most {spec.maximum} expected, found {tensor.max()}")


def replace_tiny(tensor: NDArray[Any]) -> NDArray[Any]:
    """Return floats with +0 for -0 and for every subnormal number; the tensor itself, if it has none."""
    form = _FORMS[name_of_dtype(tensor.dtype)]
    if not any(_has_tiny(bits, form) for bits in _chunks(tensor, form)):
        return tensor
    kept = np.empty(tensor.size, dtype=form.bits)
    for place, bits in enumerate(_chunks(tensor, form)):
        kept[place * _CHUNK :][: len(bits)] = np.where(_is_tiny(bits, form), form.bits.type(0), bits)
    return kept.view(tensor.dtype.newbyteorder("=")).reshape(tensor.shape)


def clip_elements(spec: TensorSpec, tensor: NDArray[Any]) -> NDArray[Any]:
    """Return the tensor with every element moved to the nearest that the spec allows; NaN becomes 0."""
    if tensor.dtype.kind != "f":
        return np.asarray(np.clip(tensor, spec.minimum, spec.maximum))
    low = max(-spec.magnitude_max, -np.inf if spec.minimum is None else spec.minimum)
    high = min(spec.magnitude_max, np.inf if spec.maximum is None else spec.maximum)
    kind = tensor.dtype.type
    least, most = _towards_zero(low, kind), _towards_zero(high, kind)
    found, before = np.empty(tensor.shape, dtype=kind), tensor.reshape(-1)
    for begin in range(0, before.size, _CHUNK):
        part = slice(begin, begin + _CHUNK)
        numbers = np.where(np.isnan(before[part]), kind(0), before[part])
        found.reshape(-1)[part] = replace_tiny(np.asarray(np.clip(numbers, least, most)))
    return found


def find_not_finite(tensor: NDArray[Any]) -> float | None:
    """Return the first element that is NaN or infinite; None if there is none."""
    for part in _parts(tensor):
        if not (is_finite := np.isfinite(part)).all():
            return float(part[~is_finite][0])
    return None


def _validate_floats(spec: TensorSpec, tensor: NDArray[Any]) -> None:
    """Three passes over each chunk: the magnitudes' bits, how far they lie above the smallest normal's, the largest.

    Below the smallest normal number the difference wraps round and is large.
    """
    name = name_of_dtype(tensor.dtype)
    form, span = _FORMS[name], _span(name, spec.magnitude_max)
    mask, least = form.bits.type(form.without_sign), form.bits.type(form.smallest_normal)
    above = np.empty(min(_CHUNK, tensor.size), dtype=form.bits)
    for bits in _chunks(tensor, form):
        found = above[: len(bits)]
        np.bitwise_and(bits, mask, out=found)
        np.subtract(found, least, out=found)
        if found.max() <= span:
            continue
        is_sound = (found <= span) | (bits == 0)
        if not is_sound.all():
            _refuse(spec, bits[~is_sound].view(tensor.dtype.type)[0])


@lru_cache(maxsize=64)
def _span(name: str, magnitude_max: float) -> Any:
    """How far the bits of a magnitude may lie above the smallest normal's, as an unsigned integer of their size."""
    form, kind = _FORMS[name], np.dtype(name).type
    largest = _towards_zero(magnitude_max, kind).view(form.bits.type)
    return form.bits.type(int(largest) - form.smallest_normal)


def _refuse(spec: TensorSpec, found: Any) -> None:
    if not np.isfinite(found):
        expected = "finite numbers"
    elif abs(float(found)) > spec.magnitude_max:
        expected = f"a magnitude of at most {spec.magnitude_max:g}"
    else:
        expected = "0 or a normal number"
    raise UnsoundNumbers(f"elements of {spec.name}: {expected} expected, found {found}")


def _has_tiny(bits: NDArray[Any], form: _Form) -> bool:
    """Whether any is subnormal or -0; most chunks have not even a zero, which is quicker to see."""
    magnitudes = bits & form.bits.type(form.without_sign)
    return bool(magnitudes.min() < form.smallest_normal) and bool(_is_tiny(bits, form).any())


def _is_tiny(bits: NDArray[Any], form: _Form) -> NDArray[np.bool_]:
    """Tell which are subnormal or -0."""
    magnitudes = bits & form.bits.type(form.without_sign)
    is_tiny: NDArray[np.bool_] = (magnitudes < form.smallest_normal) & (bits != 0)
    return is_tiny


def _chunks(tensor: NDArray[Any], form: _Form) -> Iterator[NDArray[Any]]:
    """Yield the elements' bits, row by row, as many at a time as stay in the cache; nothing of no elements."""
    return (part.view(form.bits) for part in _parts(np.ascontiguousarray(tensor)))


def _parts(tensor: NDArray[Any]) -> Iterator[NDArray[Any]]:
    flat = tensor.reshape(-1)
    return (flat[begin : begin + _CHUNK] for begin in range(0, flat.size, _CHUNK))


def _towards_zero(value: float, kind: Any) -> Any:
    """Round to a type of floats so that no magnitude grows."""
    largest = _FORMS[np.dtype(kind).name].largest
    value = min(max(value, -largest), largest)
    rounded = kind(value)
    return rounded if abs(float(rounded)) <= abs(value) else np.nextafter(rounded, kind(0))
