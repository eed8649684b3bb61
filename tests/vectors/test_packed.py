"""The published packed posts say what stands beside them, read as the protocol's page says, by no code of ours."""

import json
import math
import struct
from typing import Any

import msgpack
import pytest

from tests.support.paths import DOCS
from tests.vectors.packed import CASES, vectors

PUBLISHED: list[dict[str, Any]] = json.loads((DOCS / "vectors.json").read_text(encoding="utf-8"))["packed_posts"]

Fields = dict[str, bytes]


def test_the_published_vectors_are_computed_here() -> None:
    assert json.loads(json.dumps(vectors())) == {"packed_posts": PUBLISHED}


@pytest.mark.parametrize("vector", PUBLISHED)
def test_changes_are_read_by_the_page(vector: dict[str, Any]) -> None:
    sizes = [math.prod(shape) for _, shape in vector["parameters"]]
    packed = document(vector["payload"])
    read = int8(packed, sizes) if vector["compression"] == "int8" else largest(packed, sizes, vector["compression_k"])
    assert [list(change) for change in read] == vector["changes"]


@pytest.mark.parametrize("vector", [vector for vector in PUBLISHED if "plain" in vector])
def test_the_plain_post_is_knowledge_plus_changes(vector: dict[str, Any]) -> None:
    known, plain = document(vector["knowledge"]), document(vector["plain"])
    assert plain["examples"] == document(vector["payload"])["examples"]
    names = [f"model.{name}" for name, _ in vector["parameters"]]
    numbers = [number for name in names for number in floats(known[name])]
    for position, by in vector["changes"]:
        numbers[position] += by
    assert struct.pack(f"<{len(numbers)}f", *numbers) == b"".join(plain[name] for name in names)


def test_there_is_one_of_each_compression_and_of_several_chunks() -> None:
    assert {(kind, k) for kind, k, _ in CASES} == {(item["compression"], item["compression_k"]) for item in PUBLISHED}
    assert {item["compression"] for item in PUBLISHED if "plain" not in item} == {"topk", "sparse"}


def document(text: str) -> Fields:
    """The data of each tensor of a payload, in hexadecimal, by name."""
    return {name: data for name, _, _, data in msgpack.unpackb(bytes.fromhex(text))}


def floats(data: bytes) -> list[float]:
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def bits(data: bytes, width: int, count: int) -> list[int]:
    """Integers side by side, the lowest bits first; zero bits behind them."""
    assert len(data) == (count * width + 7) // 8
    number = int.from_bytes(data, "little")
    assert number >> count * width == 0
    return [number >> place * width & (1 << width) - 1 for place in range(count)]


def int8(packed: Fields, sizes: list[int]) -> list[tuple[int, float]]:
    scales = floats(packed["packed.scales"])
    of_number = [scale for size, scale in zip(sizes, scales, strict=True) for _ in range(size)]
    levels = zip(packed["packed.levels"], of_number, strict=True)
    return [(place, (level - 127) * scale) for place, (level, scale) in enumerate(levels)]


def largest(packed: Fields, sizes: list[int], k: int) -> list[tuple[int, float]]:
    chunks = [min(4096, size - begin) for size in sizes for begin in range(0, size, 4096)]
    kept = [-(-k * size // 4096) for size in chunks]
    count, numbers = sum(kept), sum(sizes)
    width = max(0, int(math.log2(numbers // count)))
    low = bits(packed["packed.low"], width, count)
    high = bits(packed["packed.high"], 1, count + (numbers - 1 >> width))
    places = [place for place, bit in enumerate(high) if bit]
    positions = [(place - i << width) + rest for i, (place, rest) in enumerate(zip(places, low, strict=True))]
    ends = [sum(chunks[: i + 1]) for i in range(len(chunks))]
    chunk_of = [next(i for i, end in enumerate(ends) if position < end) for position in positions]
    assert [chunk_of.count(i) for i in range(len(chunks))] == kept
    if "packed.values" in packed:
        return list(zip(positions, floats(packed["packed.values"]), strict=True))
    scales, levels = floats(packed["packed.scales"]), bits(packed["packed.levels"], 2, count)
    said = [scales[2 * i + (level >> 1)] * (-1 if level & 1 else 1) for i, level in zip(chunk_of, levels, strict=True)]
    return list(zip(positions, said, strict=True))
