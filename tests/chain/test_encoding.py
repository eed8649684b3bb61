"""One value, one byte string: everything else is refused with one error."""

import random
import struct
import tracemalloc
from typing import Any

import msgpack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedchain.chain.encoding import (
    BYTES_PER_ITEM,
    INTEGER_MAX,
    ITEMS_FREE,
    NESTING_MAX,
    decode,
    encode,
    encode_list,
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


@pytest.mark.parametrize("length", [0, 1, 15, 16, 2**16 - 1, 2**16])
def test_a_list_of_encoded_items_is_the_encoded_list(length: int) -> None:
    items = [[number, b"item"] for number in range(length)]
    assert encode_list([encode(item) for item in items]) == encode(items)


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
    "positive int8": (b"\xd0\x01", "type"),
    "positive int64": (b"\xd3" + bytes(7) + b"\x01", "type"),
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
    "map with integer keys": (b"\x81\x01\x01", "type"),
    "map with list keys": (b"\x81\x91\x01\x01", "type"),
    "map16": (b"\xde\x00\x00", "type"),
    "fixext1": (b"\xd4\x05\x00", "type"),
    "ext8": (b"\xc7\x03\x05abc", "type"),
    "timestamp": (b"\xd6\xff\x00\x00\x00\x01", "type"),
    "timestamp of an odd size": (b"\xd4\xff\x00", "type"),
    "never used": (b"\xc1", "msgpack"),
    "nothing": (b"", "msgpack"),
    "trailing byte": (b"\x01\x01", "msgpack"),
    "trailing value": (encode([1]) + encode([2]), "msgpack"),
    "short array": (b"\x92\x01", "msgpack"),
    "short bytes": (b"\xc4\x05ab", "msgpack"),
    "array of 16 items that do not follow": (b"\xdc\x00\x10", "msgpack"),
    "huge array": (b"\xdd\xff\xff\xff\xff", "items"),
    "huge arrays": (b"\xdd\xff\xff\xff\xff" * 200, "items"),
    "huge bytes": (b"\xc6\xff\xff\xff\xff", "msgpack"),
    "huge text": (b"\xdb\xff\xff\xff\xff", "msgpack"),
    "huge map": (b"\xdf\xff\xff\xff\xff", "type"),
    "huge ext": (b"\xc9\xff\xff\xff\xff\x01", "type"),
    "invalid UTF-8": (b"\xa1\xff", "msgpack"),
    "overlong UTF-8": (b"\xa2\xc0\x80", "msgpack"),
    "surrogate in UTF-8": (b"\xa3\xed\xa0\x80", "msgpack"),
    "nested too deep": (_nested(NESTING_MAX + 1), "type"),
    "nested far too deep": (_nested(100_000), "type"),
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


@pytest.mark.parametrize(
    ("value", "items"),
    [
        (7, 1),
        ([], 2),
        ([7], 3),
        ([b"a", "b", 3], 5),
        ([[[]]], 6),
        ([[1, 2], [3]] * 20, 2 + 20 * 7),
        ([0] * 70_000, 70_002),
    ],
)
def test_items_are_bounded(value: Any, items: int) -> None:
    data = encode(value)
    assert decode(data, SIZE_MAX, items_max=max(items, 1)) == value
    if items > 1:
        with pytest.raises(InvalidEncoding, match=rf"^items: \d+ or more found, at most {items - 1} are allowed$"):
            decode(data, SIZE_MAX, items_max=items - 1)


def test_more_items_are_allowed_in_more_bytes() -> None:
    ballast = b"x" * (BYTES_PER_ITEM * 1_000)
    numbers = [1] * (ITEMS_FREE - 2)
    assert decode(encode(numbers), SIZE_MAX) == numbers
    numbers = [1] * (ITEMS_FREE + 1_000 + ITEMS_FREE // BYTES_PER_ITEM)
    assert decode(encode([ballast, *numbers[4:]]), SIZE_MAX) == [ballast, *numbers[4:]]
    with pytest.raises(InvalidEncoding, match=r"^items: "):
        decode(encode(numbers), SIZE_MAX)


FLOODS = {
    "empty lists": b"\x90",
    "lists of fifteen": b"\x9f" + b"\x90" * 15,
    "numbers": b"\x01",
    "empty texts": b"\xa0",
    "short texts": b"\xa2\xc3\xa9",
    "empty bytes": b"\xc4\x00",
}


@pytest.mark.parametrize("item", FLOODS.values(), ids=FLOODS.keys())
def test_a_flood_of_small_items_is_refused_before_one_is_built(item: bytes) -> None:
    count = (SIZE_MAX - 5) // len(item)
    data = b"\xdd" + count.to_bytes(4) + item * count
    nested = b"\x91" * (NESTING_MAX - 4) + b"\x92" + data[: len(data) // 2]
    for flood in (data, nested):
        tracemalloc.start()
        try:
            with pytest.raises(InvalidEncoding, match=r"^items: "):
                decode(flood, SIZE_MAX)
            assert tracemalloc.get_traced_memory()[1] < len(flood) // 10
        finally:
            tracemalloc.stop()


def test_the_largest_honest_message_fits() -> None:
    """A block of a federation of 5,000 with everybody's post and vote."""
    post = [1_000, 1, bytes(32), bytes(32), 45_000_000, 1_700_000_000_000, bytes(64)]
    vote = [1_000, 1, bytes(32), bytes(32), bytes(64)]
    block = [[1, bytes(32), 12_345, 1_000, 1, *[bytes(32)] * 3, 1_700_000_000_000, 2**31, bytes(32), 2**63], bytes(64)]
    message = [2, [[*block, [post] * 5_000, [vote] * 5_000]]]
    assert decode(encode(message), 4 * 2**20) == message


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
    assert signing_message(chain_id, "vote", b"body") == b"fedchain/2/" + chain_id + b"vote/body"
    assert signing_message(chain_id, "vote", b"body") != signing_message(chain_id, "transaction", b"body")
