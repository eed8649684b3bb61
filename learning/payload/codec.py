"""Tensors to bytes and back: the form in which payloads and knowledge are hashed, signed and sent.

A document is a msgpack array of `[name, dtype, shape, data]`, sorted by name; `data` is the array in C order,
little-endian. Exactly one encoding is valid: a decoder refuses every other spelling of the same tensors. Everything is
bounded by the receiver's own specs before any array exists, and then the numbers are (`payload/numbers.py`).

Decoded tensors are views of the bytes: nothing is copied, and the next reader of a payload shares them.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedchain.files.spool import path_of
from fedchain.learning.exceptions import InvalidPayload, OwnCodeFailed
from fedchain.learning.payload.document import (
    Buffer,
    Entry,
    entry_header,
    read_entries,
    write_array,
)
from fedchain.learning.payload.lazy import LazyTensors
from fedchain.learning.payload.numbers import clip_elements, find_not_finite, replace_tiny, validate_elements
from fedchain.learning.payload.spec import ENTRY_OVERHEAD_BYTES_MAX, WIRE_DTYPES, TensorSpec, name_of_dtype

Document = tuple[int, Iterable[Buffer]]
"""An encoding: its bytes, and their pieces."""

LAYOUTS_MAX = 64
"""Sets of specs whose layout is remembered: a task has one or two for each phase."""


def encode(tensors: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the one valid encoding of arrays of the spec's types; -0 and subnormal numbers are written as 0.

    That the arrays are finite and within the bounds of their specs is ours to know.
    """
    return b"".join(pieces(canonical(tensors)))


def pieces(tensors: Mapping[str, NDArray[Any]]) -> Iterator[Buffer]:
    """Yield the document of canonical arrays piece by piece; each is looked at when its turn comes."""
    return entry_pieces(len(tensors), ((name, tensors[name]) for name in sorted(tensors)))


def entry_pieces(count: int, tensors: Iterable[tuple[str, NDArray[Any]]]) -> Iterator[Buffer]:
    """Yield the document of so many canonical arrays, which come in ascending order of name."""
    yield write_array(count)
    for name, tensor in tensors:
        yield from _pieces(name, tensor)


def lie_in_file(tensors: Mapping[str, NDArray[Any]]) -> bool:
    """Whether decoded tensors are views of a file, and so take no memory of their own."""
    for tensor in tensors.values():
        found: Any = tensor
        while isinstance(found, (np.ndarray, memoryview)):
            found = found.base if isinstance(found, np.ndarray) else found.obj
        if path_of(found) is None:
            return False
    return True


def document(tensors: Mapping[str, NDArray[Any]], specs: Sequence[TensorSpec] = ()) -> Document:
    """Return the document of canonical arrays, which fit to these specs if any are given.

    For its size those alone are looked at that no spec is of, or one that leaves a dimension free.
    """
    if specs and (size := _layout(tuple(specs)).size_bytes):
        return size, pieces(tensors)
    if not specs:
        kept = list(pieces(tensors))
        return sum(memoryview(piece).nbytes for piece in kept), kept
    return len(write_array(len(specs))) + sum(_entry_size(spec, tensors) for spec in specs), pieces(tensors)


def _entry_size(spec: TensorSpec, tensors: Mapping[str, NDArray[Any]]) -> int:
    shape = tensors[spec.name].shape if -1 in spec.shape else spec.shape
    size_bytes = math.prod(shape) * WIRE_DTYPES[spec.dtype].itemsize
    return len(entry_header(spec.name, spec.dtype, shape, size_bytes)) + size_bytes


def canonical(tensors: Mapping[str, NDArray[Any]]) -> LazyTensors:
    """Return the arrays as they are after decoding; each is looked at when it is asked for."""
    return LazyTensors({name: partial(_canonical, tensors, name) for name in tensors})


def _canonical(tensors: Mapping[str, NDArray[Any]], name: str) -> NDArray[Any]:
    tensor = _native(tensors[name])
    return replace_tiny(tensor) if tensor.dtype.kind == "f" else tensor


def _native(tensor: NDArray[Any]) -> NDArray[Any]:
    """The numbers in this machine's order of bytes, in which their bits are read: files have others, too."""
    return tensor if tensor.dtype.isnative else tensor.astype(tensor.dtype.newbyteorder("="))


def decode(data: Buffer, specs: Sequence[TensorSpec]) -> dict[str, NDArray[Any]]:
    """Return the named arrays as read-only views of the bytes, or raise `InvalidPayload` if they break any rule.

    For numbers that a training may come to by itself, such as too large ones, that is `UnsoundNumbers`. A view begins
    where its data do, which may be at an address that no element has by itself.
    """
    limit = size_bytes_max(specs)
    if len(data) > limit:
        raise InvalidPayload(f"size: at most {limit} bytes expected, found {len(data)}")
    layout = _layout(tuple(specs))
    tensors = layout.views(data)
    if tensors is None:
        tensors = _read_tensors(data, layout.specs)
    for spec in layout.specs:
        validate_elements(spec, tensors[spec.name])
    return tensors


def settle(tensors: Mapping[str, NDArray[Any]], specs: Sequence[TensorSpec], own: str = "") -> LazyTensors:
    """Return an aggregate in canonical form, with every element within the bounds of its spec.

    Each is looked at when it is asked for. Raises `OwnCodeFailed` for what holds no tensors, or others than are stated;
    for an array of another type or shape when that is asked for, and so for numbers of a user's method, which `own`
    names, that are not finite: no bound is the nearest to them.
    """
    by_name = {spec.name: spec for spec in specs}
    if not isinstance(tensors, LazyTensors):
        validate_arrays("the aggregate", tensors)
    if tensors.keys() != by_name.keys():
        raise OwnCodeFailed(f"the aggregate has {sorted(tensors)}, but {sorted(by_name)} is stated")
    return LazyTensors({name: partial(_settled, tensors, by_name[name], own) for name in tensors})


def _settled(tensors: Mapping[str, NDArray[Any]], spec: TensorSpec, own: str) -> NDArray[Any]:
    tensor = _native(tensors[spec.name])
    fits = len(tensor.shape) == len(spec.shape) and all(
        wanted in (-1, size) for size, wanted in zip(tensor.shape, spec.shape, strict=True)
    )
    if name_of_dtype(tensor.dtype) != spec.dtype or not fits:
        found = f"{tensor.dtype.name} {tensor.shape}"
        raise OwnCodeFailed(f"{spec.name} of the aggregate is {found}, but {spec.dtype} {spec.shape} is stated")
    try:
        validate_elements(spec, tensor)
    except InvalidPayload:
        if own and (number := find_not_finite(tensor)) is not None:
            what = f"{spec.name} of the aggregate has {number} in it"
            raise OwnCodeFailed(f"{what}: {own} must return finite numbers") from None
        return clip_elements(spec, tensor)
    return tensor


def validate_arrays(what: str, tensors: object) -> None:
    """Raise `OwnCodeFailed`, which begins with `what`, unless these are arrays by name of types that can be encoded."""
    if not isinstance(tensors, Mapping):
        raise OwnCodeFailed(f"{what} must be arrays by name, not {type(tensors).__name__}")
    for name, tensor in tensors.items():
        if not isinstance(name, str):
            raise OwnCodeFailed(f"{what} must be arrays by name, and {name!r:.40} is none")
        found = name_of_dtype(tensor.dtype) if isinstance(tensor, np.ndarray) else type(tensor).__name__
        if found not in WIRE_DTYPES:
            raise OwnCodeFailed(f"{name} of {what} must be an array of {', '.join(WIRE_DTYPES)}, not {found}")
        if isinstance(tensor, np.ma.MaskedArray) and (masked := int(np.sum(tensor.mask))):
            raise OwnCodeFailed(f"{name} of {what} must be without masked values, not with {masked} of them")


def size_bytes_max(specs: Sequence[TensorSpec]) -> int:
    """Return a size in bytes that no valid document of these specs exceeds."""
    return sum(spec.size_bytes_max for spec in specs) + ENTRY_OVERHEAD_BYTES_MAX


class Layout:
    """The place of each tensor in a document of given specs, worked out once."""

    def __init__(self, specs: Sequence[TensorSpec]) -> None:
        self.specs = sorted(specs, key=lambda spec: spec.name)
        self.size_bytes = 0
        """Bytes of a document; 0 where a dimension is free."""
        self._places: list[tuple[str, bytes, np.dtype[Any], tuple[int, ...], int, int]] = []
        self._begin = write_array(len(self.specs))
        if all(-1 not in spec.shape for spec in specs):
            self._place_tensors()

    def _place_tensors(self) -> None:
        position = len(self._begin)
        for spec in self.specs:
            wire, count = WIRE_DTYPES[spec.dtype], math.prod(spec.shape)
            header = entry_header(spec.name, spec.dtype, spec.shape, count * wire.itemsize)
            position += len(header)
            self._places.append((spec.name, header, wire, spec.shape, count, position))
            position += count * wire.itemsize
        self.size_bytes = position

    def views(self, data: Buffer) -> dict[str, NDArray[Any]] | None:
        """Return the tensors of a document without looking at their elements; None unless each is in its place."""
        if len(data) != self.size_bytes or data[: len(self._begin)] != self._begin:
            return None
        tensors = {}
        for name, header, wire, shape, count, position in self._places:
            if data[position - len(header) : position] != header:
                return None
            tensors[name] = np.frombuffer(data, wire, count, position).reshape(shape)
        return tensors


@lru_cache(maxsize=LAYOUTS_MAX)
def _layout(specs: tuple[TensorSpec, ...]) -> Layout:
    return Layout(specs)


def _read_tensors(data: Buffer, specs: Sequence[TensorSpec]) -> dict[str, NDArray[Any]]:
    """Read a document entry by entry, because it has free dimensions, or to name its fault."""
    entries = read_entries(data, len(specs))
    names, expected = [entry.name for entry in entries], [spec.name for spec in specs]
    if names != expected:
        raise InvalidPayload(f"names: {expected} expected in this order, found {names}")
    return {entry.name: _view(spec, entry) for spec, entry in zip(specs, entries, strict=True)}


def _view(spec: TensorSpec, entry: Entry) -> NDArray[Any]:
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
    return np.frombuffer(entry.data.toreadonly(), wire).reshape(shape)


def _pieces(name: str, tensor: NDArray[Any]) -> Iterator[Buffer]:
    dtype = name_of_dtype(tensor.dtype)
    flat = np.ascontiguousarray(tensor, dtype=WIRE_DTYPES[dtype]).reshape(-1)
    yield entry_header(name, dtype, tensor.shape, flat.nbytes)
    yield flat.view(np.uint8).data
