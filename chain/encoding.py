"""The canonical encoding: every value has exactly one byte string, and any other is refused.

A value is an integer (0 … 2⁶⁴ − 1), a byte string, a text, or a list of values; msgpack writes them in their
shortest form. There are no maps, floats, booleans, nulls or negative numbers, so nothing has two spellings.

Bytes from other peers are scanned once, without building anything, before msgpack builds the value: four megabytes
can hold four million lists.
"""

from collections.abc import Sequence
from typing import Any, NoReturn

import msgpack

from fedchain.chain.exceptions import InvalidEncoding
from fedchain.crypto.hashing import Hash

NESTING_MAX = 8
INTEGER_MAX = 2**64 - 1

ITEMS_FREE = 2**16
"""Items that a value of any size may have."""

BYTES_PER_ITEM = 16
"""One more item is allowed for each so many bytes. With its post and its vote, a member adds 12 items and 211 bytes to
a block: a block reaches the limit of bytes before that of items."""


def encode(value: Any) -> bytes:
    """Write ``value`` (integers, bytes, texts and lists of them) in canonical form."""
    data: bytes = msgpack.packb(value, use_bin_type=True)
    return data


def encode_list(items: Sequence[bytes]) -> bytes:
    """Write a list whose items are in canonical form already."""
    header: bytes = msgpack.Packer().pack_array_header(len(items))
    return header + b"".join(items)


def decode(data: bytes, size_max: int, items_max: int | None = None) -> Any:
    """Read one canonical value from ``data``, of few items; see :func:`validate_items`.

    Raises:
        InvalidEncoding: larger than ``size_max`` bytes, too many items, malformed, of a foreign type, or not canonical.
    """
    if len(data) > size_max:
        raise InvalidEncoding("size", f"{len(data)} bytes, at most {size_max} are allowed")
    validate_items(data, items_max)
    try:
        value = msgpack.unpackb(data, raw=False, use_list=True)
    except ValueError as error:  # of texts that are not UTF-8
        raise InvalidEncoding("msgpack", f"{type(error).__name__}: {error}"[:200]) from None
    if encode(value) != data:
        raise InvalidEncoding("canonical form", f"{len(data)} bytes differ from their re-encoding")
    return value


def validate_items(data: bytes, items_max: int | None = None) -> None:
    """Check that ``data`` is one value of few items, none of them of a foreign type, before any is built.

    Its items are the numbers, byte strings, texts and lists in it, a list counting as two. At most ``items_max`` are
    allowed; by default these are ``ITEMS_FREE`` and one for every ``BYTES_PER_ITEM`` bytes.

    Raises:
        InvalidEncoding: too many items, malformed, or of a foreign type.
    """
    allowed = ITEMS_FREE + len(data) // BYTES_PER_ITEM if items_max is None else items_max
    try:
        end = _walk(data, allowed)
    except IndexError:
        end = len(data) + 1
    if end != len(data):
        where = f"which is {len(data) - end} bytes shorter" if end < len(data) else "which ends within a value"
        raise InvalidEncoding("msgpack", f"one value in {len(data)} bytes expected, {where}")


def _walk(data: bytes, allowed: int) -> int:
    """Step over one value, item by item, and return the position of its end.

    Raises IndexError if ``data`` ends too early. If only the contents of the last item are cut short, the returned
    position lies beyond the end of ``data`` instead.
    """
    position, items, sizes = 0, 1, _FIXED_SIZES
    left = 1  # items of the list that is open
    outer: list[int] = []  # the same of the lists around it
    while True:
        while left:
            left -= 1
            head = data[position]
            if head == 0xC4:  # bytes; the frequent types come first, since this loop dominates the cost of a block
                position += 2 + data[position + 1]
            elif size := sizes[head]:
                position += size
            else:
                if head & 0xF0 == 0x90:  # a short list
                    length = head & 0x0F
                    position += 1
                else:
                    length, position = _read_length(data, position)
                    if head not in _LONG_LISTS:
                        position += length
                        continue
                items += length + 1  # the list itself counts once more: it costs more than its items
                if items > allowed:
                    raise InvalidEncoding("items", f"{items} or more found, at most {allowed} are allowed")
                if len(outer) == NESTING_MAX:
                    raise InvalidEncoding("type", f"nesting deeper than {NESTING_MAX} found")
                outer.append(left)
                left = length
        if not outer:
            return position
        left = outer.pop()


def _read_length(data: bytes, position: int) -> tuple[int, int]:
    """Return the length that follows a type byte, and the position where the contents begin."""
    head = data[position]
    if head not in _LENGTH_SIZES:
        _refuse(data, position)
    begin = position + 1 + _LENGTH_SIZES[head]
    return int.from_bytes(data[position + 1 : begin]), begin


def _refuse(data: bytes, position: int) -> NoReturn:
    if (foreign := _FOREIGN.get(data[position])) is None:
        raise InvalidEncoding("msgpack", f"byte {position} of {len(data)} is 0x{data[position]:02x}, which is no type")
    raise InvalidEncoding("type", f"{foreign} found, only integers, bytes, texts and lists are allowed")


_LONG_LISTS = (0xDC, 0xDD)
_LENGTH_SIZES = {0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4, 0xDC: 2, 0xDD: 4}
"""Type byte -> bytes of the length that follows it."""

_FIXED = dict.fromkeys(range(128), 1)  # small integers
_FIXED |= {0xA0 + length: 1 + length for length in range(32)}  # short texts
_FIXED |= {0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9}  # integers
_FIXED_SIZES = tuple(_FIXED.get(head, 0) for head in range(256))
"""Type byte -> bytes of the whole value; 0 if the type byte does not determine it."""

_FOREIGN = {
    **dict.fromkeys((*range(0x80, 0x90), 0xDE, 0xDF), "map"),
    **dict.fromkeys((*range(0xD0, 0xD4), *range(0xE0, 0x100)), "signed integer"),
    **dict.fromkeys((0xC7, 0xC8, 0xC9, *range(0xD4, 0xD9)), "extension"),
    **dict.fromkeys((0xCA, 0xCB), "float"),
    **dict.fromkeys((0xC2, 0xC3), "bool"),
    0xC0: "nil",
}
"""Type byte -> name of a type that msgpack has and the encoding does not."""


def expect_record(value: Any, name: str, kinds: Sequence[type]) -> list[Any]:
    """Check that ``value`` is a list with one item of each of ``kinds``, and return it.

    Raises:
        InvalidEncoding: naming the record, the position, and the kind found and expected.
    """
    if type(value) is not list or len(value) != len(kinds):
        found = f"{len(value)} fields" if type(value) is list else type(value).__name__
        raise InvalidEncoding(name, f"{found} found, {len(kinds)} fields expected")
    types = list(map(type, value))
    if types != list(kinds):
        position = next(place for place, kind in enumerate(kinds) if types[place] is not kind)
        found, expected = types[position].__name__, kinds[position].__name__
        raise InvalidEncoding(name, f"field {position} is {found}, {expected} expected")
    return value


def expect_size(data: bytes, size: int, name: str) -> bytes:
    """Check that ``data`` has ``size`` bytes, and return it."""
    if len(data) != size:
        raise InvalidEncoding(name, f"{len(data)} bytes found, {size} expected")
    return data


def signing_message(chain_id: Hash, kind: str, body: bytes) -> bytes:
    """The bytes to sign: protocol, chain and kind come first, so a signature cannot be replayed for anything else."""
    return b"fedchain/2/" + chain_id + kind.encode() + b"/" + body
