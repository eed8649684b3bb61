"""Tensors that are computed when they are looked at."""

import numpy as np

from fedchain.learning.payload.codec import canonical, encode
from fedchain.learning.payload.lazy import LazyTensors


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
