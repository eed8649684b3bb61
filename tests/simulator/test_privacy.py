"""Noise in a simulation: its own seed, its cost in the rows, and an end where budgets end."""

import pytest

from fedchain.learning.exceptions import ReleaseRefused
from fedchain.learning.privacy.releases import Release, total_epsilon
from fedchain.simulator.console import cautions
from fedchain.simulator.engine.outcome import Outcome
from fedchain.simulator.report import PRIVATE_RANDOMNESS, result_of
from fedchain.simulator.reproduction.experiment import key_of
from fedchain.simulator.run import load_learner, simulate, simulated_secrets
from fedchain.simulator.scenario import Scenario, scenario_from_dict


def scenario(budget: float = 0.0, gradient_noise: float = 12.0, **values: object) -> Scenario:
    noise = {"prototype_noise": 6.0, "gradient_noise": gradient_noise, "epsilon_budget": budget}
    hyperparameters = noise | {"local_steps": 2, "batch_size": 512}
    small = {"peers": 3, "rounds": 2, "workers": 1, "mining_attempts": 8, "test_every": 0}
    return scenario_from_dict(small | {"hyperparameters": hyperparameters} | values)


def run(chosen: Scenario) -> Outcome:
    return simulate(chosen, load_learner(chosen))


def test_rows_say_what_all_rounds_have_cost_so_far() -> None:
    outcome = run(scenario())
    of_round = [Release("prototypes", 6.0, 1.0), Release("gradients", 12.0, 2.0, 2)]
    spent = [total_epsilon(of_round * rounds, 1e-5) for rounds in (1, 2)]
    assert [row.epsilon for row in outcome.rows] == pytest.approx(spent)
    result = result_of(outcome)
    assert (result["epsilon"], result["private_randomness"]) == (outcome.rows[1].epsilon, PRIVATE_RANDOMNESS)
    other = run(scenario(private_seed=1, hyperparameters={"local_steps": 2}, rounds=1))
    assert "epsilon" not in result_of(other)
    assert run(scenario(private_seed=1)).tip != outcome.tip


def test_noise_on_prototypes_alone_is_called_no_epsilon_anywhere() -> None:
    chosen = scenario(gradient_noise=0.0, rounds=1)
    (caution,) = cautions(load_learner(chosen), chosen)
    assert caution.startswith("noise on prototypes alone has no epsilon: the model that makes them was trained on")
    outcome = run(chosen)
    assert [row.epsilon for row in outcome.rows] == [None]
    assert "epsilon" not in result_of(outcome)


def test_spent_budgets_end_the_run_with_a_name() -> None:
    with pytest.raises(ReleaseRefused, match=r"member \d, round 2: its total epsilon would be .*, the budget is 1\.2 "):
        run(scenario(budget=1.2))


def test_secrets_follow_from_the_private_seed_and_results_from_before_keep_their_names() -> None:
    first, second = scenario(), scenario(private_seed=1)
    assert simulated_secrets(0, first.seed, (), 0) == simulated_secrets(0, scenario().seed, (), 0)
    seeds = [(one.private_seed, one.seed) for one in (first, second)]
    roots = {simulated_secrets(*both, (), member).root for both in seeds for member in (0, 1)}
    assert len(roots) == 4
    assert key_of(first) != key_of(second)
