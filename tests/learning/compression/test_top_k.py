"""The largest changes of each chunk: which, how many, with which numbers, and what is refused."""

import math
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from fedchain.learning.compression.top_k import CHUNK, TopK
from fedchain.learning.exceptions import InvalidPayload
from fedchain.learning.payload.codec import decode, encode
from fedchain.learning.payload.spec import WIRE_DTYPES
from tests.support.paths import DOCS

SIZES = [10, CHUNK + 100, 3]
RNG = np.random.default_rng(0)
CHANGES = [RNG.normal(size=size).astype(np.float32) for size in SIZES]


def kept(size: int, k: int) -> int:
    return -(-k * size // CHUNK)


def pack(compressor: TopK, changes: list[np.ndarray]) -> dict[str, Any]:
    return compressor.pack(iter(changes), [len(change) for change in changes], RNG)


def unpacked(compressor: TopK, changes: list[np.ndarray]) -> list[np.ndarray]:
    sizes = [len(change) for change in changes]
    document = encode(pack(compressor, changes))
    found = []
    unpacking = compressor.unpack(decode(document, compressor.spec(sizes)), sizes)
    for parts, size in zip(unpacking, sizes, strict=True):
        dense = np.zeros(size)
        for where, moves in parts:
            dense[where] = moves
        found.append(dense)
    return found


@pytest.mark.parametrize(("is_quantized", "bits", "for_each_chunk"), [(False, 33, 0), (True, 3, 8)])
@pytest.mark.parametrize(("sizes", "k"), [([199_210], 256), ([21_840], 1000), ([1_000_000], 7)])
def test_posts_are_as_large_as_the_page_says(
    sizes: list[int], k: int, is_quantized: bool, bits: int, for_each_chunk: int
) -> None:
    assert f"N (l + {bits}) ⁄ 8 + P ⁄ 2^(l + 3)" in (DOCS / "methods.md").read_text(encoding="utf-8")
    numbers, chunks = sum(kept(size, k) for size in cut(sizes)), len(cut(sizes))
    low = int(math.log2(sum(sizes) / numbers))
    stated = numbers * (low + bits) / 8 + sum(sizes) / 2 ** (low + 3) + for_each_chunk * chunks
    specs = TopK(k=k, is_quantized=is_quantized).spec(sizes)
    found = sum(math.prod(spec.shape) * WIRE_DTYPES[spec.dtype].itemsize for spec in specs)
    assert found == pytest.approx(stated, abs=3), "each tensor is filled up to whole bytes"


def cut(sizes: list[int]) -> list[int]:
    return [min(CHUNK, size - begin) for size in sizes for begin in range(0, size, CHUNK)]


@pytest.mark.parametrize("k", [1, 64, 1000, CHUNK])
def test_the_largest_of_each_chunk_are_posted_as_they_are(k: int) -> None:
    for found, change in zip(unpacked(TopK(k=k, is_quantized=False), CHANGES), CHANGES, strict=True):
        for begin in range(0, len(change), CHUNK):
            chunk, said = change[begin : begin + CHUNK], found[begin : begin + CHUNK]
            chosen = np.argsort(-np.abs(chunk), kind="stable")[: kept(len(chunk), k)]
            expected = np.zeros(len(chunk))
            expected[chosen] = chunk[chosen]
            assert said.tolist() == expected.tolist()


def test_two_bits_are_a_sign_and_the_better_of_two_magnitudes() -> None:
    change = np.array([9.0, -10.0, 0.5, 11.0, -1.0, 2.0, -1.5, 0.1], np.float32)
    (found,) = unpacked(TopK(k=CHUNK, is_quantized=True), [change])
    small, large = (0.5 + 1 + 2 + 1.5 + 0.1) / 5, 10.0
    np.testing.assert_allclose(found, [large, -large, small, large, -small, small, -small, small], rtol=1e-6)


def test_no_other_two_magnitudes_are_nearer() -> None:
    change = np.abs(RNG.normal(size=9)).astype(np.float32)
    (found,) = unpacked(TopK(k=CHUNK, is_quantized=True), [change])
    ordered = np.sort(change.astype(float))
    errors = [
        sum(((part - part.mean()) ** 2).sum() for part in (ordered[:split], ordered[split:])) for split in range(1, 9)
    ]
    assert ((found - change) ** 2).sum() == pytest.approx(min(errors), rel=1e-4)


def test_the_bytes_are_those_of_the_formula() -> None:
    """k of 4,096 take k (l + 3) bits and 4,096 / 2^l more, l = floor(log2(4096 / k)), and two magnitudes."""
    for k, low in ((64, 6), (256, 4)):
        compressor, change = TopK(k=k, is_quantized=True), [RNG.normal(size=CHUNK).astype(np.float32)]
        size = sum(tensor.nbytes for tensor in pack(compressor, change).values())
        assert size == pytest.approx((k * (low + 3) + CHUNK / 2**low) / 8 + 8, abs=1)


def damaged(name: str, edit: Any) -> dict[str, Any]:
    packed = pack(TopK(k=64, is_quantized=True), [np.arange(CHUNK + 1, dtype=np.float32)])
    tensor = packed[name].copy()
    edit(tensor)
    return packed | {name: tensor}


def refuse(posted: dict[str, Any], message: str) -> None:
    compressor, sizes = TopK(k=64, is_quantized=True), [CHUNK + 1]
    with pytest.raises(InvalidPayload, match=message):
        list(compressor.unpack(decode(encode(posted), compressor.spec(sizes)), sizes))


def test_positions_that_are_too_few_or_do_not_ascend_are_refused() -> None:
    def clear(high: np.ndarray) -> None:
        high[:] = 0

    def repeat(low: np.ndarray) -> None:
        low[:] = 0

    refuse(damaged("packed.high", clear), "packed.positions: 65 expected, found 0")
    refuse(damaged("packed.low", repeat), r"packed.positions\[\d+\]: more than \d+ expected, found \d+")


def test_a_chunk_has_as_many_positions_as_it_should() -> None:
    compressor = TopK(k=64, is_quantized=False)
    whole = pack(compressor, [np.arange(CHUNK + 1, dtype=np.float32)])
    other = pack(compressor, [np.arange(CHUNK + 1, dtype=np.float32)[::-1].copy()])
    assert [whole[name].shape for name in whole] == [other[name].shape for name in other]
    last = np.flatnonzero(np.unpackbits(whole["packed.high"], bitorder="little"))[-1]
    bits = np.unpackbits(whole["packed.high"], bitorder="little")
    bits[last], bits[0] = 0, 1  # the last chunk's only position becomes one more of the first
    moved = whole | {
        "packed.high": np.packbits(bits, bitorder="little"),
        "packed.low": shifted(whole["packed.low"]),
    }
    with pytest.raises(InvalidPayload, match="in chunk 0: 64 expected, found 65"):
        list(compressor.unpack(moved, [CHUNK + 1]))


def shifted(low: np.ndarray) -> np.ndarray:
    """The low bits of 65 numbers of 5 bits each, the last of which goes to the front as 0."""
    bits = np.unpackbits(low, bitorder="little")
    count, width = 65, (CHUNK + 1) // 65
    width = width.bit_length() - 1
    rows = bits[: count * width].reshape(count, width)
    moved = np.concatenate([np.zeros((1, width), np.uint8), rows[:-1]]).reshape(-1)
    return np.packbits(np.concatenate([moved, bits[count * width :]]), bitorder="little")


@pytest.mark.parametrize(("scale", "message"), [(np.nan, "finite"), (np.inf, "finite"), (-1.0, "at least 0")])
def test_scales_that_are_no_magnitudes_are_refused(scale: float, message: str) -> None:
    def replace(scales: np.ndarray) -> None:
        scales[0, 1] = scale

    refuse(damaged("packed.scales", replace), f"elements of packed.scales: .*{message}")


def test_a_document_of_another_length_is_refused_before_it_is_read() -> None:
    posted = damaged("packed.high", lambda high: None)
    refuse(posted | {"packed.high": np.append(posted["packed.high"], np.uint8(0))}, "shape of packed.high|size")


def test_of_all_bytes_only_those_are_taken_that_spell_a_choice() -> None:
    compressor, found = TopK(k=2000, is_quantized=True), list[tuple[int, ...]]()  # 3 of 5
    for high in range(256):
        posted: dict[str, Any] = {"packed.low": np.empty(0, np.uint8), "packed.high": np.array([high], np.uint8)}
        posted |= {"packed.levels": np.array([0b10_01_00], np.uint8), "packed.scales": np.array([[1, 2]], np.float32)}
        decode(encode(posted), compressor.spec([5]))
        try:
            (((where, moves),),) = map(tuple, compressor.unpack(posted, [5]))
        except InvalidPayload:
            continue
        assert isinstance(where, np.ndarray)
        assert moves.tolist() == [1, -1, 2]
        found.append(tuple(where.tolist()))
    assert sorted(found) == list(combinations(range(5), 3))
