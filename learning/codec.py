"""Tensors to bytes and back: the form in which payloads and knowledge are hashed, signed and sent.

A document is a msgpack array of `[name, dtype, shape, data]`, sorted by name; `data` is the array in C order,
little-endian. Exactly one encoding is valid, because a decoder encodes again and refuses bytes that differ.
Everything is bounded by the receiver's own specs before any array exists.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import msgpack
import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from fedchain.learning.exceptions import InvalidPayload

_WIRE_DTYPES: Mapping[str, np.dtype[Any]] = MappingProxyType({"float32": np.dtype("<f4"), "int64": np.dtype("<i8")})
_ENTRY_OVERHEAD_BYTES_MAX = 96
_NAME_LENGTH_MAX = 200


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """What one tensor must be."""

    name: str
    """Name in the document."""

    shape: tuple[int, ...]
    """Size of each dimension; -1 is any size from 1 to `free_max`."""

    dtype: Literal["float32", "int64"] = "float32"
    """Type of the elements."""

    free_max: int = 1
    """Largest size of a dimension that is -1."""

    minimum: int | None = None
    """Smallest allowed element; None is no bound."""

    maximum: int | None = None
    """Largest allowed element; None is no bound."""

    @property
    def size_bytes_max(self) -> int:
        """Bytes that the encoded tensor cannot exceed."""
        elements = math.prod(self.free_max if size == -1 else size for size in self.shape)
        name = len(self.name.encode())
        return elements * _WIRE_DTYPES[self.dtype].itemsize + name + _ENTRY_OVERHEAD_BYTES_MAX


def encode(tensors: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the one valid encoding of float32 and int64 arrays. The arrays must be finite; it is ours to know."""
    entries = []
    for name, tensor in sorted(tensors.items()):
        wire = _WIRE_DTYPES[tensor.dtype.name]
        data = np.ascontiguousarray(tensor, dtype=wire).tobytes()
        entries.append([name, tensor.dtype.name, list(tensor.shape), data])
    packed: bytes = msgpack.packb(entries, use_bin_type=True)
    return packed


def decode(data: bytes, specs: Sequence[TensorSpec]) -> dict[str, NDArray[Any]]:
    """Return the named read-only arrays, or raise `InvalidPayload` if the bytes break any rule of the specs."""
    limit = size_bytes_max(specs)
    if len(data) > limit:
        raise InvalidPayload(f"size: at most {limit} bytes expected, found {len(data)}")
    entries = _unpack(data, len(specs))
    names = [entry[0] for entry in entries]
    expected = sorted(spec.name for spec in specs)
    if names != expected:
        raise InvalidPayload(f"names: {expected} expected in this order, found {names}")
    by_name = {spec.name: spec for spec in specs}
    tensors = {entry[0]: _read_tensor(by_name[entry[0]], *entry[1:]) for entry in entries}
    if encode(tensors) != data:
        raise InvalidPayload(f"canonical form: another encoding of the same {len(data)} bytes' tensors found")
    return tensors


def size_bytes_max(specs: Sequence[TensorSpec]) -> int:
    """Return a size in bytes that no valid document of these specs exceeds."""
    return sum(spec.size_bytes_max for spec in specs) + _ENTRY_OVERHEAD_BYTES_MAX


def to_safetensors(tensors: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the tensors as a safetensors file, to be opened by other tools."""
    return safetensors.numpy.save({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()})


def _unpack(data: bytes, count: int) -> list[tuple[str, str, tuple[int, ...], bytes]]:
    """Parse the outer structure, with types checked, so that what follows cannot trip over it."""
    try:
        document = msgpack.unpackb(
            data,
            raw=False,
            use_list=True,
            max_array_len=max(count, 8),
            max_map_len=0,
            max_ext_len=0,
            max_str_len=_NAME_LENGTH_MAX,
            max_bin_len=len(data),
        )
    except (ValueError, msgpack.UnpackException) as error:
        raise InvalidPayload(f"msgpack: one document expected, found {type(error).__name__} ({error})") from error
    if not isinstance(document, list) or len(document) != count:
        found = len(document) if isinstance(document, list) else type(document).__name__
        raise InvalidPayload(f"tensors: an array of {count} expected, found {found}")
    entries = []
    for entry in document:
        if not isinstance(entry, list) or [type(part) for part in entry] != [str, str, list, bytes]:
            raise InvalidPayload(f"entry: [name, dtype, shape, data] expected, found {type(entry).__name__}")
        if any(type(size) is not int for size in entry[2]):
            raise InvalidPayload(f"shape: integers expected, found {entry[2]!r:.80}")
        entries.append((entry[0], entry[1], tuple(entry[2]), entry[3]))
    return entries


def _read_tensor(spec: TensorSpec, dtype: str, shape: tuple[int, ...], data: bytes) -> NDArray[Any]:
    if dtype != spec.dtype:
        raise InvalidPayload(f"dtype of {spec.name}: {spec.dtype} expected, found {dtype!r:.40}")
    fits = len(shape) == len(spec.shape) and all(
        1 <= size <= spec.free_max if wanted == -1 else size == wanted
        for size, wanted in zip(shape, spec.shape, strict=True)
    )
    if not fits:
        wanted_shape = tuple(f"1..{spec.free_max}" if size == -1 else size for size in spec.shape)
        raise InvalidPayload(f"shape of {spec.name}: {wanted_shape} expected, found {shape}")
    wire = _WIRE_DTYPES[spec.dtype]
    size_bytes = math.prod(shape) * wire.itemsize
    if len(data) != size_bytes:
        raise InvalidPayload(f"data of {spec.name}: {size_bytes} bytes expected, found {len(data)}")
    tensor: NDArray[Any] = np.frombuffer(data, dtype=wire).astype(wire.newbyteorder("="), copy=False).reshape(shape)
    _validate_elements(spec, tensor)
    return tensor


def _validate_elements(spec: TensorSpec, tensor: NDArray[Any]) -> None:
    if tensor.dtype.kind == "f" and not np.isfinite(tensor).all():
        found = tensor[~np.isfinite(tensor)][0]
        raise InvalidPayload(f"elements of {spec.name}: finite numbers expected, found {found}")
    if spec.minimum is not None and (tensor < spec.minimum).any():
        raise InvalidPayload(f"elements of {spec.name}: at least {spec.minimum} expected, found {tensor.min()}")
    if spec.maximum is not None and (tensor > spec.maximum).any():
        raise InvalidPayload(f"elements of {spec.name}: at most {spec.maximum} expected, found {tensor.max()}")
