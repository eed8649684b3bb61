"""Behaviours by name, and their parameters."""

import pytest

from fedchain.simulator.adversaries.registry import BEHAVIOURS, find_behaviour, validate_parameters
from fedchain.simulator.scenario import ScenarioError, load_scenario


@pytest.mark.parametrize(
    ("behaviour", "parameters", "said"),
    [
        ("crash-loop", {"up_s": 0.0}, "adversaries[0]: up_s of crash-loop is 0.0, it must be between 1 and 1e+09"),
        ("clock-liar", {"offset_s": float("nan")}, "adversaries[0]: offset_s of clock-liar is nan, it must be between"),
        ("sign-flipper", {"scale": float("inf")}, "adversaries[0]: scale of sign-flipper is inf, it must be between"),
        ("crash-loop", {"zzz": 1.0}, "adversaries[0]: crash-loop has no parameter 'zzz'; known are: up_s"),
        ("silent", {"zzz": 1.0}, "adversaries[0]: silent has no parameter 'zzz'; known are: none"),
    ],
)
def test_parameters_of_a_behaviour_are_its_own_and_possible(
    behaviour: str, parameters: dict[str, float], said: str
) -> None:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(None, {"adversaries": [{"behaviour": behaviour, "peers": [3], "parameters": parameters}]})
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_every_parameter_has_a_default_within_its_bounds(behaviour: str) -> None:
    known = find_behaviour(behaviour).PARAMETERS
    validate_parameters(behaviour, {name: parameter.default for name, parameter in known.items()})
