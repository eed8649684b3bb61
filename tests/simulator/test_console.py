"""A simulation says beforehand what may not be expected."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.executors.workers import WorkerDiedError
from fedchain.learning.methods.fedavg import FedAvg
from fedchain.learning.worker.learner import Learner
from fedchain.simulator.console import cautions, draw_scenario, run_scenario
from fedchain.simulator.report import RunFolder
from fedchain.simulator.run import load_learner
from fedchain.simulator.scenario import Scenario
from tests.support.simulator.trivial import trivial_scenario

SMALL = "tests.support.learning.small_keys:SmallKey"
FEDAVG = {"gradient_noise": 4.0, "local_epochs": 1}
FEDPH = {"noise": "local", "noise_multiplier": 4.0, "gradient_noise": 8.0}
DFPL = {"prototype_noise": 4.0, "gradient_noise": 8.0, "local_epochs": 1}


@pytest.mark.parametrize(
    ("method", "settings", "rounds", "said"),
    [
        ("fedph", FEDPH | {"epsilon_budget": 1.6}, 2, "1.6 lasts for 1 of 2 rounds"),
        ("fedph", FEDPH | {"epsilon_budget": 6.0}, 10, ""),
        ("fedph", {"noise": "local"}, 10, "noise on prototypes alone has no epsilon"),
        (f"{SMALL}FedPh", {"encryption": "threshold"}, 10, "each round opens sums of its own"),
        ("dfpl", DFPL | {"epsilon_budget": 3.0}, 100, "3 lasts for 4 of 100 rounds"),
        ("dfpl", DFPL | {"local_epochs": 0, "epsilon_budget": 3.0}, 100, ""),
        ("dfpl", DFPL, 100, ""),
        ("dfpl", {"prototype_noise": 4.0}, 100, "noise on prototypes alone has no epsilon"),
        ("fedavg", FEDAVG | {"epsilon_budget": 3.0}, 100, "3 lasts for 2 of 100 rounds"),
        ("fedavg", {}, 100, ""),
    ],
)
def test_what_may_not_be_expected_is_said_beforehand(
    method: str, settings: dict[str, float | str], rounds: int, said: str
) -> None:
    scenario = Scenario(method=method, peers=3, rounds=rounds, hyperparameters=settings)
    found = cautions(load_learner(scenario), scenario)
    assert len(found) == bool(said)
    assert said in "".join(found)


@dataclass(frozen=True, kw_only=True)
class Wordless(FedAvg):
    """A method of a user's own that fails where it is asked for cautions."""

    def cautions(self, rounds: int | None) -> Sequence[str]:
        raise ValueError("no words")


def test_an_own_method_that_fails_where_it_is_asked_for_cautions_is_told_in_one_line() -> None:
    scenario = Scenario(method=f"{__name__}:Wordless", peers=3, rounds=1)
    with pytest.raises(ConfigurationError, match=r"^Wordless.cautions: ValueError: no words \(.*, line \d+\)$"):
        cautions(load_learner(scenario), scenario)


@pytest.mark.parametrize(("error", "is_said"), [(WorkerDiedError("killed"), True), (ConfigurationError("no"), False)])
def test_a_run_that_may_go_on_says_how(
    error: Exception, is_said: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training process that was killed, perhaps for want of memory, need not be killed again."""

    def ended(*given: object, **named: object) -> None:
        raise error

    monkeypatch.setattr("fedchain.simulator.console.run_in_folder", ended)
    with pytest.raises(type(error)):
        run_scenario(trivial_scenario(), tmp_path / "run")
    assert ("go on: fedchain simulate --resume --out" in capsys.readouterr().out) == is_said


def test_a_run_that_ends_while_its_data_are_hashed_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(learner: Learner) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(Learner, "hash_own", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run_scenario(trivial_scenario(), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_that_closed_no_round_is_shown_as_such(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenario = trivial_scenario()
    RunFolder(tmp_path / "run", scenario).open_record({}, is_resumed=False).close()
    draw_scenario(scenario, tmp_path / "run")
    assert f"0 of {scenario.rounds} rounds; pictures are in" in capsys.readouterr().out


def test_a_class_that_no_peer_holds_is_said_before_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_scenario(
        Scenario(method="fedavg", peers=1, rounds=1, workers=1, classes_avg=3, classes_std=0), tmp_path / "run"
    )
    assert re.search(r"(?m)^no peer holds class(es)? \d", capsys.readouterr().out)


def test_a_task_that_is_missing_is_missed_before_anything_is_prepared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigurationError, match=r"task nowhere\.py:load: there is no file nowhere\.py"):
        run_scenario(trivial_scenario(dataset="own", task="nowhere.py:load"), tmp_path / "run")
    assert "preparing" not in capsys.readouterr().out
    assert not (tmp_path / "run").exists()
