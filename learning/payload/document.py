"""The structure around tensors: a msgpack array of `[name, dtype, shape, data]`, written and read piece by piece.

Bytes are compared with what is expected before anything is built: msgpack itself would build whatever a payload of
fifty megabytes spells, and that can be fifty million lists. Msgpack can spell a number in several ways; only the
shortest is read, so each document has one spelling. `data` is never copied here.
"""

from dataclasses import dataclass
from functools import lru_cache

from fedchain.learning.exceptions import InvalidPayload

Buffer = bytes | memoryview
"""Bytes that are read: a whole payload, or a part of knowledge."""

NAME_BYTES_MAX = 200
HEADERS_MAX = 1024
"""Headers of tensors that are remembered: a model has the same ones in all posts."""

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

_LEAST = {
    (kind, head): (1 << 8 * wide[before]) if (before := head - 1) in wide else len(_SHORT[kind])
    for kind, wide in _WIDE.items()
    for head in wide
}
"""(kind, type byte) -> smallest number that no shorter form holds."""


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


@lru_cache(maxsize=HEADERS_MAX)
def entry_header(name: str, dtype: str, shape: tuple[int, ...], size_bytes: int) -> bytes:
    """Return the bytes before an entry's data."""
    sizes = b"".join(write_integer(size) for size in shape)
    fields = write_text(name) + write_text(dtype) + write_array(len(shape)) + sizes
    return write_array(4) + fields + write_bytes(size_bytes)


def write_array(count: int) -> bytes:
    """Return the bytes before so many values of an array."""
    return _write_number(count, "array")


def write_text(text: str) -> bytes:
    """Return a text."""
    encoded = text.encode()
    return _write_number(len(encoded), "text") + encoded


def write_integer(number: int) -> bytes:
    """Return an integer from 0 on."""
    return _write_number(number, "integer")


def write_bytes(size: int) -> bytes:
    """Return the header of so many bytes."""
    return _write_number(size, "bytes")


def _write_number(number: int, kind: str) -> bytes:
    """Return the shortest form of an integer, or of the length of something else, below 2^32 (integers: 2^64)."""
    short = _SHORT[kind]
    if number < len(short):
        return bytes([short.start + number])
    head, width = next((head, width) for head, width in _WIDE[kind].items() if number < 1 << 8 * width)
    return bytes([head]) + number.to_bytes(width)


def read_entries(data: Buffer, count: int) -> list[Entry]:
    """Read a document of so many tensors."""
    found, position = read_number(data, 0, "array")
    if found != count:
        raise InvalidPayload(f"tensors: an array of {count} expected, found {found}")
    entries, view = [], memoryview(data)
    for _ in range(count):
        entry, position = read_entry(view, position)
        entries.append(entry)
    if position != len(data):
        raise InvalidPayload(f"msgpack: a document of {position} bytes expected, found {len(data)}")
    return entries


def read_entry(data: memoryview, position: int) -> tuple[Entry, int]:
    """Return a tensor, whose data are a view, and the position behind it."""
    fields, position = read_number(data, position, "array")
    if fields != 4:
        raise InvalidPayload(f"entry: [name, dtype, shape, data] expected, found an array of {fields}")
    name, position = read_text(data, position)
    dtype, position = read_text(data, position)
    dimensions, position = read_number(data, position, "array")
    if dimensions > DIMENSIONS_MAX:
        raise InvalidPayload(f"shape: at most {DIMENSIONS_MAX} dimensions expected, found {dimensions}")
    shape = []
    for _ in range(dimensions):
        size, position = read_number(data, position, "integer")
        shape.append(size)
    size, position = read_number(data, position, "bytes")
    end = _end(data, position, size)
    return Entry(name, dtype, tuple(shape), data[position:end]), end


def read_text(data: Buffer, position: int) -> tuple[str, int]:
    """Return a text and the position behind it. Raises `InvalidPayload`, as all functions here that read."""
    size, position = read_number(data, position, "text")
    if size > NAME_BYTES_MAX:
        raise InvalidPayload(f"text: at most {NAME_BYTES_MAX} bytes expected, found {size}")
    end = _end(data, position, size)
    text = bytes(data[position:end])
    try:
        return text.decode(), end
    except UnicodeDecodeError as error:
        raise InvalidPayload(f"text: UTF-8 expected, found {text!r:.80}") from error


def read_number(data: Buffer, position: int, kind: str) -> tuple[int, int]:
    """Return an integer, or the length of something else, and the position behind it."""
    head = data[_end(data, position, 1) - 1]
    if head in _SHORT[kind]:
        return head - _SHORT[kind].start, position + 1
    if head not in _WIDE[kind]:
        raise InvalidPayload(f"msgpack: {kind} expected at byte {position}, found type 0x{head:02x}")
    end = _end(data, position + 1, _WIDE[kind][head])
    number = int.from_bytes(data[position + 1 : end])
    if number < _LEAST[kind, head]:
        raise InvalidPayload(f"canonical form: the shortest of {kind} {number} expected, found type 0x{head:02x}")
    return number, end


def _end(data: Buffer, position: int, size: int) -> int:
    """Return the place behind so many bytes, which must be there."""
    if position + size > len(data):
        raise InvalidPayload(f"msgpack: {position + size} bytes expected, found {len(data)}")
    return position + size
