"""A client with a large model holds its gradients while it trains, and single tensors beside them."""

import math
import tracemalloc
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from fedchain.files.spool import SpoolFile, SpoolFolder
from fedchain.learning.exceptions import TrainingDiverged
from fedchain.learning.methods.scaffold import Scaffold, ScaffoldState
from fedchain.learning.round import Round
from fedchain.learning.task.custom import describe_task, load_task
from fedchain.learning.worker.checkpoint import save_state
from fedchain.learning.worker.learner import Learner
from fedchain.learning.worker.stores import Stores
from tests.support.learning.federation import Federation
from tests.support.learning.large_task import LAYERS, WIDTH, large_config

COUNT, SIDE = 16, 128
SIZE = 4 * COUNT * SIDE**2
"""Bytes of the model."""

VECTORS: Mapping[str, tuple[Mapping[str, Any], int]] = {
    "fedavg": ({}, 0),
    "fedprox": ({}, 1),  # w^t
    "fedcurv": ({}, 1),  # F_k
    "scaffold": ({}, 0),
    "scaffold, packed": ({"compression": "int8"}, 0),
    "demlearn": ({}, 0),
}
"""By case: hyper-parameters, and how many vectors as long as the model a round of it makes in torch's memory."""


class Vectors(TorchFunctionMode):
    """Counts tensors of more than half of the model that are made, views of others left out."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        given = {memory_of(value) for value in tree_leaves((args, kwargs))}
        for value in filter(torch.is_tensor, tree_leaves(found)):
            if memory_of(value) not in given and value.untyped_storage().nbytes() > SIZE / 2:
                self.made.append(str(func))
        return found


def memory_of(value: Any) -> int:
    return value.untyped_storage().data_ptr() if isinstance(value, torch.Tensor) else 0


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LAYERS, str(COUNT))
    monkeypatch.setenv(WIDTH, str(SIDE))


def federation_of(method: str, **more: Any) -> Federation:
    config = large_config(3)
    config = replace(config, method=method, hyperparameters={**dict(config.hyperparameters), "local_steps": 3, **more})
    task = load_task(config.task)
    return Federation(describe_task(config, task), task=task)


@pytest.mark.parametrize("case", VECTORS)
@pytest.mark.usefixtures("large")
def test_a_round_makes_no_vector_as_long_as_the_model_but_for_what_the_method_needs(case: str, tmp_path: Path) -> None:
    more, expected = VECTORS[case]
    federation = federation_of(case.split(",")[0], **more)
    federation.play(2)
    client, method = federation.client(0), federation.rules.method
    round = Round(3, federation.known(), clients=3, spools=SpoolFolder(tmp_path, size_min=2**12))
    tracemalloc.start()
    try:
        with Vectors() as vectors:
            method.receive(client, round)
            method.work(method.phases[0])(client, round)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(vectors.made) == expected, vectors.made
    assert most < 1.5 * SIZE, f"{most / SIZE:.2f} models, of which one is posted"


@pytest.mark.usefixtures("large")
def test_what_others_heard_of_a_large_model_is_no_vector_in_memory(tmp_path: Path) -> None:
    federation = federation_of("scaffold", compression="int8")
    federation.play(2)
    client, method, known = federation.client(0), federation.rules.method, federation.known()
    assert isinstance(method, Scaffold)
    before = client.state(ScaffoldState).control
    heard = {**known, "length": torch.ones(1).numpy()}
    tracemalloc.start()
    try:
        with Vectors() as vectors:
            method.heard(client, Round(3, known, spools=SpoolFolder(tmp_path, size_min=2**12)), heard)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert vectors.made == []
    assert most < SIZE, f"{most / SIZE:.2f} models"
    assert client.state(ScaffoldState).control is not before, "a checkpoint may still hold it"


@pytest.mark.parametrize("is_changed", [False, True])
@pytest.mark.usefixtures("large")
def test_a_client_that_has_not_changed_is_put_back_from_its_checkpoint(
    is_changed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training fails after a checkpoint. If anything was done to the client since, its state is written first."""
    monkeypatch.setattr("fedchain.learning.worker.checkpoint.MAPPED_SIZE", 2**12)
    federation, begun = federation_of("scaffold"), list[int]()
    folder = SpoolFolder(tmp_path, size_min=2**12)

    def spools() -> SpoolFile:
        begun.append(1)
        return folder()

    learner = Learner(federation.config, federation.task, members=federation.members, stores=Stores(spools=spools))
    learner.contribute(0, "update", 1, b"")
    with learner.lend(0, 2) as client:
        client.train_images = client.train_images * math.inf
    expected = learner.checkpoint(0)[:]
    if is_changed:
        next(learner.client(0).model.parameters()).data.mul_(2)
        expected = save_state(client)
    before = len(begun)
    with pytest.raises(TrainingDiverged):
        learner.contribute(0, "update", 2, b"")
    assert len(begun) - before == is_changed + 1, "x is kept"
    assert save_state(client) == expected
    assert client.file == b"", "it was given to whoever may change it"


@pytest.mark.usefixtures("large")
def test_a_learner_lets_methods_keep_vectors_where_it_spools(tmp_path: Path) -> None:
    federation = federation_of("scaffold")
    stores = Stores(spools=SpoolFolder(tmp_path, size_min=2**12))
    learner = Learner(federation.config, federation.task, members=federation.members, stores=stores)
    made = learner.contribute(0, "update", 1, b"")
    del made
    assert [path.stat().st_size for path in tmp_path.iterdir()] == [SIZE], "c_i alone is left, not x"
    assert learner.client(0).state(ScaffoldState).control is not None
