"""The structure around tensors: a msgpack array of `[name, dtype, shape, data]`, written and read piece by piece.

What is read is compared with what is expected before anything is built: msgpack itself would build whatever a payload
of fifty megabytes spells, and that can be fifty million lists. `data` is never copied here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgpack

from fedchain.learning.exceptions import InvalidPayload

NAME_BYTES_MAX = 200
DIMENSIONS_MAX = 32

_SHORT = {"array": range(0x90, 0xA0), "text": range(0xA0, 0xC0), "integer": range(0x80), "bytes": range(0)}
"""Kind -> type bytes that hold the length, or the integer, themselves."""

_WIDE = {
    "array": {0xDC: 2, 0xDD: 4},
    "text": {0xD9: 1, 0xDA: 2, 0xDB: 4},
    "integer": {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8},
    "bytes": {0xC4: 1, 0xC5: 2, 0xC6: 4},
}
"""Kind -> type byte -> bytes of the length, or the integer, that follows it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor as it stands in the document; nothing about it is checked yet."""

    name: str
    """Name in the document."""

    dtype: str
    """Type of the elements, as numpy names it."""

    shape: tuple[int, ...]
    """Size of each dimension."""

    data: memoryview
    """Its bytes in the document."""


def write_entries(entries: Sequence[Entry]) -> Iterator[bytes | memoryview]:
    """Yield the pieces of the one valid document of these entries."""
    header: bytes = msgpack.Packer().pack_array_header(len(entries))
    yield header
    for entry in entries:
        empty: bytes = msgpack.packb([entry.name, entry.dtype, list(entry.shape), b""])
        yield empty.removesuffix(_bytes_header(0)) + _bytes_header(entry.data.nbytes)
        yield entry.data


def read_entries(data: bytes, count: int) -> list[Entry]:
    """Read a document of so many tensors, spelled in any way that msgpack has."""
    found, position = _read_number(data, 0, "array")
    if found != count:
        raise InvalidPayload(f"tensors: an array of {count} expected, found {found}")
    entries = []
    for _ in range(count):
        entry, position = _read_entry(data, position)
        entries.append(entry)
    if position != len(data):
        raise InvalidPayload(f"msgpack: a document of {position} bytes expected, found {len(data)}")
    return entries


def validate_spelling(data: bytes, entries: Sequence[Entry]) -> None:
    """Check that the document is the one that would be written."""
    position = 0
    for piece in write_entries(entries):
        if isinstance(piece, bytes) and not data.startswith(piece, position):
            raise InvalidPayload(f"canonical form: another encoding of the same {len(data)} bytes' tensors found")
        position += len(piece)


def _read_entry(data: bytes, position: int) -> tuple[Entry, int]:
    fields, position = _read_number(data, position, "array")
    if fields != 4:
        raise InvalidPayload(f"entry: [name, dtype, shape, data] expected, found an array of {fields}")
    name, position = _read_text(data, position)
    dtype, position = _read_text(data, position)
    dimensions, position = _read_number(data, position, "array")
    if dimensions > DIMENSIONS_MAX:
        raise InvalidPayload(f"shape: at most {DIMENSIONS_MAX} dimensions expected, found {dimensions}")
    shape = []
    for _ in range(dimensions):
        size, position = _read_number(data, position, "integer")
        shape.append(size)
    size, position = _read_number(data, position, "bytes")
    end = _end(data, position, size)
    return Entry(name, dtype, tuple(shape), memoryview(data)[position:end]), end


def _read_text(data: bytes, position: int) -> tuple[str, int]:
    size, position = _read_number(data, position, "text")
    if size > NAME_BYTES_MAX:
        raise InvalidPayload(f"text: at most {NAME_BYTES_MAX} bytes expected, found {size}")
    end = _end(data, position, size)
    try:
        return data[position:end].decode(), end
    except UnicodeDecodeError as error:
        raise InvalidPayload(f"text: UTF-8 expected, found {data[position:end]!r:.80}") from error


def _read_number(data: bytes, position: int, kind: str) -> tuple[int, int]:
    """Return an integer, or the length of something else, and where what follows begins."""
    head = data[_end(data, position, 1) - 1]
    if head in _SHORT[kind]:
        return head - _SHORT[kind].start, position + 1
    if head not in _WIDE[kind]:
        raise InvalidPayload(f"msgpack: {kind} expected at byte {position}, found type 0x{head:02x}")
    end = _end(data, position + 1, _WIDE[kind][head])
    return int.from_bytes(data[position + 1 : end]), end


def _end(data: bytes, position: int, size: int) -> int:
    """Return the place behind so many bytes, which must be there."""
    if position + size > len(data):
        raise InvalidPayload(f"msgpack: {position + size} bytes expected, found {len(data)}")
    return position + size


def _bytes_header(size: int) -> bytes:
    """Return what msgpack writes before so many bytes."""
    if size < 1 << 8:
        return b"\xc4" + size.to_bytes(1)
    return b"\xc5" + size.to_bytes(2) if size < 1 << 16 else b"\xc6" + size.to_bytes(4)
