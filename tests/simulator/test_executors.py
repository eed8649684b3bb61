"""Where clients train: a run finds its executor by name, takes the user's own, and says what is missing."""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from typer.testing import CliRunner

import fedchain
from fedchain.cli.main import app
from fedchain.learning.client import Client
from fedchain.learning.config import OWN, LearningConfig
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.executors.inline import InlineExecutor
from fedchain.learning.executors.remote import RemoteExecutor
from fedchain.learning.executors.remote_training import RemoteTraining
from fedchain.learning.methods.fedavg import FedAvg
from fedchain.learning.models.parameters import load_parameters
from fedchain.learning.round import Round
from fedchain.learning.worker.plan import LearnerPlan
from fedchain.simulator.choices import Training
from fedchain.simulator.disturbances import MemberChange
from fedchain.simulator.executors import open_backend
from fedchain.simulator.run import load_learner
from fedchain.simulator.scenario import Scenario, ScenarioError
from tests.support.learning.workers import WorkersHere
from tests.support.simulator.relayed import SCENARIO as BULK

SMALL: dict[str, Any] = {"method": "fedavg", "peers": 3, "rounds": 2, "keep_models": False}


def test_a_user_s_own_executor_trains() -> None:
    built: list[LearnerPlan] = []

    def build(plan: LearnerPlan) -> InlineExecutor:
        built.append(plan)
        return InlineExecutor(plan)

    found = fedchain.simulate(**SMALL, executor=build)
    assert found.trace_hash == fedchain.simulate(**SMALL).trace_hash
    assert found.trace_hash == fedchain.simulate(**SMALL, executor=None).trace_hash, "as of every argument"
    assert len(built) == 1


@dataclass(frozen=True, kw_only=True)
class Longer(FedAvg):
    """Members may change how long they train."""

    amendable: ClassVar[frozenset[str]] = frozenset({"local_steps"})


def test_steps_that_members_have_changed_take_their_time_wherever_clients_train() -> None:
    longer = MemberChange(round=1, kind="amend", values={"local_steps": 6})
    scenario = Scenario(method=f"{__file__}:Longer", peers=3, rounds=4, iteration_s=1.0, changes=(longer,))
    scenario = replace(scenario, hyperparameters={"local_steps": 2}, test_every=0)
    found = [
        fedchain.simulate(scenario=scenario, executor=executor, keep_models=False)
        for executor in ("processes", InlineExecutor)
    ]
    assert [row.training_s for row in found[0].rounds] == [2.0, 2.0, 2.0, 6.0]
    assert found[0].trace_hash == found[1].trace_hash


@dataclass(frozen=True, kw_only=True)
class Fading(FedAvg):
    """Members may change how much of the common model they take."""

    amendable: ClassVar[frozenset[str]] = frozenset({"share"})
    share: float = 1.0

    def receive(self, client: Client, round: Round) -> None:
        known = round.knowledge
        if known is not None:
            load_parameters(client.model, {name: known[name] * np.float32(self.share) for name in known})


@pytest.mark.long
def test_the_last_model_is_measured_with_what_members_have_changed_wherever_clients_train(tmp_path: Path) -> None:
    """Neither who has trained in the last round nor an interruption behind it makes a difference."""
    none = MemberChange(round=1, kind="amend", values={"share": 0.0})
    scenario = Scenario(method=f"{__file__}:Fading", peers=4, rounds=4, contributors_per_round=1, changes=(none,))
    scenario = replace(scenario, hyperparameters={"local_steps": 2}, committee_size=3, test_every=0)

    def measured(workers: int, **given: Any) -> float | None:
        run = fedchain.simulate(scenario=scenario, keep_models=False, workers=workers, **given)
        return run.rounds[-1].tal_received

    def interrupt(row: fedchain.RoundRecord) -> None:
        if row.round == scenario.rounds:
            raise KeyboardInterrupt

    expected = measured(1)
    assert expected == pytest.approx(math.log(10)), "all classes are the same to a model of zeros"
    assert measured(3) == measured(1, executor=InlineExecutor) == expected
    with pytest.raises(KeyboardInterrupt):
        measured(1, out=tmp_path / "run", on_round=interrupt)
    assert measured(1, out=tmp_path / "run", resume=True) == expected


@cache
def plain_trace() -> str:
    """The trace of the run whose contents are parts, with an executor of this machine."""
    return fedchain.simulate(scenario=BULK, keep_models=False).trace_hash


def test_a_user_s_own_executor_writes_parts_where_the_plan_says() -> None:
    found = fedchain.simulate(scenario=BULK, executor=InlineExecutor, keep_models=False)
    assert found.trace_hash == plain_trace()


def elsewhere(opened: list[WorkersHere], plan: LearnerPlan) -> RemoteExecutor:
    opened.append(WorkersHere(partial(RemoteTraining, plan.encode(), None)))
    return RemoteExecutor(plan, opened[-1])


def test_clients_and_their_parts_move_when_a_worker_is_lost() -> None:
    opened: list[WorkersHere] = []

    def lose(row: fedchain.RoundRecord) -> None:
        opened[0].kill(row.round % 2)

    found = fedchain.simulate(scenario=BULK, executor=partial(elsewhere, opened), on_round=lose, keep_models=False)
    assert found.trace_hash == plain_trace()
    assert opened[0].room < 9, "some were replaced"


def test_a_run_that_was_interrupted_elsewhere_goes_on_here(tmp_path: Path) -> None:
    chosen: dict[str, Any] = {**SMALL, "method": "scaffold", "rounds": 3}

    def interrupt(row: fedchain.RoundRecord) -> None:
        if row.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedchain.simulate(**chosen, executor=partial(elsewhere, []), on_round=interrupt, out=tmp_path / "run")
    found = fedchain.simulate(**chosen, out=tmp_path / "run", resume=True)
    assert found.trace_hash == fedchain.simulate(**chosen).trace_hash


@pytest.mark.parametrize("name", ["rays", "process", ""])
def test_an_unknown_executor_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="must be processes, ray, or ray:ADDRESS"):
        fedchain.simulate(**SMALL, executor=name or "Processes")
    with pytest.raises(ScenarioError, match="executor is 3, it must be processes"):
        fedchain.simulate(**SMALL, executor=3)  # type: ignore[arg-type]
    for command in ("simulate", "reproduce dfpl-fig4", "compare --methods dfpl"):
        words = [*command.split(), "--executor", name or "Processes", "--out", str(tmp_path / "run")]
        said = CliRunner().invoke(app, words)
        assert said.exit_code == 2
        assert "must be processes, ray, or ray:ADDRESS" in said.stderr
    assert not (tmp_path / "run").exists()


def test_ray_is_asked_for_where_it_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "fedchain.learning.executors.on_ray", raising=False)
    with pytest.raises(ConfigurationError, match=r"pip install 'fedchain\[ray\]'"):
        fedchain.simulate(**SMALL, executor="ray")
    for command in ("simulate", "reproduce dfpl-fig4", "compare --methods dfpl"):  # before there is any work
        said = CliRunner().invoke(app, [*command.split(), "--executor", "ray:auto", "--out", str(tmp_path / "run")])
        assert (said.exit_code, said.stdout) == (2, "")
        assert said.stderr == "fedchain: the executor ray needs Ray: pip install 'fedchain[ray]'\n"
    assert list(tmp_path.iterdir()) == []


def test_a_task_that_no_name_leads_to_stays_on_this_machine() -> None:
    plan = LearnerPlan(config=LearningConfig(dataset=OWN))
    nothing: Any = SimpleNamespace()
    with pytest.raises(ConfigurationError, match="no name leads to"):
        open_backend(Training("ray"), plan, Scenario(), nothing)


@pytest.mark.parametrize(
    ("device", "present", "trained_on"),
    [("cpu", 1, "cpu"), ("auto", 0, "cpu"), ("auto", 1, "cuda"), ("cuda:1", 2, "cuda")],
)
def test_each_of_ray_s_workers_gets_a_card_where_the_run_trains_on_one(
    device: str, present: int, trained_on: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[tuple[RemoteTraining, bool]] = []

    def workers(build: Callable[[], RemoteTraining], count: int, address: str, *, cards: bool) -> WorkersHere:
        opened.append((build(), cards))
        return WorkersHere(build, count)

    module: Any = SimpleNamespace(RayWorkers=workers)
    monkeypatch.setitem(sys.modules, "fedchain.learning.executors.on_ray", module)
    monkeypatch.setattr("torch.cuda.device_count", lambda: present)
    scenario = Scenario(method="fedavg", peers=2, device=device)
    learner = load_learner(scenario)
    open_backend(Training("ray"), learner.plan, scenario, learner.source).close()
    ((work, cards),) = opened
    assert cards == (trained_on == "cuda")
    assert LearnerPlan.decode(work._plan).device == trained_on, "a worker sees no other card than its own"
    work.close()
