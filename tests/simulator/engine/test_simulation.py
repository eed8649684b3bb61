"""A run ends when it is over, or when its time is."""

import pytest

from fedchain.simulator.disturbances import Fault
from fedchain.simulator.scenario import ScenarioError
from tests.support.simulator.trivial import trivial_scenario, trivial_simulation


@pytest.mark.parametrize("allowed_s", [1.0, 2.5])
def test_a_run_ends_at_the_moment_that_its_scenario_names(allowed_s: float) -> None:
    simulation = trivial_simulation(trivial_scenario(rounds=1_000, max_virtual_s=allowed_s))
    with pytest.raises(ScenarioError, match=f"max_virtual_s allows {allowed_s:g}$"):
        simulation.run()
    assert simulation.progress.virtual_s == allowed_s


def test_a_run_whose_last_round_some_peers_did_not_close_says_so() -> None:
    cut = Fault(at_s=1.0, kind="partition", peers=(3,))
    simulation = trivial_simulation(trivial_scenario(rounds=2, faults=(cut,), max_virtual_s=400.0))
    message = "some peers had not closed the last round, 2, after 400 virtual s; max_virtual_s allows 400"
    with pytest.raises(ScenarioError, match=f"^{message}$"):
        simulation.run()
