"""The canonical encoding: every value has exactly one byte string, and any other is refused.

A value is an integer (0 … 2⁶⁴ − 1), a byte string, a text, or a list of values; msgpack writes them in their
shortest form. There are no maps, floats, booleans, nulls or negative numbers, so nothing has two spellings.
"""

from collections.abc import Sequence
from typing import Any

import msgpack

from fedchain.chain.exceptions import InvalidEncoding
from fedchain.crypto.hashing import Hash

NESTING_MAX = 8
INTEGER_MAX = 2**64 - 1


def encode(value: Any) -> bytes:
    """Write ``value`` (integers, bytes, texts and lists of them) in canonical form."""
    data: bytes = msgpack.packb(value, use_bin_type=True)
    return data


def decode(data: bytes, size_max: int) -> Any:
    """Read one canonical value from ``data``.

    Raises:
        InvalidEncoding: larger than ``size_max`` bytes, malformed, of a foreign type, or not canonical.
    """
    if len(data) > size_max:
        raise InvalidEncoding("size", f"{len(data)} bytes, at most {size_max} are allowed")
    try:
        _validate_lengths(data)
        value = msgpack.unpackb(data, raw=False, use_list=True, strict_map_key=True)
        foreign = _foreign_type(value, 0)
        canonical = foreign is None and encode(value) == data
    except (
        ValueError,
        TypeError,
        OverflowError,
        msgpack.exceptions.UnpackException,
        RecursionError,
    ) as error:
        raise InvalidEncoding("msgpack", f"{type(error).__name__}: {error}"[:200]) from None
    if foreign is not None:
        raise InvalidEncoding("type", f"{foreign} found, only integers, bytes, texts and lists are allowed")
    if not canonical:
        raise InvalidEncoding("canonical form", f"{len(data)} bytes differ from their re-encoding")
    return value


def _validate_lengths(data: bytes) -> None:
    """Walk over ``data`` without building anything: a list that announces more items than follow raises here.

    Unpacking allocates what a list announces before it looks for the items, once for every level of nesting.
    """
    unpacker = msgpack.Unpacker(max_buffer_size=len(data) or 1)
    unpacker.feed(data)
    unpacker.skip()


def _foreign_type(value: Any, depth: int) -> str | None:
    """Name the first thing in ``value`` that the encoding does not have."""
    kind = type(value)
    if kind is int:
        return None if 0 <= value <= INTEGER_MAX else f"integer {value}"
    if kind is bytes or kind is str:
        return None
    if kind is not list:
        return kind.__name__
    if depth >= NESTING_MAX:
        return f"nesting deeper than {NESTING_MAX}"
    for item in value:
        if (foreign := _foreign_type(item, depth + 1)) is not None:
            return foreign
    return None


def expect_record(value: Any, name: str, kinds: Sequence[type]) -> list[Any]:
    """Check that ``value`` is a list with one item of each of ``kinds``, and return it.

    Raises:
        InvalidEncoding: naming the record, the position, and the kind found and expected.
    """
    if type(value) is not list or len(value) != len(kinds):
        found = f"{len(value)} fields" if type(value) is list else type(value).__name__
        raise InvalidEncoding(name, f"{found} found, {len(kinds)} fields expected")
    for position, (item, kind) in enumerate(zip(value, kinds, strict=True)):
        if type(item) is not kind:
            raise InvalidEncoding(name, f"field {position} is {type(item).__name__}, {kind.__name__} expected")
    return value


def expect_size(data: bytes, size: int, name: str) -> bytes:
    """Check that ``data`` has ``size`` bytes, and return it."""
    if len(data) != size:
        raise InvalidEncoding(name, f"{len(data)} bytes found, {size} expected")
    return data


def signing_message(chain_id: Hash, kind: str, body: bytes) -> bytes:
    """What is signed: the protocol, the chain and the kind of thing come first, so nothing can be replayed."""
    return b"fedchain/1/" + chain_id + kind.encode() + b"/" + body
