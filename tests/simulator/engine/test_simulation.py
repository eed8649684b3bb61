"""A run ends when it is over, or when its time is."""

import pytest

from fedchain.simulator.scenario import ScenarioError
from tests.support.simulator.trivial import trivial_scenario, trivial_simulation


@pytest.mark.parametrize("allowed_s", [1.0, 2.5])
def test_a_run_ends_at_the_moment_that_its_scenario_names(allowed_s: float) -> None:
    simulation = trivial_simulation(trivial_scenario(rounds=1_000, max_virtual_s=allowed_s))
    with pytest.raises(ScenarioError, match=f"max_virtual_s allows {allowed_s:g}$"):
        simulation.run()
    assert simulation.progress.virtual_s == allowed_s
