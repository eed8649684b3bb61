"""Warnings of a run before it starts."""

import pytest

from fedchain.simulator.console import cautions, late_phase
from fedchain.simulator.run import load_learner
from fedchain.simulator.scenario import Scenario


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
