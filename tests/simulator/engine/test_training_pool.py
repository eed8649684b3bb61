"""The training pool does what a learner in this process does, and says so when it cannot."""

import os
import re
import signal
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from fedchain.chain.storage.sqlite import Store
from fedchain.crypto.hashing import sha256
from fedchain.learning.client import Client
from fedchain.learning.config import LearningConfig
from fedchain.learning.exceptions import InvalidPayload, OwnCodeFailed, TrainingDiverged
from fedchain.learning.method import Phase
from fedchain.learning.methods.blade_fl import BladeFl
from fedchain.learning.round import ReadPost, Round, Tensors
from fedchain.learning.training.evaluation import evaluate
from fedchain.learning.worker.learner import Contribution, Learner
from fedchain.learning.worker.model_file import read_model
from fedchain.simulator.engine.handover import LARGE_SIZE, Handed, Incoming, Outgoing, take_over
from fedchain.simulator.engine.measurement import RoundMetrics
from fedchain.simulator.engine.training_pool import LastContributions, TrainingPool, WorkerDiedError
from fedchain.simulator.run import load_learner, model_path, simulate
from fedchain.simulator.scenario import Scenario

CONFIG = LearningConfig(clients=4, hyperparameters={"local_steps": 2})


@pytest.fixture
def pool() -> Iterator[TrainingPool]:
    learner = Learner(CONFIG)
    learner.histogram()
    pool = TrainingPool(learner, 2)
    yield pool
    pool.close()


def test_the_pool_computes_what_a_learner_computes(pool: TrainingPool) -> None:
    jobs = [pool.contribute(client, "update", 1, b"", evaluate_test=False) for client in range(4)]
    found = [job.result() for job in reversed(jobs)][::-1]
    here = Learner(CONFIG)
    assert found == [here.contribute(client, "update", 1, b"") for client in range(4)]
    planned = [here.planned_steps(client, "update", 1) for client in range(4)]
    assert [pool.planned_steps(client, "update", 1) for client in range(4)] == planned


def test_calls_that_wait_are_computed_together() -> None:
    chosen = replace(CONFIG, method="fedavg", model="logistic")
    learner, here = Learner(chosen), Learner(chosen)
    learner.histogram()
    pool = TrainingPool(learner, 2, together=7)
    try:
        jobs = [pool.contribute(client, "update", 1, b"", evaluate_test=False) for client in range(4)]
        damaged = pool.contribute(1, "update", 2, b"damaged", evaluate_test=False)
        again = pool.contribute(2, "update", 1, b"", evaluate_test=False)
        found = [job.result() for job in jobs]
        expected = {client: here.contribute_together([client, client + 2], "update", 1, b"") for client in (0, 1)}
        assert found == [expected[client % 2][client] for client in range(4)]
        assert again.result() == found[2]
        with pytest.raises(InvalidPayload):
            damaged.result()
    finally:
        pool.close()


def test_a_restarted_peer_gets_the_same_contribution_again(pool: TrainingPool) -> None:
    first, again = (pool.contribute(1, "update", 1, b"", evaluate_test=False).result() for _ in range(2))
    assert first == again
    assert pool.contribute(1, "update", 2, b"", evaluate_test=False).result() != first


def test_an_error_travels_to_whom_it_belongs_and_the_pool_goes_on(pool: TrainingPool) -> None:
    with pytest.raises(InvalidPayload):
        pool.contribute(0, "update", 2, b"damaged", evaluate_test=False).result()
    with pytest.raises(KeyError) as caught:
        pool.contribute(0, "nonsense", 2, b"", evaluate_test=False).result()
    assert "Traceback" in "".join(caught.value.__notes__), "a fault of ours keeps its kind and shows where it was"
    assert pool.contribute(0, "update", 1, b"", evaluate_test=False).result().payload


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


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("update", r"peer \d: RuntimeError: boom \(.*test_training_pool.py, line \d+\)"),
        ("type", r"wide of the post of phase update must be an array of float32, .*, not float64"),
        ("value", r"aggregate of phase update: ValueError: boom \(.*test_training_pool.py, line \d+\)"),
        ("check", r"check of phase update: RuntimeError: boom \(.*test_training_pool.py, line \d+\)"),
        ("aggregate", r"aggregate of phase update: KeyError: 'missing' \(.*test_training_pool.py, line \d+\)"),
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
    assert ("Traceback" in notes) == (fault != "type"), "where it was, a process that is gone cannot show"


def test_a_killed_process_is_noticed(pool: TrainingPool) -> None:
    victim = pool._processes[1].pid
    assert victim is not None
    os.kill(victim, signal.SIGKILL)
    with pytest.raises(WorkerDiedError, match="train-1 ended with exit code -9"):
        pool.contribute(1, "update", 1, b"", evaluate_test=False).result()


def test_clients_are_sticky_and_closing_ends_the_processes(pool: TrainingPool) -> None:
    os.kill(pool._processes[1].pid or 0, signal.SIGKILL)
    assert pool.contribute(0, "update", 1, b"", evaluate_test=False).result().payload
    assert pool.contribute(2, "update", 1, b"", evaluate_test=False).result().payload
    pool.close()
    assert not any(process.is_alive() for process in pool._processes)


def test_a_pool_that_holds_one_client_a_process_computes_the_same() -> None:
    learner = Learner(CONFIG)
    learner.histogram()
    pool, here = TrainingPool(learner, 1, clients_max=1), Learner(CONFIG)
    try:
        for number in (1, 2):
            jobs = [pool.contribute(client, "update", number, b"", evaluate_test=False) for client in range(4)]
            assert [job.result() for job in jobs] == [
                here.contribute(client, "update", number, b"") for client in range(4)
            ]
        assert len(list(Path(pool._folder.name).iterdir())) == 4
    finally:
        pool.close()
    assert not Path(pool._folder.name).exists()


def test_a_last_contribution_is_found_again_in_memory_or_in_a_file(tmp_path: Path) -> None:
    here = Learner(CONFIG)
    first = {client: here.contribute(client, "update", 1, b"") for client in range(4)}
    made = LastContributions(tmp_path, size_max=sum(len(first[client].payload) for client in (2, 3)))
    for client, contribution in first.items():
        made.keep(client, ("update", 1), contribution)
    assert len(list(tmp_path.iterdir())) == 2
    assert {client: _read(made, client) for client in range(4)} == first
    second = here.contribute(0, "update", 2, b"")
    made.keep(0, ("update", 2), second)
    assert (made.has(0, ("update", 1)), made.has(0, ("update", 2)), made.has(9, ("update", 1))) == (False, True, False)
    assert _read(made, 0) == second


def test_a_large_payload_is_handed_over_as_it_was_although_the_next_one_is_made_before_it_is_read(
    tmp_path: Path,
) -> None:
    made = LastContributions(tmp_path, size_max=2**30)
    first, second = (Contribution(bytes([filling]) * LARGE_SIZE, 1, None, None) for filling in (1, 2))
    made.keep(0, ("update", 1), first)
    answer = made.answer(0, 1)
    made.keep(0, ("update", 2), second)
    assert answer.value.payload == b""
    assert answer.payload is not None
    assert take_over(answer.payload) == first.payload
    assert _read(made, 0) == second
    assert [path.name for path in tmp_path.iterdir()] == ["client-0.payload"]


def _read(made: LastContributions, client: int) -> Contribution:
    """The contribution that the other process reads from the answer."""
    answer = made.answer(client, client)
    value: Contribution = answer.value
    return value if answer.payload is None else replace(value, payload=take_over(answer.payload))


def test_a_knowledge_is_one_file_for_all_who_need_it_and_goes_with_the_last_of_them(tmp_path: Path) -> None:
    outgoing, incoming = Outgoing(tmp_path), Incoming()
    first, second = bytes(LARGE_SIZE), bytes([1]) * LARGE_SIZE
    handed = [outgoing.hand(first), outgoing.hand(first)]
    assert handed[0] == handed[1] == Handed(tmp_path / "knowledge-0")
    assert incoming.take(handed[0]) == first
    assert incoming.take(handed[0]) is incoming.take(handed[1])
    later = outgoing.hand(second)
    for one in handed:
        assert (tmp_path / "knowledge-0").exists()
        outgoing.done(one)
    assert [path.name for path in tmp_path.iterdir()] == ["knowledge-1"]
    outgoing.done(later)
    assert incoming.take(outgoing.hand(second)) == second, "it stays for the next client"
    third = outgoing.hand(first)
    assert incoming.take(third) == first
    assert outgoing.hand(b"few bytes") == incoming.take(b"few bytes") == b"few bytes"


def scenario(**changes: object) -> Scenario:
    values = {"peers": 8, "rounds": 2, "contributors_per_round": 3, "committee_size": 3, "idle_sleep": True}
    return Scenario(method="scaffold", hyperparameters={"local_steps": 2}, **values | changes)  # type: ignore[arg-type]


def test_sleeping_peers_train_the_same_whatever_is_set_aside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    free = simulate(scenario(), load_learner(scenario()))
    monkeypatch.setattr("fedchain.simulator.run.CLIENTS_MAX", 1)
    monkeypatch.setattr("fedchain.simulator.engine.training_pool.PAYLOADS_SIZE_MAX", 1)
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
    assert seen == [1]
    assert list(tmp_path.iterdir()) == []
