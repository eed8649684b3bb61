"""What a run says before it starts."""

import pytest

from fedchain.simulator.run import early_end, late_phase, load_learner
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


@pytest.mark.parametrize(
    ("method", "settings", "rounds", "said"),
    [
        ("fedph", {"noise": "local", "epsilon": 1.0, "epsilon_budget": 1.2}, 2, "1.2 lasts for 1 of 2 rounds"),
        ("fedph", {"noise": "local", "epsilon": 1.0, "epsilon_budget": 4.0}, 10, ""),
        ("dfpl", {"prototype_noise": 4.0, "epsilon_budget": 3.0}, 100, "3 lasts for 8 of 100 rounds"),
        ("dfpl", {"prototype_noise": 4.0}, 100, ""),
        ("fedavg", {}, 100, ""),
    ],
)
def test_a_budget_that_ends_before_the_run_is_named(
    method: str, settings: dict[str, float | str], rounds: int, said: str
) -> None:
    scenario = Scenario(method=method, peers=2, rounds=rounds, hyperparameters=settings)
    found = early_end(load_learner(scenario), scenario)
    assert said in found
    assert bool(found) == bool(said)
