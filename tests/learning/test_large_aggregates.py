"""Aggregates of every method that averages models: the bytes of before, and no model in memory while they are made."""

import hashlib
import math
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedchain.files.spool import SpoolFolder
from fedchain.learning.application import Application
from fedchain.learning.config import LearningConfig
from fedchain.learning.models.model_info import ModelInfo
from fedchain.learning.payload.codec import encode
from fedchain.learning.payload.spec import TensorSpec
from fedchain.learning.registry import build_method
from fedchain.learning.round import OffChain, ReadPost, Round

RULES: Mapping[str, Mapping[str, Any]] = {
    "mean": {},
    "median": {"aggregation_rule": "median"},
    "trimmed_mean": {"aggregation_rule": "trimmed_mean", "byzantine": 1},
    "clipping": {"aggregation_rule": "clipping"},
    "krum": {"aggregation_rule": "krum", "byzantine": 1},
    "multi_krum": {"aggregation_rule": "multi_krum", "byzantine": 1},
    "geometric_median": {"aggregation_rule": "geometric_median"},
    "mixed": {"neighbour_mixing": True, "byzantine": 1},
}
METHODS: Mapping[str, Mapping[str, Any]] = {
    "fedavg": {},
    "blade-fl": {},
    "fedadam": {},
    "fedcurv": {},
    "fedproc": {},
    "pfedme": {"mixing": 0.5},
    "scaffold": {},
}
CASES = [(method, rule) for method in METHODS for rule in RULES if method == "fedavg" or rule in ("mean", "clipping")]
CASES.append(("fednova", "mean"))  # it allows no other
OTHERS = (("fedcurv", "clipping"), ("scaffold", "mean"))
"""Measured in CI beside FedAvg: two more vectors as long as the model, and one that is no mean of posts."""

LAYERS, WIDTH = 24, 256
INFO = ModelInfo(
    tuple((f"layer{number:02}.weight", (WIDTH, WIDTH)) for number in range(LAYERS)),
    WIDTH,
    10,
    frozenset(f"layer{number:02}.weight" for number in range(LAYERS)),
    frozenset(),
)
BLOCKS = 2**21
"""Bytes that blocks of all posts take, which do not depend on the model."""

MEMBERS = 5
KNOWLEDGE: Mapping[tuple[str, str], str] = {
    ("fedavg", "mean"): "b155650fbf33",
    ("fedavg", "median"): "46752101a6a4",
    ("fedavg", "trimmed_mean"): "2c3f2a917b6b",
    ("fedavg", "clipping"): "a814abea8985",
    ("fedavg", "krum"): "c598708a4f95",
    ("fedavg", "multi_krum"): "616969dc8861",
    ("fedavg", "geometric_median"): "0db102b490c5",
    ("fedavg", "mixed"): "8173072158a6",
    ("blade-fl", "mean"): "8d8d867b3295",
    ("blade-fl", "clipping"): "a814abea8985",
    ("fedadam", "mean"): "f7cc9d15b2ed",
    ("fedadam", "clipping"): "8b7738049006",
    ("fedcurv", "mean"): "58ccb6a13367",
    ("fedcurv", "clipping"): "0cb1a34657f5",
    ("fedproc", "mean"): "9c48ca7e264d",
    ("fedproc", "clipping"): "ee829b002d71",
    ("pfedme", "mean"): "979126506a35",
    ("pfedme", "clipping"): "7a3dda794632",
    ("scaffold", "mean"): "cc843fc81c54",
    ("scaffold", "clipping"): "ef023da64653",
    ("fednova", "mean"): "00c6edd4bb85",
}
"""Beginnings of the hashes of what three rounds leave behind, as when aggregates were computed whole."""


def numbers(count: int, seed: int) -> NDArray[np.float64]:
    """Numbers between -1 and 1 that no version of a library draws otherwise."""
    mixed = (np.arange(count, dtype=np.uint64) + np.uint64(1 + seed)) * np.uint64(2654435761) % np.uint64(2**32)
    found: NDArray[np.float64] = mixed.astype(np.float64) / 2**31 - 1
    return found


def tensor_of(spec: TensorSpec, seed: int) -> NDArray[Any]:
    shape = tuple(4 if size == -1 else size for size in spec.shape)
    if spec.name == "labels":
        return np.arange(shape[0], dtype=np.int64)
    if spec.dtype != "float32":
        return np.full(shape, 1 + seed % 7, dtype=spec.dtype)
    drawn = numbers(math.prod(shape), 1000 * seed).reshape(shape)
    if spec.minimum is not None:
        drawn = spec.minimum + np.abs(drawn)
    return drawn.astype(np.float32)


def rules_of(method: str, rule: str) -> Application:
    return Application(LearningConfig(method=method, hyperparameters=dict(METHODS.get(method, {})) | dict(RULES[rule])))


def left_by_three_rounds(rules: Application) -> bytes:
    knowledge = b""
    rounds = [(phase.name, 0) for phase in rules.method.setup]
    rounds += [(phase.name, number) for number in (1, 2, 3) for phase in rules.method.phases]
    for place, (phase, number) in enumerate(rounds):
        specs = rules.forms[0].specs[phase]
        posts = [
            (bytes([member]), encode({spec.name: tensor_of(spec, 10 * place + member) for spec in specs}))
            for member in range(MEMBERS)
        ]
        for sender, payload in posts:
            rules.check(OffChain(phase, number), sender, knowledge, payload)
        knowledge = rules.aggregate(OffChain(phase, number), knowledge, posts)
    return knowledge


@pytest.mark.parametrize(("method", "rule"), CASES)
def test_an_aggregate_has_the_bytes_that_it_had_when_it_was_computed_whole(method: str, rule: str) -> None:
    found = left_by_three_rounds(rules_of(method, rule))
    assert hashlib.sha256(found).hexdigest()[:12] == KNOWLEDGE[method, rule]


@pytest.mark.parametrize(
    ("method", "rule"),
    [pytest.param(*case, marks=() if "fedavg" in case or case in OTHERS else pytest.mark.slow) for case in CASES],
)
def test_an_aggregate_takes_the_memory_of_two_tensors_and_of_blocks(method: str, rule: str, tmp_path: Path) -> None:
    """Some methods leave vectors as long as the model, each of which is one tensor."""
    info, model = INFO, build_method(method, dict(METHODS.get(method, {})) | dict(RULES[rule]))
    phase = model.phases[-1]
    specs, left = model.payload_spec(phase, info), model.knowledge_spec(phase, info)
    known = {spec.name: tensor_of(spec, 7) for spec in left}
    posts = tuple(
        ReadPost(bytes([member]), {spec.name: tensor_of(spec, member) for spec in specs}, info)
        for member in range(MEMBERS)
    )
    spools = SpoolFolder(tmp_path, size_min=BLOCKS // 8)
    round = Round(3, known, posts=posts, clients=MEMBERS, info=info, spools=spools)
    largest = max(tensor.nbytes for tensor in known.values())
    whole = sum(tensor.nbytes for tensor in known.values())
    tracemalloc.start()
    try:
        aggregate = model.aggregate(phase, round)
        assert sum(aggregate[name].nbytes for name in aggregate) == whole
        found = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found < 2 * largest + BLOCKS, f"{found / largest:.1f} of the largest tensors; all are {whole / largest:.1f}"
    assert method == "scaffold" or whole > 2 * largest + BLOCKS, "a whole aggregate would not do"
