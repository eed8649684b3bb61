"""Packed posts: what is packed, what they say, and that plain tensors come out which any method can take."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from fedchain.learning.compression.compressor import CHANGE_MAX, Compressor
from fedchain.learning.compression.int8 import Int8
from fedchain.learning.compression.packing import Packing, find_packing
from fedchain.learning.compression.top_k import TopK
from fedchain.learning.exceptions import InvalidPayload
from fedchain.learning.methods.fedavg import FedAvg
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.models.registry import describe_model
from fedchain.learning.payload.codec import encode
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
    payload, plain, missed = packing().pack_and_read(POST, KNOWN, RNG)
    found = packing().unpack(payload, KNOWN)
    assert list(found) == sorted(POST)
    assert {name: value.tolist() for name, value in plain.items()} == {name: found[name].tolist() for name in found}
    for name, value in POST.items():
        assert (found[name].tolist(), found[name].dtype) == (value.tolist(), value.dtype)
        assert not found[name].flags.writeable
    assert missed.tolist() == [0.0] * 7
    assert packing().pack(POST, KNOWN, RNG) == payload


def test_what_is_missed_and_what_is_said_are_what_was_to_be_said() -> None:
    compressor = TopK(k=1, is_quantized=True)
    owed = np.arange(7, dtype=np.float32)
    payload, found, missed = packing(compressor).pack_and_read(POST, KNOWN, RNG, owed)
    assert found["model.a"].tolist() == packing(compressor).unpack(payload, KNOWN)["model.a"].tolist()
    changes = [POST[name] - KNOWN[name] - POST["buffer.mean"][0] for name in ("model.a", "model.b")]
    said = [found[name] - KNOWN[name] - POST["buffer.mean"][0] for name in ("model.a", "model.b")]
    wanted, posted = (np.concatenate([part.reshape(-1) for part in parts]) for parts in (changes, said))
    np.testing.assert_allclose(posted + missed, wanted + owed, atol=1e-6)
    assert np.count_nonzero(posted) == 2, "one of each tensor"


def test_what_follows_follows_from_what_was_said() -> None:
    payload, found, _ = packing(TopK(k=1, is_quantized=True)).pack_and_read(POST, KNOWN, RNG)
    assert (
        found["change"].tolist()
        == (2 * (found["model.a"][0] - KNOWN["model.a"][0])).tolist()
        != POST["change"].tolist()
    )
    assert b"change" not in payload


def test_numbers_move_into_the_bounds_that_a_plain_post_has() -> None:
    top = EVERYTHING.pack([np.full(4, CHANGE_MAX, np.float32), np.zeros(3, np.float32)], RNG)
    whole = {name: POST[name] for name in ("examples", "model.bounded")} | {"buffer.mean": np.zeros(2, np.float32)}
    found = packing().unpack(encode(whole | top), KNOWN)
    assert found["model.a"].tolist() == [[MAGNITUDE_MAX] * 2] * 2
    assert found["change"].tolist() == [MAGNITUDE_MAX] * 2, "what follows, too"
    smallest = np.finfo(np.float32).smallest_normal
    near = KNOWN | {"model.b": np.full(3, 1.5 * smallest, np.float32)}
    tiny = EVERYTHING.pack([np.zeros(4, np.float32), np.full(3, -smallest, np.float32)], RNG)
    assert packing().unpack(encode(whole | tiny), near)["model.b"].tolist() == [0.0] * 3, "it would be subnormal"


@pytest.mark.parametrize("compressor", [Int8(), TopK(k=64, is_quantized=True)])
def test_a_whole_post_is_no_packed_one(compressor: Int8 | TopK) -> None:
    with pytest.raises(InvalidPayload, match=r"tensors: an array of \d expected, found 6"):
        packing(compressor).unpack(encode(POST), KNOWN)
