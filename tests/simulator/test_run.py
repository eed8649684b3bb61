"""A run is looked at before it begins."""

import pytest

from fedchain.simulator.console import late_phase
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
