"""One value, one byte string: everything else is refused with one error."""

import random
import struct
from typing import Any

import msgpack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedchain.chain.encoding import (
    INTEGER_MAX,
    NESTING_MAX,
    decode,
    encode,
    expect_record,
    expect_size,
    signing_message,
)
from fedchain.chain.exceptions import InvalidEncoding

SIZE_MAX = 2**20

LEAVES = st.one_of(st.integers(0, INTEGER_MAX), st.binary(max_size=300), st.text(max_size=80))
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=5), max_leaves=20).filter(
    lambda value: _depth(value) <= NESTING_MAX
)


def _depth(value: Any) -> int:
    return 1 + max(map(_depth, value), default=0) if isinstance(value, list) else 0


@given(VALUES)
@example([0, 127, 128, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, INTEGER_MAX])
@example([b"x" * size for size in (0, 255, 256, 65_535, 65_536)])
@example(["x" * size for size in (0, 31, 32, 255, 256, 65_535, 65_536)])
@example([0] * 15 + [[0] * 16] + [[0] * 65_536])
def test_every_value_is_read_back(value: Any) -> None:
    assert decode(encode(value), SIZE_MAX) == value


@given(VALUES, VALUES)
def test_different_values_have_different_bytes(one: Any, other: Any) -> None:
    assert (encode(one) == encode(other)) == (one == other)


def _nested(depth: int) -> bytes:
    return b"\x91" * depth + b"\x00"


NOT_CANONICAL: dict[str, tuple[bytes, str]] = {
    "uint8 for a fixint": (b"\xcc\x7f", "canonical form"),
    "uint16 for a uint8": (b"\xcd\x00\xff", "canonical form"),
    "uint32 for a uint16": (b"\xce\x00\x00\xff\xff", "canonical form"),
    "uint64 for a uint32": (b"\xcf\x00\x00\x00\x00\xff\xff\xff\xff", "canonical form"),
    "positive int8": (b"\xd0\x01", "canonical form"),
    "positive int64": (b"\xd3" + bytes(7) + b"\x01", "canonical form"),
    "str8 for a fixstr": (b"\xd9\x01a", "canonical form"),
    "str16 for a str8": (b"\xda\x00\x20" + b"a" * 32, "canonical form"),
    "bin16 for a bin8": (b"\xc5\x00\x01a", "canonical form"),
    "bin32 for a bin8": (b"\xc6\x00\x00\x00\x01a", "canonical form"),
    "array16 for a fixarray": (b"\xdc\x00\x01\x00", "canonical form"),
    "array32 for a fixarray": (b"\xdd\x00\x00\x00\x01\x00", "canonical form"),
    "inner uint8 for a fixint": (b"\x91\xcc\x01", "canonical form"),
    "negative fixint": (b"\xff", "type"),
    "negative int64": (b"\xd3" + b"\x80" + bytes(7), "type"),
    "nil": (b"\xc0", "type"),
    "false": (b"\xc2", "type"),
    "true": (b"\xc3", "type"),
    "inner true": (b"\x91\xc3", "type"),
    "float32": (b"\xca" + struct.pack(">f", 1.0), "type"),
    "float64": (b"\xcb" + struct.pack(">d", 1.0), "type"),
    "nan": (b"\xcb" + struct.pack(">d", float("nan")), "type"),
    "empty map": (b"\x80", "type"),
    "map": (b"\x81\xa1a\x01", "type"),
    "map with integer keys": (b"\x81\x01\x01", "msgpack"),
    "map with list keys": (b"\x81\x91\x01\x01", "msgpack"),
    "map16": (b"\xde\x00\x00", "type"),
    "fixext1": (b"\xd4\x05\x00", "type"),
    "ext8": (b"\xc7\x03\x05abc", "type"),
    "timestamp": (b"\xd6\xff\x00\x00\x00\x01", "type"),
    "timestamp of an odd size": (b"\xd4\xff\x00", "msgpack"),
    "never used": (b"\xc1", "msgpack"),
    "nothing": (b"", "msgpack"),
    "trailing byte": (b"\x01\x01", "msgpack"),
    "trailing value": (encode([1]) + encode([2]), "msgpack"),
    "short array": (b"\x92\x01", "msgpack"),
    "short bytes": (b"\xc4\x05ab", "msgpack"),
    "huge array": (b"\xdd\xff\xff\xff\xff", "msgpack"),
    "huge arrays": (b"\xdd\xff\xff\xff\xff" * 200, "msgpack"),
    "huge bytes": (b"\xc6\xff\xff\xff\xff", "msgpack"),
    "huge text": (b"\xdb\xff\xff\xff\xff", "msgpack"),
    "huge map": (b"\xdf\xff\xff\xff\xff", "msgpack"),
    "huge ext": (b"\xc9\xff\xff\xff\xff\x01", "msgpack"),
    "invalid UTF-8": (b"\xa1\xff", "msgpack"),
    "overlong UTF-8": (b"\xa2\xc0\x80", "msgpack"),
    "surrogate in UTF-8": (b"\xa3\xed\xa0\x80", "msgpack"),
    "nested too deep": (_nested(NESTING_MAX + 1), "type"),
    "nested far too deep": (_nested(100_000), "msgpack"),
}


@pytest.mark.parametrize(("data", "rule"), NOT_CANONICAL.values(), ids=NOT_CANONICAL.keys())
def test_other_bytes_are_refused(data: bytes, rule: str) -> None:
    with pytest.raises(InvalidEncoding) as caught:
        decode(data, SIZE_MAX)
    assert caught.value.rule == rule
    assert str(caught.value).startswith(f"{rule}: ")
    assert len(str(caught.value)) < 300


def test_the_deepest_allowed_nesting_is_read() -> None:
    assert encode(decode(_nested(NESTING_MAX), SIZE_MAX)) == _nested(NESTING_MAX)


def test_size_is_bounded_before_anything_is_read() -> None:
    data = encode(b"x" * 100)
    assert decode(data, len(data)) == b"x" * 100
    with pytest.raises(InvalidEncoding, match=r"^size: 102 bytes, at most 101 are allowed$"):
        decode(data, 101)


def _refuses_or_reads(data: bytes) -> bool:
    try:
        value = decode(data, SIZE_MAX)
    except InvalidEncoding:
        return False
    assert encode(value) == data
    return True


@given(st.binary(max_size=64))
def test_arbitrary_bytes_are_read_or_refused(data: bytes) -> None:
    _refuses_or_reads(data)


def test_100_000_random_byte_strings_are_read_or_refused() -> None:
    rng = random.Random(1)
    read = sum(_refuses_or_reads(rng.randbytes(rng.randrange(12))) for _ in range(100_000))
    assert 0 < read < 50_000  # both happen, so the test sees both paths


@given(st.recursive(st.none() | st.booleans() | st.floats() | LEAVES, lambda inner: st.lists(inner, max_size=3)))
def test_foreign_types_are_refused_wherever_they_are(value: Any) -> None:
    assert _refuses_or_reads(msgpack.packb(value)) == (_is_allowed(value) and _depth(value) <= NESTING_MAX)


def _is_allowed(value: Any) -> bool:
    return all(map(_is_allowed, value)) if type(value) is list else type(value) in (int, bytes, str)


def test_a_record_has_the_expected_fields() -> None:
    assert expect_record([1, b"a"], "thing", (int, bytes)) == [1, b"a"]
    for value, message in (
        (7, "thing: int found, 2 fields expected"),
        ([1], "thing: 1 fields found, 2 fields expected"),
        ([1, b"a", 2], "thing: 3 fields found, 2 fields expected"),
        ([1, "a"], "thing: field 1 is str, bytes expected"),
        ([True, b"a"], "thing: field 0 is bool, int expected"),
    ):
        with pytest.raises(InvalidEncoding) as caught:
            expect_record(value, "thing", (int, bytes))
        assert str(caught.value) == message


def test_a_fixed_size_is_checked() -> None:
    assert expect_size(b"abc", 3, "thing") == b"abc"
    with pytest.raises(InvalidEncoding, match=r"^thing: 3 bytes found, 4 expected$"):
        expect_size(b"abc", 4, "thing")


def test_what_is_signed_names_protocol_chain_and_kind() -> None:
    chain_id = bytes(range(32))
    assert signing_message(chain_id, "vote", b"body") == b"fedchain/1/" + chain_id + b"vote/body"
    assert signing_message(chain_id, "vote", b"body") != signing_message(chain_id, "transaction", b"body")
