"""Tensors that are computed when they are looked at."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedchain.files.spool import SpoolFolder
from fedchain.learning.payload.codec import canonical, encode, lie_in_file
from fedchain.learning.payload.lazy import LazyTensors, computed_once


def test_a_tensor_is_computed_when_it_is_looked_at_and_kept_by_nobody() -> None:
    computed = list[str]()

    def compute(name: str, value: float) -> np.ndarray:
        computed.append(name)
        return np.full(3, value, np.float32)

    lazy = LazyTensors({"b": lambda: compute("b", 2.0), "a": lambda: compute("a", -0.0)})
    beside = {"b": np.ones(2, np.float32), "c": np.zeros(1, np.float32)}
    left, right, settled = lazy | beside, beside | lazy, canonical(lazy)
    assert (list(lazy), len(lazy), "a" in lazy, "c" in lazy) == (["b", "a"], 2, True, False)
    assert computed == []
    assert [left["b"].tolist(), right["b"].tolist()] == [[1.0, 1.0], [2.0, 2.0, 2.0]]
    assert computed == ["b"]
    assert not np.signbit(settled["a"]).any()
    assert np.signbit(lazy["a"]).all()
    assert computed == ["b", "a", "a"]
    assert encode(left) == encode({name: np.array(left[name]) for name in left})


@pytest.mark.parametrize("size_min", [2**20, 10])
def test_what_is_computed_once_is_kept_where_it_has_room(size_min: int, tmp_path: Path) -> None:
    computed = list[str]()

    def compute(name: str, array: NDArray[Any]) -> NDArray[Any]:
        computed.append(name)
        return array

    arrays = {"b": np.arange(6, dtype=np.float32).reshape(2, 3).T, "a": np.array([7]), "c": np.zeros((0,), np.float32)}
    lazy = LazyTensors({name: partial(compute, name, array) for name, array in arrays.items()})
    kept = computed_once(lazy, SpoolFolder(tmp_path, size_min=size_min))
    for name in (*kept, *kept):
        found = kept[name]
        assert (found.dtype, found.tolist()) == (arrays[name].dtype, arrays[name].tolist())
        assert not found.flags.writeable
    assert computed == list(arrays)
    assert lie_in_file(kept) == (size_min == 10)
