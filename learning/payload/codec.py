"""Tensors to bytes and back: the form in which payloads and knowledge are hashed, signed and sent.

A document is a msgpack array of `[name, dtype, shape, data]`, sorted by name; `data` is the array in C order,
little-endian. Exactly one encoding is valid: a decoder refuses every other spelling of the same tensors. Everything is
bounded by the receiver's own specs before any array exists, and then the numbers are (`learning/payload/numbers.py`).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from fedchain.learning.exceptions import InvalidPayload
from fedchain.learning.payload.document import Entry, read_entries, validate_spelling, write_entries
from fedchain.learning.payload.numbers import clip_elements, replace_tiny, validate_elements
from fedchain.learning.payload.spec import ENTRY_OVERHEAD_BYTES_MAX, WIRE_DTYPES, TensorSpec


def encode(tensors: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the one valid encoding of float32 and int64 arrays; -0 and subnormal numbers are written as 0.

    That the arrays are finite and within the bounds of their specs is ours to know.
    """
    return b"".join(write_entries([_entry(name, tensor) for name, tensor in sorted(canonical(tensors).items())]))


def canonical(tensors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the arrays as who decodes them finds them."""
    return {name: replace_tiny(tensor) if tensor.dtype.kind == "f" else tensor for name, tensor in tensors.items()}


def decode(data: bytes, specs: Sequence[TensorSpec]) -> dict[str, NDArray[Any]]:
    """Return the named read-only arrays, or raise `InvalidPayload` if the bytes break any rule of the specs.

    For numbers that a training may come to by itself, such as too large ones, that is `UnsoundNumbers`.
    """
    limit = size_bytes_max(specs)
    if len(data) > limit:
        raise InvalidPayload(f"size: at most {limit} bytes expected, found {len(data)}")
    entries = read_entries(data, len(specs))
    names = [entry.name for entry in entries]
    expected = sorted(spec.name for spec in specs)
    if names != expected:
        raise InvalidPayload(f"names: {expected} expected in this order, found {names}")
    by_name = {spec.name: spec for spec in specs}
    validate_spelling(data, entries)
    return {entry.name: _read_tensor(by_name[entry.name], entry) for entry in entries}


def settle(tensors: Mapping[str, NDArray[Any]], specs: Sequence[TensorSpec]) -> dict[str, NDArray[Any]]:
    """Return an aggregate with every element within the bounds of its spec. Its names and shapes must fit already."""
    by_name = {spec.name: spec for spec in specs}
    assert tensors.keys() == by_name.keys(), f"{sorted(tensors)} aggregated, {sorted(by_name)} stated"
    settled = canonical(tensors)
    for name, tensor in settled.items():
        try:
            validate_elements(by_name[name], tensor)
        except InvalidPayload:
            settled[name] = clip_elements(by_name[name], tensor)
    return settled


def size_bytes_max(specs: Sequence[TensorSpec]) -> int:
    """Return a size in bytes that no valid document of these specs exceeds."""
    return sum(spec.size_bytes_max for spec in specs) + ENTRY_OVERHEAD_BYTES_MAX


def to_safetensors(tensors: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the tensors as a safetensors file, to be opened by other tools."""
    return safetensors.numpy.save({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()})


def _entry(name: str, tensor: NDArray[Any]) -> Entry:
    flat = np.ascontiguousarray(tensor, dtype=WIRE_DTYPES[tensor.dtype.name]).reshape(-1)
    return Entry(name, tensor.dtype.name, tensor.shape, flat.view(np.uint8).data)


def _read_tensor(spec: TensorSpec, entry: Entry) -> NDArray[Any]:
    if entry.dtype != spec.dtype:
        raise InvalidPayload(f"dtype of {spec.name}: {spec.dtype} expected, found {entry.dtype!r:.40}")
    shape = entry.shape
    fits = len(shape) == len(spec.shape) and all(
        1 <= size <= spec.free_max if wanted == -1 else size == wanted
        for size, wanted in zip(shape, spec.shape, strict=True)
    )
    if not fits:
        wanted_shape = tuple(f"1..{spec.free_max}" if size == -1 else size for size in spec.shape)
        raise InvalidPayload(f"shape of {spec.name}: {wanted_shape} expected, found {shape}")
    wire = WIRE_DTYPES[spec.dtype]
    size_bytes = math.prod(shape) * wire.itemsize
    if len(entry.data) != size_bytes:
        raise InvalidPayload(f"data of {spec.name}: {size_bytes} bytes expected, found {len(entry.data)}")
    tensor = np.frombuffer(entry.data, dtype=wire).astype(wire.newbyteorder("=")).reshape(shape)  # aligned, by copying
    tensor.flags.writeable = False
    validate_elements(spec, tensor)
    return tensor
