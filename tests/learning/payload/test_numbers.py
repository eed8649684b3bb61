"""Which numbers are taken, which are replaced before they are sent, and where an aggregate's are moved to."""

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from fedchain.learning.exceptions import InvalidPayload, OwnCodeFailed, UnsoundNumbers
from fedchain.learning.payload.codec import canonical, decode, encode, settle
from fedchain.learning.payload.numbers import _CHUNK, clip_elements, replace_tiny, validate_elements
from fedchain.learning.payload.spec import MAGNITUDE_MAX, TensorSpec

SMALLEST = np.finfo(np.float32).smallest_normal
LARGEST_SUBNORMAL = np.nextafter(SMALLEST, np.float32(0))
shapes = npst.array_shapes(min_dims=0, max_dims=2, max_side=6)
any_floats = npst.arrays(np.float32, shapes, elements=st.floats(width=32))


def spec_of(tensor: Any, **bounds: Any) -> TensorSpec:
    return TensorSpec("x", tensor.shape, "int64" if tensor.dtype.kind == "i" else "float32", **bounds)


def spelled(*values: float) -> bytes:
    """A document with these very bits in it, which `encode` would not write."""
    written = encode({"x": np.ones(len(values), np.float32)})
    bits = np.array(values, np.float32).tobytes()
    return written[: -len(bits)] + bits


@pytest.mark.parametrize("value", [0.0, 1.0, -1.0, 1e6, -1e6, SMALLEST, -SMALLEST, 1e-30, 999_999.94])
def test_sound_numbers_are_taken(value: float) -> None:
    data = encode({"x": np.array([value], np.float32)})
    assert decode(data, [TensorSpec("x", (1,))])["x"].tolist() == [np.float32(value)]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.nextafter(np.float32(MAGNITUDE_MAX), np.float32(np.inf)), "a magnitude of at most 1e+06"),
        (-1e20, "a magnitude of at most 1e+06"),
        (np.inf, "finite numbers"),
        (-np.inf, "finite numbers"),
        (np.nan, "finite numbers"),
        (LARGEST_SUBNORMAL, "0 or a normal number"),
        (-1e-45, "0 or a normal number"),
        (-0.0, "0 or a normal number"),
    ],
)
@pytest.mark.parametrize("place", [0, _CHUNK - 1, _CHUNK, 2 * _CHUNK + 6])
def test_one_unsound_number_is_refused_wherever_it_is(value: float, expected: str, place: int) -> None:
    tensor = np.zeros(2 * _CHUNK + 7, np.float32)
    tensor[1::2] = 3.0
    tensor[place] = value
    spec = spec_of(tensor)
    with pytest.raises(UnsoundNumbers) as caught:
        validate_elements(spec, tensor)
    assert str(caught.value) == f"elements of x: {expected} expected, found {np.float32(value)}"
    with pytest.raises(UnsoundNumbers):
        decode(spelled(1.0, value), [TensorSpec("x", (2,))])


def test_a_bound_between_two_numbers_holds_the_smaller_one() -> None:
    nearest = np.float32(0.1)  # it is larger than 0.1
    below = np.nextafter(nearest, np.float32(0))
    spec = TensorSpec("x", (1,), magnitude_max=0.1)
    validate_elements(spec, np.array([-below]))
    with pytest.raises(UnsoundNumbers, match=r"a magnitude of at most 0\.1 expected"):
        validate_elements(spec, np.array([nearest]))
    assert clip_elements(spec, np.array([-nearest])).tolist() == [-below]


@given(any_floats, st.sampled_from([1e-3, 0.1, 1.0, 1e6, 16_777_217.0, 1e12, 1e300]))
def test_what_is_refused_is_what_arithmetic_calls_unsound(tensor: Any, magnitude_max: float) -> None:
    wide = np.abs(tensor.astype(np.float64))
    is_zero = (wide == 0) & ~np.signbit(tensor)
    sound = np.isfinite(tensor) & (is_zero | ((wide >= SMALLEST) & (wide <= magnitude_max)))
    try:
        validate_elements(spec_of(tensor, magnitude_max=magnitude_max), tensor)
    except UnsoundNumbers:
        assert not sound.all()
    else:
        assert sound.all()


@given(any_floats)
def test_tiny_numbers_and_the_other_zero_become_0(tensor: Any) -> None:
    found = replace_tiny(tensor)
    expected = np.where(np.abs(tensor) < SMALLEST, np.float32(0), tensor)
    assert found.shape == tensor.shape
    assert found.dtype == np.float32
    assert found.tobytes() == expected.tobytes()


def test_tiny_numbers_are_found_in_every_part_and_layout_of_a_tensor() -> None:
    tensor = np.ones((3, _CHUNK), np.float32)
    assert replace_tiny(tensor) is tensor
    tensor[1, 7], tensor[2, -1] = 1e-40, -0.0
    found = replace_tiny(np.asfortranarray(tensor))
    assert np.argwhere(found != 1).tolist() == [[1, 7], [2, _CHUNK - 1]]
    assert not np.signbit(found).any()
    assert tensor[1, 7] != 0, "what was given is not changed"


def test_what_is_sent_has_no_tiny_numbers_and_one_zero() -> None:
    given = {"x": np.array([1.0, -0.0, 1e-40, -1e-45], np.float32), "n": np.array([-3])}
    data = encode(given)
    assert data == encode({"x": np.array([1.0, 0.0, 0.0, 0.0], np.float32), "n": np.array([-3])})
    read = decode(data, [TensorSpec("x", (4,)), TensorSpec("n", (1,), "int64")])
    assert all(read[name].tobytes() == canonical(given)[name].tobytes() for name in given)


@given(any_floats, st.none() | st.integers(-3, 3), st.none() | st.integers(4, 9), st.sampled_from([1.5, 7.3, 1e6]))
def test_a_clipped_tensor_is_within_its_spec(tensor: Any, minimum: int, maximum: int, magnitude_max: float) -> None:
    if minimum is not None and abs(minimum) > magnitude_max:
        minimum = 0
    spec = spec_of(tensor, minimum=minimum, maximum=maximum, magnitude_max=magnitude_max)
    found = clip_elements(spec, tensor)
    validate_elements(spec, found)
    assert found.shape == tensor.shape
    try:
        validate_elements(spec, tensor)
    except InvalidPayload:
        assert settle({"x": tensor}, [spec])["x"].tobytes() == found.tobytes() != tensor.tobytes()
    else:
        assert settle({"x": tensor}, [spec])["x"] is tensor
        assert found.tobytes() == tensor.tobytes()


def test_clipping_moves_to_the_nearest_and_makes_no_number_0() -> None:
    tensor = np.array([np.nan, np.inf, -np.inf, 5.0, -0.0, 2.0], np.float32)
    spec = TensorSpec("x", (6,), minimum=-1, magnitude_max=3.0)
    assert clip_elements(spec, tensor).tolist() == [0.0, 3.0, -1.0, 3.0, 0.0, 2.0]
    counts = TensorSpec("n", (3,), "int64", minimum=1, maximum=9)
    assert clip_elements(counts, np.array([-5, 4, 2**62])).tolist() == [1, 4, 9]


def test_a_tensor_of_many_parts_is_clipped_part_by_part() -> None:
    tensor = np.linspace(-2, 2, 64 * _CHUNK + 3, dtype=np.float32).reshape(1, -1)
    tensor[0, [0, _CHUNK, -1]] = np.nan, 1e-40, np.inf
    tracemalloc.start()
    try:
        found = clip_elements(spec_of(tensor, magnitude_max=1.5), tensor)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.tobytes() == np.where(np.abs(tensor) < 1e-30, 0, np.clip(np.nan_to_num(tensor), -1.5, 1.5)).tobytes()
    assert most < 1.5 * tensor.nbytes


def test_an_aggregate_must_be_what_the_method_states() -> None:
    specs = [TensorSpec("x", (1,))]
    with pytest.raises(OwnCodeFailed, match=r"^the aggregate has \['y'\], but \['x'\] is stated$"):
        settle({"y": np.zeros(1, np.float32)}, specs)
    with pytest.raises(OwnCodeFailed, match=r"^the aggregate must be arrays by name, not NoneType$"):
        settle(None, specs)  # type: ignore[arg-type]
    with pytest.raises(OwnCodeFailed, match=r"^x of the aggregate must be an array of float32, .*, not float64$"):
        settle({"x": np.zeros(1)}, specs)
    with pytest.raises(OwnCodeFailed, match=r"^the aggregate must be arrays by name, and 3 is none$"):
        settle({"x": np.zeros(1, np.float32), 3: np.zeros(1, np.float32)}, specs)  # type: ignore[dict-item]
    hidden = np.ma.masked_array(np.zeros(1, np.float32), mask=[True])
    with pytest.raises(OwnCodeFailed, match=r"^x of the aggregate must be without masked values, not with 1 of them$"):
        settle({"x": hidden}, specs)
    assert settle({"x": np.ma.masked_array(np.ones(1, np.float32))}, specs)["x"].tolist() == [1]
