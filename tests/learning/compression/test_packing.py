"""Packed posts: what is packed, what they say, and that plain tensors come out which any method can take."""

import hashlib
import math
import tracemalloc
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from fedchain.files.spool import SpoolFolder, path_of
from fedchain.learning.compression.compressor import CHANGE_MAX, Compressor
from fedchain.learning.compression.int8 import Int8
from fedchain.learning.compression.packing import Packing, find_packing
from fedchain.learning.compression.top_k import TopK
from fedchain.learning.exceptions import InvalidPayload
from fedchain.learning.methods.fedavg import FedAvg
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.models.registry import describe_model
from fedchain.learning.payload.codec import encode, lie_in_file
from fedchain.learning.payload.spec import MAGNITUDE_MAX, TensorSpec
from fedchain.learning.round import Tensors

MODEL = (TensorSpec("model.b", (3,)), TensorSpec("model.a", (2, 2)))
POSTED = (
    *MODEL,
    TensorSpec("buffer.mean", (2,)),
    TensorSpec("change", (2,)),
    TensorSpec("examples", (1,), "int64", minimum=1),
    TensorSpec("model.bounded", (2,), minimum=0),
)
LEFT = (*MODEL, TensorSpec("buffer.mean", (2,)), TensorSpec("model.bounded", (2,), minimum=0))
KNOWN = {
    "model.a": np.array([[1, 2], [3, 4]], np.float32),
    "model.b": np.array([0, -1, 5], np.float32),
    "buffer.mean": np.zeros(2, np.float32),
    "model.bounded": np.zeros(2, np.float32),
}
POST = {
    "model.a": np.array([[1.5, 2], [2, 4]], np.float32),
    "model.b": np.array([0, 0, 5.25], np.float32),
    "buffer.mean": np.array([7, 8], np.float32),
    "change": np.array([1, 0], np.float32),
    "examples": np.array([9]),
    "model.bounded": np.array([1, 2], np.float32),
}
RNG = np.random.default_rng(0)
EVERYTHING = TopK(k=4096, is_quantized=False)
INFO = describe_model("digits-mlp")


@dataclass(frozen=True, kw_only=True)
class Shifted(FedAvg):
    """Expects of each parameter that it moves by the buffer; a row of the model's change is implied."""

    implied: ClassVar[frozenset[str]] = frozenset({"change"})
    by: Compressor = EVERYTHING

    @property
    def compressor(self) -> Compressor:
        return self.by

    def expected(self, known: Tensors, stated: Tensors, info: ModelInfo) -> Tensors:
        return {name: value + stated["buffer.mean"][0] for name, value in known.items()}

    def complete(self, known: Tensors, plain: Tensors, info: ModelInfo) -> Tensors:
        return {"change": 2 * (plain["model.a"][0] - known["model.a"][0])}


def packing(compressor: Compressor | None = None, posted: tuple[TensorSpec, ...] = POSTED) -> Packing:
    found = find_packing(Shifted() if compressor is None else Shifted(by=compressor), INFO, posted, LEFT)
    assert found is not None
    return found


def missed(
    found: Packing, post: Tensors, plain: Tensors, known: Tensors, owed: NDArray[np.float32] | None = None
) -> NDArray[np.float32]:
    return np.concatenate(list(found.missed(post, plain, known, owed)))


def test_packed_are_parameters_that_are_left_behind() -> None:
    found = packing()
    assert [spec.name for spec in found.changed] == ["model.a", "model.b"]
    assert {spec.name for spec in found.whole} == {"buffer.mean", "examples", "model.bounded"}
    assert [spec.name for spec in found.implied] == ["change"]
    assert find_packing(Shifted(), INFO, POSTED, ()) is None


def test_parameters_of_another_shape_than_are_left_behind_stay_whole() -> None:
    other = replace(MODEL[0], shape=(4,))
    found = find_packing(Shifted(), INFO, MODEL, (other, MODEL[1]))
    assert found is not None
    assert [spec.name for spec in found.changed] == ["model.a"]


def test_posts_are_whole_beside_knowledge_that_lacks_a_parameter() -> None:
    assert packing().fits(KNOWN)
    assert not packing().fits(None)
    assert not packing().fits({name: value for name, value in KNOWN.items() if name != "model.b"})
    assert not packing().fits(KNOWN | {"model.b": np.zeros(4, np.float32)})


def test_where_everything_is_posted_the_plain_post_comes_out() -> None:
    payload = packing().pack(POST, KNOWN, RNG)
    found = packing().unpack(payload, KNOWN)
    assert list(found) == sorted(POST)
    for name, value in POST.items():
        assert (found[name].tolist(), found[name].dtype) == (value.tolist(), value.dtype)
        assert not found[name].flags.writeable
    assert missed(packing(), POST, found, KNOWN).tolist() == [0.0] * 7


def test_what_is_missed_and_what_is_said_are_what_was_to_be_said() -> None:
    compressor = TopK(k=1, is_quantized=True)
    owed = np.arange(7, dtype=np.float32)
    found = packing(compressor).unpack(packing(compressor).pack(POST, KNOWN, RNG, owed), KNOWN)
    left_out = missed(packing(compressor), POST, found, KNOWN, owed)
    changes = [POST[name] - KNOWN[name] - POST["buffer.mean"][0] for name in ("model.a", "model.b")]
    said = [found[name] - KNOWN[name] - POST["buffer.mean"][0] for name in ("model.a", "model.b")]
    wanted, posted = (np.concatenate([part.reshape(-1) for part in parts]) for parts in (changes, said))
    np.testing.assert_allclose(posted + left_out, wanted + owed, atol=1e-6)
    assert np.count_nonzero(posted) == 2, "one of each tensor"


def test_what_follows_follows_from_what_was_said() -> None:
    compressor = TopK(k=1, is_quantized=True)
    payload = packing(compressor).pack(POST, KNOWN, RNG)
    found = packing(compressor).unpack(payload, KNOWN)
    assert (
        found["change"].tolist()
        == (2 * (found["model.a"][0] - KNOWN["model.a"][0])).tolist()
        != POST["change"].tolist()
    )
    assert b"change" not in payload


def test_numbers_move_into_the_bounds_that_a_plain_post_has() -> None:
    top = EVERYTHING.pack([np.full(4, CHANGE_MAX, np.float32), np.zeros(3, np.float32)], [4, 3], RNG)
    whole = {name: POST[name] for name in ("examples", "model.bounded")} | {"buffer.mean": np.zeros(2, np.float32)}
    found = packing().unpack(encode(whole | top), KNOWN)
    assert found["model.a"].tolist() == [[MAGNITUDE_MAX] * 2] * 2
    assert found["change"].tolist() == [MAGNITUDE_MAX] * 2, "what follows, too"
    smallest = np.finfo(np.float32).smallest_normal
    near = KNOWN | {"model.b": np.full(3, 1.5 * smallest, np.float32)}
    tiny = EVERYTHING.pack([np.zeros(4, np.float32), np.full(3, -smallest, np.float32)], [4, 3], RNG)
    assert packing().unpack(encode(whole | tiny), near)["model.b"].tolist() == [0.0] * 3, "it would be subnormal"


@pytest.mark.parametrize("compressor", [Int8(), TopK(k=64, is_quantized=True)])
def test_a_whole_post_is_no_packed_one(compressor: Int8 | TopK) -> None:
    with pytest.raises(InvalidPayload, match=r"tensors: an array of \d expected, found 6"):
        packing(compressor).unpack(encode(POST), KNOWN)


# --- large models

SHAPES = {"model.a": (70, 1000), "model.b": (3,), "model.c": (17_000,), "model.d": (4096,)}
COUNT = 91_099
BYTES = {
    "int8": ("5e40542aa75f7747", "ba2bf4d74739b257", "fd3b130dfbe0ac4d"),
    "sparse": ("ac18b65b91385f7e", "7bea1870dd6525b1", "630b543334a73fcb"),
    "topk": ("ca58c2e738db37ab", "a675bf4230e93bc6", "91dc5e47730254f3"),
    "all": ("30022bb138dddf14", "fcc4da1ff8cc31c4", "21e7bc5063b20ef0"),
}
"""Beginnings of the hashes of a packed post, of what comes out, and of what is missed, when posts were packed whole."""

COMPRESSORS: dict[str, Compressor] = {
    "int8": Int8(),
    "sparse": TopK(k=64, is_quantized=True),
    "topk": TopK(k=200, is_quantized=False, error_decay=0.95),
    "all": EVERYTHING,
}


@dataclass(frozen=True, kw_only=True)
class Packed(FedAvg):
    """FedAvg with any compressor."""

    by: Compressor = EVERYTHING

    @property
    def compressor(self) -> Compressor:
        return self.by


def numbers(count: int, seed: int) -> NDArray[np.float32]:
    """Numbers of many magnitudes that no version of a library draws otherwise."""
    mixed = (np.arange(count, dtype=np.uint64) + np.uint64(seed)) * np.uint64(2654435761) % np.uint64(2**32)
    cubes: NDArray[np.float32] = ((mixed.astype(np.float64) / 2**31 - 1) ** 3).astype(np.float32)
    return cubes


def large(shapes: Mapping[str, tuple[int, ...]], seed: int) -> dict[str, NDArray[np.float32]]:
    return {name: numbers(math.prod(shape), seed).reshape(shape) for name, shape in shapes.items()}


def packing_of(compressor: Compressor, shapes: Mapping[str, tuple[int, ...]]) -> Packing:
    specs = tuple(TensorSpec(name, shape) for name, shape in shapes.items())
    posted = (*specs, TensorSpec("examples", (1,), "int64", minimum=1))
    found = find_packing(Packed(by=compressor), INFO, posted, specs)
    assert found is not None
    return found


def begin_of_hash(*parts: bytes) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize("name", sorted(BYTES))
def test_a_post_has_the_bytes_that_it_had_when_it_was_packed_as_a_whole(
    name: str, is_large: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_large:
        monkeypatch.setattr("fedchain.learning.compression.packing.MAPPED_SIZE", 4 * COUNT - 1)
    spools = SpoolFolder(tmp_path, size_min=100 if is_large else 2**30)
    found, known, post = packing_of(COMPRESSORS[name], SHAPES), large(SHAPES, 1), large(SHAPES, 9)
    owed = numbers(COUNT, 77) if COMPRESSORS[name].kept else None
    whole = post | {"examples": np.array([5])}
    payload = found.pack(whole, known, np.random.default_rng(7), owed, spools)
    plain = found.unpack(payload[:], known, spools)
    assert lie_in_file(plain) == (path_of(payload) is not None) == is_large
    left_out = missed(found, whole, plain, known, owed)
    tensors = [plain[tensor].tobytes() for tensor in sorted(plain)]
    assert (begin_of_hash(payload[:]), begin_of_hash(*tensors), begin_of_hash(left_out.tobytes())) == BYTES[name]


@pytest.mark.parametrize("name", sorted(BYTES))
def test_neither_packing_nor_unpacking_holds_a_large_model(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = {f"model.{number:02}": (512, 512) for number in range(12)}
    size, spools = 4 * 512**2, SpoolFolder(tmp_path, size_min=2**16)
    monkeypatch.setattr("fedchain.learning.compression.packing.MAPPED_SIZE", size)
    found = packing_of(COMPRESSORS[name], shapes)
    base = 2 + numbers(512**2, 1).reshape(512, 512)
    known, moved = dict.fromkeys(shapes, base), base + numbers(512**2, 9).reshape(512, 512)
    whole = dict.fromkeys(shapes, moved) | {"examples": np.array([5])}
    tracemalloc.start()
    try:
        payload = found.pack(whole, known, np.random.default_rng(7), None, spools)
        packing_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        plain = found.unpack(payload, known, spools)
        for _ in found.missed(whole, plain, known):
            pass
        unpacking_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert packing_bytes < 5 * size, f"{packing_bytes / size:.1f} tensors of a model of 12"
    assert unpacking_bytes < 5 * size, f"{unpacking_bytes / size:.1f} tensors of a model of 12"
