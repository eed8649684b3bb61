"""A client's memory of what its posts left out: it is added to the next one, and comes back with a checkpoint."""

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedchain.files.spool import SpoolFolder
from fedchain.learning.compression.packing import find_packing
from fedchain.learning.methods.fedavg import FedAvg
from fedchain.learning.methods.scaffold import ScaffoldState
from fedchain.learning.models.registry import describe_model
from fedchain.learning.payload.spec import TensorSpec
from fedchain.learning.round import Round
from fedchain.learning.worker.compressing import CompressionState, compress
from fedchain.learning.worker.learner import Learner
from fedchain.learning.worker.stores import Stores
from tests.support.learning.federation import Federation, config, new_client
from tests.support.learning.mapped import file_of

SPECS = (TensorSpec("model.w", (4,)),)
KNOWN = {"model.w": np.array([1, 1, 1, 1], np.float32)}


def model(*values: float) -> dict[str, Any]:
    return {"model.w": np.array(values, np.float32)}


def test_what_was_left_out_is_posted_later_and_fades() -> None:
    decay = 0.5
    method = FedAvg(compression="topk", compression_k=1, error_decay=decay)  # one number
    packing = find_packing(method, describe_model("digits-mlp"), SPECS, SPECS)
    assert packing is not None
    client = new_client()

    def said(*values: float) -> list[float]:
        payload = compress(client, "update", packing, model(*values), Round(2, KNOWN), np.random.default_rng(0))
        return [round(float(value), 5) for value in packing.unpack(payload, KNOWN)["model.w"] - 1]

    assert said(2, 4, 1, 1) == [0, 3, 0, 0]
    owed = client.state(CompressionState).residuals["update"]
    assert owed.tolist() == [1, 0, 0, 0]
    assert said(1.5, 1, 1, 1) == [round(decay + 0.5, 5), 0, 0, 0]
    assert client.state(CompressionState).residuals["update"].abs().max() < 1e-6
    said(3, 2, 1, 1)
    assert said(1, 1, 1, 1) == [0, round(decay, 5), 0, 0]


@pytest.mark.parametrize(("kind", "is_kept"), [("none", False), ("int8", False), ("topk", True), ("sparse", True)])
def test_only_compressors_that_leave_out_numbers_leave_a_memory(kind: str, is_kept: bool) -> None:
    federation = Federation(config("fedavg", compression=kind))
    federation.play(1)
    assert "CompressionState" not in federation.client(0).states, "the first posts are whole"
    federation.play(1)
    assert ("CompressionState" in federation.client(0).states) == is_kept


@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
def test_a_client_goes_on_from_a_checkpoint_with_what_it_owes(method: str) -> None:
    federation = Federation(config(method, compression="sparse"))
    federation.play(3)
    saved = federation.learner.checkpoint(1)
    expected = federation.learner.contribute(1, "update", 4, federation.knowledge)
    other = federation.new_learner()
    other.restore(1, saved)
    assert other.contribute(1, "update", 4, federation.knowledge) == expected
    newcomer = federation.new_learner()
    assert newcomer.contribute(1, "update", 4, federation.knowledge).payload != expected.payload
    assert ("CompressionState" in newcomer.client(1).states) == (method == "fedavg")


def test_work_that_is_done_ahead_or_fails_leaves_what_is_owed_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    federation = Federation(config("fedavg", compression="sparse"))
    federation.play(2)
    before = federation.learner.checkpoint(0)
    foreseen = federation.learner.foresee(0, "update", 3, federation.knowledge)
    assert foreseen is not None
    assert federation.learner.checkpoint(0) == before
    expected = federation.new_learner()
    expected.restore(0, before)
    assert foreseen.made == expected.contribute(0, "update", 3, federation.knowledge)
    federation.learner.adopt(0, foreseen)
    assert federation.learner.checkpoint(0) == expected.checkpoint(0)
    after = federation.learner.checkpoint(0)

    def fail(*_: Any, **__: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(federation.learner._contributing._measuring, "trained", fail)
    with pytest.raises(MemoryError):
        federation.learner.contribute(0, "update", 4, federation.knowledge)
    assert federation.learner.checkpoint(0) == after


def test_stochastic_rounding_has_a_stream_of_its_own_for_each_client_and_round() -> None:
    federation = Federation(config("fedavg", compression="int8"))
    federation.play(1)
    learner, known = federation.learner, federation.knowledge
    first = learner.contribute(0, "update", 2, known).payload
    again = federation.new_learner()
    assert again.contribute(0, "update", 2, known).payload == first
    made, phase = again._contributing, again.method.phases[0]
    draws = [made.rounding(again.client(who), phase, number).random() for who, number in ((0, 2), (1, 2), (0, 3))]
    assert len(set(draws)) == 3
    assert draws[0] == made.rounding(again.client(0), phase, 2).random()


@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
def test_a_large_client_goes_on_from_its_files(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its posts and checkpoints are those of a client in memory, also where trainings fail or a process starts anew."""
    for module in ("worker.checkpoint", "compression.packing"):
        monkeypatch.setattr(f"fedchain.learning.{module}.MAPPED_SIZE", 1000)
    federation = Federation(config(method, compression="sparse"))
    stores = Stores(spools=SpoolFolder(tmp_path / "spool", size_min=1000))

    def new_learner() -> Learner:
        return Learner(federation.config, members=federation.members, stores=stores)

    def remembered(learner: Learner) -> torch.Tensor:
        client = learner.client(0)
        if method == "fedavg":
            return client.state(CompressionState).residuals["update"]
        control = client.state(ScaffoldState).control
        assert control is not None
        return control

    def fail(*_: Any, **__: Any) -> None:
        raise MemoryError

    learner = new_learner()
    for number in (1, 2, 3, 4):
        known = federation.knowledge
        before = learner.checkpoint(0)
        with monkeypatch.context() as patch:
            patch.setattr(learner._contributing._measuring, "trained", fail)
            with pytest.raises(MemoryError):
                learner.contribute(0, "update", number, known)
        assert learner.checkpoint(0)[:] == before[:]
        if number == 3:
            learner = new_learner()
            learner.restore(0, before)
            assert file_of(remembered(learner)) is not None, "it is read where the last process left it"
        payload = learner.contribute(0, "update", number, known).payload
        in_memory = federation.new_learner()
        in_memory.restore(0, federation.learner.checkpoint(0))
        assert payload[:] == in_memory.contribute(0, "update", number, known).payload
        federation.play()
        assert learner.checkpoint(0)[:] == federation.learner.checkpoint(0)
        if method == "scaffold" or number > 1:
            assert file_of(remembered(learner)) is not None
            assert file_of(remembered(federation.learner)) is None


def test_what_a_large_client_owes_is_never_in_memory_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = {f"model.{number:02}": (256, 256) for number in range(24)}
    size, specs = 4 * 256**2, tuple(TensorSpec(name, shape) for name, shape in shapes.items())
    monkeypatch.setattr("fedchain.learning.compression.packing.MAPPED_SIZE", size)
    packing = find_packing(FedAvg(compression="sparse"), describe_model("digits-mlp"), specs, specs)
    assert packing is not None
    drawn = np.random.default_rng(1).standard_normal((2, 256, 256), dtype=np.float32)
    known, posted = dict.fromkeys(shapes, drawn[0]), dict.fromkeys(shapes, drawn[1])
    client, generator, spools = new_client(), np.random.default_rng(0), SpoolFolder(tmp_path, size_min=2**16)
    for _ in range(2):
        tracemalloc.start()
        try:
            compress(client, "update", packing, posted, Round(2, known), generator, spools)
            most = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert most < 12 * size, f"{most / size:.1f} tensors of a model of 24"
    assert client.state(CompressionState).residuals["update"].shape == (24 * 256**2,)
