"""Settings of an attack: every number has a range, and a refusal names it."""

from dataclasses import fields

import pytest

from fedchain.files.tables import build
from fedchain.simulator.leakage.settings import Inversion
from fedchain.simulator.scenario import ScenarioError

NUMBERS = [item.name for item in fields(Inversion) if type(item.default) in (int, float)]


@pytest.mark.parametrize("name", NUMBERS)
def test_every_number_has_a_range_and_its_default_is_in_it(name: str) -> None:
    build(Inversion, {}, "attack", ScenarioError)
    for value in (-1, 1e12):
        with pytest.raises(ScenarioError, match=rf"^attack {name} is {value}, it must be between "):
            build(Inversion, {name: value}, "attack", ScenarioError)
