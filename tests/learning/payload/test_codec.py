import tracemalloc
from functools import partial
from typing import Any, Literal

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from fedchain.learning.exceptions import InvalidPayload
from fedchain.learning.payload.codec import (
    canonical,
    decode,
    document,
    encode,
    pieces,
    settle,
    size_bytes_max,
)
from fedchain.learning.payload.lazy import LazyTensors
from fedchain.learning.payload.spec import TensorSpec, byte_strings

SPECS = (
    TensorSpec("labels", (-1,), "int64", free_max=10, minimum=0, maximum=9),
    TensorSpec("prototypes", (-1, 3), free_max=10),
)
VALID = {"labels": np.array([1, 4]), "prototypes": np.arange(6, dtype=np.float32).reshape(2, 3)}

floats = npst.arrays(np.float32, npst.array_shapes(max_dims=3, max_side=4), elements=st.floats(-1e6, 1e6, width=32))
integers = npst.arrays(np.int64, npst.array_shapes(max_dims=2, max_side=4), elements=st.integers(-(2**63), 2**63 - 1))
documents = st.dictionaries(st.text(max_size=12), floats | integers, max_size=4)


def exact_specs(tensors: dict[str, Any]) -> list[TensorSpec]:
    names: dict[str, Literal["float32", "int64"]] = {"float32": "float32", "int64": "int64"}
    return [TensorSpec(name, array.shape, names[array.dtype.name]) for name, array in tensors.items()]


@given(documents)
def test_what_is_encoded_is_decoded_and_fits_the_bound(tensors: dict[str, Any]) -> None:
    specs, data = exact_specs(tensors), encode(tensors)
    decoded = decode(data, specs)
    assert decoded.keys() == tensors.keys()
    for name, array in tensors.items():
        assert decoded[name].tobytes() == canonical(tensors)[name].tobytes()
        np.testing.assert_allclose(decoded[name], array, rtol=0, atol=1.2e-38)
        assert decoded[name].dtype == array.dtype
        assert not decoded[name].flags.writeable


@given(documents)
def test_the_encoding_does_not_depend_on_the_order_or_the_layout(tensors: dict[str, Any]) -> None:
    shuffled = {name: np.asfortranarray(tensors[name]) for name in reversed(list(tensors))}
    assert encode(shuffled) == encode(tensors)


@pytest.mark.parametrize("order", ["<", ">"])
def test_numbers_are_the_same_in_any_order_of_bytes(order: str) -> None:
    """Other bits than the numbers' were looked at, and written where one of them was tiny."""
    numbers = np.array([[0.5, -0.0, 1e-40], [3, -7e5, 1]], np.float32)
    tensors: dict[str, Any] = {"labels": np.array([1, 4]), "prototypes": numbers}
    swapped = {name: array.astype(array.dtype.newbyteorder(order)) for name, array in tensors.items()}
    assert encode(swapped) == encode(tensors)
    settled, expected = settle(swapped, SPECS), settle(tensors, SPECS)
    assert all(settled[name].tobytes() == expected[name].tobytes() for name in tensors)


@given(st.integers(0, len(encode(VALID)) * 8 - 1))
def test_a_flipped_bit_is_refused_or_is_another_valid_document(bit: int) -> None:
    damaged = bytearray(encode(VALID))
    damaged[bit // 8] ^= 1 << bit % 8
    try:
        tensors = decode(bytes(damaged), SPECS)
    except InvalidPayload:
        return
    assert encode(tensors) == bytes(damaged) != encode(VALID)


@pytest.mark.parametrize("length", range(len(encode(VALID))))
def test_a_truncated_document_is_refused(length: int) -> None:
    with pytest.raises(InvalidPayload):
        decode(encode(VALID)[:length], SPECS)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidPayload):
        decode(data, SPECS)


msgpack_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=12,
)


@given(st.lists(st.lists(msgpack_values, min_size=4, max_size=4) | msgpack_values, max_size=3) | msgpack_values)
def test_wellformed_msgpack_of_another_shape_is_refused(document: Any) -> None:
    with pytest.raises(InvalidPayload):
        decode(msgpack.packb(document), SPECS)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused(value: float) -> None:
    prototypes = VALID["prototypes"].copy()
    prototypes[1, 2] = value
    with pytest.raises(InvalidPayload, match=f"elements of prototypes: finite numbers expected, found {value}"):
        decode(encode(VALID | {"prototypes": prototypes}), SPECS)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": np.array([1, 10])}, "elements of labels: at most 9 expected, found 10"),
        ({"labels": np.array([-1, 1])}, "elements of labels: at least 0 expected, found -1"),
        ({"labels": np.zeros(2, np.float32)}, "dtype of labels: int64 expected, found 'float32'"),
        ({"labels": np.zeros(11, np.int64)}, r"shape of labels: ('1..10',) expected, found (11,)"),
        ({"labels": np.zeros(0, np.int64)}, r"shape of labels: ('1..10',) expected, found (0,)"),
        ({"labels": np.zeros((1, 1), np.int64)}, r"shape of labels: ('1..10',) expected, found (1, 1)"),
        ({"prototypes": np.zeros((2, 4), np.float32)}, r"shape of prototypes: ('1..10', 3) expected, found (2, 4)"),
        ({"more": np.zeros(1, np.float32)}, "tensors: an array of 2 expected, found 3"),
    ],
)
def test_a_refusal_names_the_rule_and_both_values(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidPayload) as caught:
        decode(encode(VALID | changes), SPECS)
    assert message in str(caught.value)


def test_a_wrong_name_is_refused() -> None:
    renamed = {"label": VALID["labels"], "prototypes": VALID["prototypes"]}
    with pytest.raises(InvalidPayload, match=r"names: .*'labels'.* expected in this order, found .*'label'"):
        decode(encode(renamed), SPECS)


def test_a_document_beyond_the_bound_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(InvalidPayload, match="size: at most 504 bytes expected, found 1000000"):
        decode(b"\xc1" * 1_000_000, SPECS)


def test_another_encoding_of_the_same_tensors_is_refused() -> None:
    entries = msgpack.unpackb(encode(VALID))
    wide = b"\xdc\x00\x02" + b"".join(msgpack.packb(entry) for entry in entries)  # array16 where fixarray suffices
    assert msgpack.unpackb(wide) == entries
    with pytest.raises(InvalidPayload, match="canonical form"):
        decode(wide, SPECS)
    with pytest.raises(InvalidPayload, match="names"):
        decode(msgpack.packb(entries[::-1]), SPECS)


STRUCTURES = {
    "another number of tensors": (b"\x93", "tensors: an array of 2 expected, found 3"),
    "no array": (b"\x82", "msgpack: array expected at byte 0, found type 0x82"),
    "an entry of five": (b"\x92\x95", r"entry: \[name, dtype, shape, data\] expected, found an array of 5"),
    "a name of bytes": (b"\x92\x94\xc4\x01a", "msgpack: text expected at byte 2, found type 0xc4"),
    "a name without end": (b"\x92\x94\xa3ab", "msgpack: 6 bytes expected, found 5"),
    "a long name": (b"\x92\x94\xd9\xc9" + b"a" * 201, "text: at most 200 bytes expected, found 201"),
    "a name that is no text": (b"\x92\x94\xa1\xff", r"text: UTF-8 expected, found b'\\xff'"),
    "many dimensions": (b"\x92\x94\xa1a\xa1b\xdc\x00\x21", "shape: at most 32 dimensions expected, found 33"),
    "a negative size": (b"\x92\x94\xa1a\xa1b\x91\xff", "msgpack: integer expected at byte 7, found type 0xff"),
    "a size without end": (b"\x92\x94\xa1a\xa1b\x91\xce\x00", "msgpack: 12 bytes expected, found 9"),
    "data without end": (b"\x92\x94\xa1a\xa1b\x90\xc6\xff\xff\xff\xff", "msgpack: 4294967307 bytes expected, found 12"),
    "nothing": (b"", "msgpack: 1 bytes expected, found 0"),
}


@pytest.mark.parametrize("case", STRUCTURES)
def test_a_structure_that_is_not_expected_is_refused_where_it_begins(case: str) -> None:
    data, message = STRUCTURES[case]
    with pytest.raises(InvalidPayload, match=f"^{message}$"):
        decode(data, SPECS)


def test_what_follows_the_document_is_refused() -> None:
    with pytest.raises(InvalidPayload, match="msgpack: a document of 84 bytes expected, found 85"):
        decode(encode(VALID) + b"\0", SPECS)


def test_a_flood_of_lists_is_refused_before_one_is_built() -> None:
    specs = [TensorSpec(f"t{place:02}", (10_000,)) for place in range(60)]
    flood = b"\x90" * 60
    while len(flood) < size_bytes_max(specs) // 60:
        flood = b"\xdc\x00\x3c" + flood * 60
    tracemalloc.start()
    try:
        with pytest.raises(InvalidPayload, match="entry"):
            decode(flood, specs)
        assert tracemalloc.get_traced_memory()[1] < len(flood) // 2
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("shape", [(2, 3), (-1, 3)])
def test_what_is_decoded_are_read_only_views_wherever_they_stand_in_the_document(shape: tuple[int, ...]) -> None:
    aligned = set()
    for length in range(1, 9):
        data = encode({"x" * length: VALID["prototypes"]})
        (tensor,) = decode(data, [TensorSpec("x" * length, shape, free_max=2)]).values()
        assert np.shares_memory(tensor, np.frombuffer(data, dtype=np.uint8))
        assert not tensor.flags.writeable
        assert tensor.tobytes() == VALID["prototypes"].tobytes()
        aligned.add(tensor.flags.aligned)
    assert aligned == {True, False}


def test_a_part_of_other_bytes_is_decoded_as_a_whole_is() -> None:
    data = encode(VALID)
    part = memoryview(b"before" + data + b"behind")[6:-6]
    for specs in (SPECS, exact_specs(VALID)):
        assert {name: value.tolist() for name, value in decode(part, specs).items()} == {
            name: value.tolist() for name, value in VALID.items()
        }


NARROW: dict[str, Any] = {
    "half": np.array([0, 1.5, -65504, 6.104e-05], dtype=np.float16),
    "bytes": np.arange(12, dtype=np.uint8).reshape(3, 4),
}
NARROW_SPECS = (TensorSpec("half", (4,), "float16"), byte_strings("bytes", 4, -1, count_max=3))


def test_half_floats_and_byte_strings_come_back() -> None:
    data = encode(NARROW)
    assert len(data) <= size_bytes_max(NARROW_SPECS)
    decoded = decode(data, NARROW_SPECS)
    assert {name: (value.dtype, value.tolist()) for name, value in decoded.items()} == {
        name: (value.dtype, value.tolist()) for name, value in NARROW.items()
    }


@pytest.mark.parametrize(
    ("bits", "message"),
    [
        (0x7C00, "finite numbers expected, found inf"),
        (0x7E00, "finite numbers expected, found nan"),
        (0x8000, "0 or a normal number expected, found -0.0"),
        (0x03FF, "0 or a normal number expected, found"),
        (0x83FF, "0 or a normal number expected, found"),
        (0x5001, "a magnitude of at most 32 expected, found 32.03"),
    ],
)
def test_half_floats_are_as_sound_as_others(bits: int, message: str) -> None:
    broken = np.array([1.0, 0.0, 2.0], dtype=np.float16)
    broken.view(np.uint16)[1] = bits
    spec = TensorSpec("half", (3,), "float16", magnitude_max=32)
    with pytest.raises(InvalidPayload, match=message):
        decode(b"".join(pieces({"half": broken})), [spec])
    if "0 or" in message:
        assert decode(encode({"half": broken}), [spec])["half"].tolist() == [1.0, 0.0, 2.0]


def test_aggregates_of_half_floats_are_moved_within_their_bounds() -> None:
    spec = TensorSpec("half", (3,), "float16", magnitude_max=33.99)
    broken = np.array([np.nan, np.inf, -40.0], dtype=np.float16)
    assert settle({"half": broken}, [spec])["half"].tolist() == [0.0, 33.96875, -33.96875]


def test_a_length_that_lies_about_the_data_is_refused() -> None:
    entries = msgpack.unpackb(encode(VALID))
    entries[0][3] += b"\0"
    with pytest.raises(InvalidPayload, match="data of labels: 16 bytes expected, found 17"):
        decode(msgpack.packb(entries), SPECS)


def test_only_tensors_of_a_free_size_are_looked_at_for_the_size_of_a_document() -> None:
    specs = (
        TensorSpec("fixed", (2, 3)),
        TensorSpec("free", (-1, 2), free_max=300),
        TensorSpec("labels", (4,), "int64"),
    )
    arrays: dict[str, Any] = {
        "fixed": np.ones((2, 3), np.float32),
        "free": np.ones((200, 2), np.float32),
        "labels": np.arange(4),
    }
    asked = list[str]()

    def look(name: str) -> Any:
        asked.append(name)
        return arrays[name]

    size, found = document(LazyTensors({name: partial(look, name) for name in arrays}), specs)
    assert asked == ["free"]
    written = b"".join(found)
    assert (size, written) == (len(encode(arrays)), encode(arrays))
