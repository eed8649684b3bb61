"""Training in a simulation: what a run makes of faults, of limits, and of the models that are left."""

import json
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedchain
from fedchain.chain.storage.sqlite import Store
from fedchain.crypto.hashing import sha256
from fedchain.learning.client import Client
from fedchain.learning.exceptions import ConfigurationError, OwnCodeFailed, TrainingDiverged
from fedchain.learning.method import Phase
from fedchain.learning.methods.blade_fl import BladeFl
from fedchain.learning.models.weights import hash_file
from fedchain.learning.round import ReadPost, Round, Tensors
from fedchain.learning.training.evaluation import evaluate
from fedchain.learning.worker.checkpoint import state_pieces
from fedchain.learning.worker.model_file import read_model
from fedchain.simulator.disturbances import MemberChange
from fedchain.simulator.engine.measurement import RoundMetrics
from fedchain.simulator.run import load_learner, model_path, simulate
from fedchain.simulator.scenario import Scenario


@dataclass(frozen=True, kw_only=True)
class Faulty(BladeFl):
    """A method of a user's own that has a fault."""

    fault: str = "update"

    def update(self, client: Client, round: Round) -> Tensors:
        if self.fault == "update":
            raise RuntimeError("boom")
        posted = BladeFl.update(self, client, round)
        return {**posted, "wide": np.zeros(3)} if self.fault == "type" else posted

    def aggregate(self, phase: Phase, round: Round) -> Tensors:
        if self.fault == "value":
            raise ValueError("boom")
        return dict[str, Tensors]()["missing"] if self.fault == "aggregate" else BladeFl.aggregate(self, phase, round)

    def check(self, phase: Phase, post: ReadPost, round: Round) -> None:
        if self.fault == "check":
            raise RuntimeError("boom")
        if self.fault == "refusal":
            raise ValueError("too good to be true")
        if self.fault == "exit":
            sys.exit("enough")


def test_a_run_goes_on_from_the_model_that_another_one_left(tmp_path: Path) -> None:
    first = fedchain.simulate("fedavg", peers=3, rounds=2, hyperparameters={"local_steps": 10})
    path = tmp_path / "common.safetensors"
    path.write_bytes(b"".join(state_pieces(first.state())))
    settings: dict[str, Any] = {"weights": str(path), "hyperparameters": {"local_steps": 1}}
    second = fedchain.simulate("fedavg", peers=3, rounds=1, out=tmp_path / "second", **settings)
    with fedchain.open_chain(tmp_path / "second") as chain:
        genesis = chain.genesis
    agreed = {name: json.loads(text) for name, text in genesis.learning}
    assert agreed["weights_hash"] == hash_file(path)
    assert "weights" not in agreed, "each member's path is its own"
    begun, went_on = first.rounds[0].taa, second.rounds[0].taa
    assert begun is not None
    assert went_on is not None
    assert went_on > begun + 0.1
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ConfigurationError, match="no sound safetensors file"):
        fedchain.simulate("fedavg", peers=3, rounds=1, **settings)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("update", r"peer \d: RuntimeError: boom \(.*test_training.py, line \d+\)"),
        ("type", r"wide of peer \d's post of phase update must be an array of float32, .*, not float64"),
        ("value", r"aggregate of phase update: ValueError: boom \(.*test_training.py, line \d+\)"),
        ("check", r"check of phase update: RuntimeError: boom \(.*test_training.py, line \d+\)"),
        ("exit", r"check of phase update: SystemExit: enough \(.*test_training.py, line \d+\)"),
        ("aggregate", r"aggregate of phase update: KeyError: 'missing' \(.*test_training.py, line \d+\)"),
        ("refusal", r"peer \d, round 1: all others would refuse its post: content: too good to be true"),
    ],
)
def test_a_fault_of_a_user_s_own_method_is_one_line_with_its_place(
    monkeypatch: pytest.MonkeyPatch, fault: str, message: str
) -> None:
    monkeypatch.setitem(sys.modules, "contributed", sys.modules[__name__])
    chosen = Scenario(method="contributed:Faulty", hyperparameters={"fault": fault}, peers=3, rounds=1)
    with pytest.raises(OwnCodeFailed) as caught:
        simulate(chosen, load_learner(chosen))
    assert re.fullmatch(message, str(caught.value))
    notes = "".join(getattr(caught.value, "__notes__", ()))
    has_place = fault not in ("type", "refusal")
    assert ("Traceback" in notes) == has_place, "where it was, a process that is gone cannot show"


def scenario(**changes: object) -> Scenario:
    values = {"peers": 8, "rounds": 2, "contributors_per_round": 3, "committee_size": 3, "idle_sleep": True}
    return Scenario(method="scaffold", hyperparameters={"local_steps": 2}, **values | changes)  # type: ignore[arg-type]


def test_sleeping_peers_train_the_same_whatever_is_set_aside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    free = simulate(scenario(), load_learner(scenario()))
    monkeypatch.setattr("fedchain.learning.executors.processes.CLIENTS_SIZE_MAX", 1)
    monkeypatch.setattr("fedchain.learning.executors.last_answers.PAYLOADS_SIZE_MAX", 1)
    bound = simulate(scenario(), load_learner(scenario()))
    assert bound.trace_hash == free.trace_hash
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("method", ["dfpl", "fedavg"])
def test_final_models_are_those_that_were_measured(method: str, tmp_path: Path) -> None:
    chosen = Scenario(method=method, hyperparameters={"local_steps": 2}, peers=3, rounds=2, mining_attempts=8)
    learner = load_learner(chosen)
    outcome = simulate(chosen, learner, models_folder=tmp_path / "models")
    accuracies = []
    for member in range(3):
        with learner.lend(member, 1) as client:
            client.model.load_state_dict(read_model(model_path(tmp_path / "models", member).read_bytes()), strict=True)
            accuracies.append(evaluate(client.model, client.test_images, client.test_labels)[0])
    assert outcome.rows[-1].taa == pytest.approx(sum(accuracies) / 3, rel=1e-14)  # summed in another order
    assert sha256(outcome.knowledge).hex() == outcome.knowledge_root


def test_the_last_model_is_measured_by_members_that_count_as_all_others_are() -> None:
    """A member that is away is up, and trains on none."""
    away = MemberChange(round=1, kind="away", peers=(4,))
    settings: dict[str, Any] = {"peers": 5, "rounds": 4, "mining_attempts": 8, "admission": "quorum"}
    chosen = Scenario(method="fedavg", hyperparameters={"local_steps": 2}, changes=(away,), **settings)
    rows = simulate(chosen, load_learner(chosen)).rows
    assert [(row.members, row.receivers) for row in rows] == [(5, 5), (5, 5), (5, 4), (4, 4)]


@dataclass(frozen=True, kw_only=True)
class Breaking(BladeFl):
    """The second round of all but peer 0 leaves the finite numbers: too few are left for a block."""

    def update(self, client: Client, round: Round) -> Tensors:
        posted = BladeFl.update(self, client, round)
        return {**posted, "model.fc3.bias": np.full(10, np.inf, np.float32)} if self._breaks(client, round) else posted

    def _breaks(self, client: Client, round: Round) -> bool:
        return client.index > 0 and round.number == 2


def test_training_that_diverges_ends_the_run_and_keeps_what_came_before(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "contributed", sys.modules[__name__])
    chosen = Scenario(method="contributed:Breaking", peers=3, rounds=3, mining_attempts=8)
    rows: list[RoundMetrics] = []
    with pytest.raises(TrainingDiverged, match=r"^peer [12], round 2: .*; try a smaller"):
        simulate(chosen, load_learner(chosen), rows.append, tmp_path / "chain")
    assert [row.round for row in rows] == [1]
    store = Store.open(tmp_path / "chain")
    try:
        final = store.head()
        assert final is not None
        assert final.block.header.height >= rows[0].height
    finally:
        store.close()


def test_an_interrupted_simulation_leaves_no_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    seen: list[int] = []

    def interrupt(row: RoundMetrics) -> None:
        seen.append(len(list(tmp_path.iterdir())))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(scenario(), load_learner(scenario()), interrupt)
    assert seen[0] > 0, "there were files"
    assert list(tmp_path.iterdir()) == []
