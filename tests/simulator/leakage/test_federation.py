"""A federation of one's own, of which clients hold a handful of examples."""

from dataclasses import replace
from typing import Any

import pytest

from fedchain.chain.roster import Roster
from fedchain.chain.state import genesis_state
from fedchain.simulator.founding import found_federation, simulation_keys
from fedchain.simulator.leakage.federation import Federation, Handful
from tests.support.simulator.leaking import SCENARIO
from tests.support.simulator.leaking import chains as chains


def test_a_handful_is_the_first_few_of_each_class() -> None:
    federation = Federation(SCENARIO, lambda source: Handful(source, 2, of_each_class=True, clients=(0,)))
    histogram = federation.learner.histogram()
    assert histogram[0].tolist() == [2] * 10
    assert histogram[1].sum() == 721, "the other client keeps all"
    with federation.learner.lend(0, 1) as client:
        assert len(client.train_images) == len(client.train_labels) == 20


@pytest.mark.parametrize("aggregator", ["fixed", "rotating", "dedicated"])
def test_the_aggregator_is_the_one_that_a_chain_has(aggregator: Any) -> None:
    scenario = replace(SCENARIO, peers=3, centralized=True, aggregator=aggregator)
    federation = Federation(scenario)
    keys = simulation_keys(scenario)
    roster: Roster = genesis_state(found_federation(scenario, federation.rules, keys)).roster
    for number in range(1, 5):
        assert roster.aggregator_of(number) == keys[federation._aggregator_of(number)].public_key
