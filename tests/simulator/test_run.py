"""A run is looked at before it begins."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedchain.learning.exceptions import ConfigurationError
from fedchain.simulator.console import late_phase
from fedchain.simulator.disturbances import Fault
from fedchain.simulator.run import load_learner, model_path, simulate
from fedchain.simulator.scenario import Scenario
from fedchain.simulator.trained.origins import read_file
from tests.support.learning.devices import needs_card


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, ""),
        ({"iteration_s": 10.0}, "phase encrypt trains for up to "),
        ({"iteration_s": 10.0, "phase_timeout_s": 1_000.0}, ""),
        (
            {"iteration_s": 1.0, "hyperparameters": {"sharing": False, "epochs_max": 40}},
            "phase update trains for up to ",
        ),
    ],
)
def test_a_phase_that_outlasts_its_timeout_is_named(values: dict[str, object], expected: str) -> None:
    scenario = Scenario(method="fededs", model="plain-cnn", peers=2, rounds=1, **values)  # type: ignore[arg-type]
    found = late_phase(scenario, load_learner(scenario))
    assert found.startswith(expected)
    assert bool(found) == bool(expected)
    assert "2 of 2 peers" in found or not expected


def test_a_card_that_is_not_here_is_named_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ConfigurationError, match=r"^device is cuda, but torch .* sees no graphics cards here"):
        load_learner(Scenario(peers=2, device="cuda"))


def test_on_a_card_methods_with_steps_of_their_own_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    message = "^pfedme trains on the processor alone, set device to cpu: its steps are its own$"
    with pytest.raises(ConfigurationError, match=message):
        load_learner(Scenario(method="pfedme", peers=2, device="cuda"))


def test_the_outcome_says_what_auto_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    scenario = Scenario(method="fedavg", peers=2, rounds=1, workers=1, mining_attempts=8, device="auto")
    outcome = simulate(scenario, load_learner(scenario))
    assert outcome.trained_on == {"device": "cpu", "torch": torch.__version__}
    same = simulate(replace(scenario, device="cpu"), load_learner(replace(scenario, device="cpu")))
    assert (same.trained_on, same.trace_hash) == ({}, outcome.trace_hash)


@needs_card
@pytest.mark.parametrize("vectorize_clients", [False, True])
def test_on_a_card_a_run_repeats_its_trace_and_says_what_trained(vectorize_clients: bool) -> None:
    """In processes of their own: one that has opened a card cannot fork others that use it."""
    own = json.dumps({"device": "cuda", "vectorize_clients": vectorize_clients, "model": "digits-mlp"})
    script = (
        "import json, sys; from fedchain.simulator.run import load_learner, simulate\n"
        "from fedchain.simulator.scenario import scenario_from_dict\n"
        "scenario = scenario_from_dict({'peers': 4, 'rounds': 2, 'mining_attempts': 8} | json.loads(sys.argv[1]))\n"
        "outcome = simulate(scenario, load_learner(scenario))\n"
        "print(json.dumps([outcome.trace_hash, outcome.violations, outcome.trained_on, outcome.rows[-1].taa]))"
    )
    first, again = (
        json.loads(subprocess.run([sys.executable, "-c", script, own], check=True, capture_output=True).stdout)
        for _ in range(2)
    )
    assert first == again
    _, violations, trained_on, accuracy = first
    assert violations == []
    assert trained_on["device"] == "cuda:0"
    assert trained_on["card"] != "unknown"
    assert accuracy > 0.2


def test_a_run_imports_nothing_that_is_slow_and_that_it_may_not_need() -> None:
    code = "import sys, fedchain.simulator.console; print({'matplotlib', 'Crypto', 'ray'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize(
    "fault", [Fault(at_s=7, kind="crash", peers=(3,)), Fault(at_s=1, kind="slow", peers=(3,), factor=99)]
)
def test_a_model_is_what_its_file_says_though_the_run_ended_before_it_could_be_posted(
    fault: Fault, tmp_path: Path
) -> None:
    settings = {"local_steps": 4, "batch_size": 8}
    scenario = Scenario(method="solo", peers=4, rounds=2, iteration_s=1, mining_s=0.5, workers=1)
    scenario = replace(scenario, hyperparameters=settings, faults=(fault,), evaluate_every=2)
    learner = load_learner(scenario)
    outcome = simulate(scenario, learner, models_folder=tmp_path)
    assert 3 not in [member.member for member in outcome.members if member.round == 2]
    found = read_file(model_path(tmp_path, 3))
    assert found.origin is not None
    assert found.origin.round == 2
    (measured,) = learner.measure(found.state, 3, [3])
    assert (found.origin.accuracy, found.origin.loss) == (measured.local_accuracy, measured.local_loss)
