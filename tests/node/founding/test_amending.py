"""Values of amendments by the names that people use, and the rules in force as a task."""

from datetime import date
from typing import Any

import pytest

from fedchain.chain.membership.amendment import NO_AMENDMENTS, Amendments
from fedchain.chain.membership.in_force import rules_of
from fedchain.learning.exceptions import ConfigurationError
from fedchain.node.founding.amending import amended_values, expect_of_use
from fedchain.node.founding.task import learning_from_genesis
from tests.support.chain.changes import living_genesis

FEDAVG = living_genesis(5, learning=(("clients", "9"), ("hyperparameters", "[]"), ("method", '"fedavg"')))
RATE = "hyperparameters.learning_rate"


def test_names_lead_to_the_chain_s_values_and_the_method_s() -> None:
    assert amended_values(FEDAVG, {"rounds": 9, "learning_rate": 0.05}) == {"rounds": 9, RATE: "0.05"}
    assert amended_values(FEDAVG, {"admission": "sponsors", "sponsors": 2}) == {"admission": "sponsors", "sponsors": 2}


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ({"members": 3}, "members cannot be amended, these can: admission, aggregator, .*, learning_rate"),
        ({"rounds": 1.5}, "rounds is 1.5, it must be a whole number of 0 or more"),
        ({"rounds": True}, "rounds is True"),
        ({"rounds": 2**64}, f"rounds is {2**64}, it must be at most {2**64 - 1}"),
        ({"learning_rate": date(2020, 1, 1)}, "learning_rate is 2020-01-01, which is no value of a parameter"),
        ({"learning_rate": 10**65}, "learning_rate has more than 64 characters"),
    ],
)
def test_other_names_and_values_are_refused(named: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        amended_values(FEDAVG, named)


def test_a_member_s_program_looks_at_hyper_parameters_alone() -> None:
    expect_of_use(FEDAVG, NO_AMENDMENTS, [("rounds", 0), (RATE, "0.5")])
    with pytest.raises(ConfigurationError, match="learning_rate"):
        expect_of_use(FEDAVG, NO_AMENDMENTS, [(RATE, "-1")])
    with pytest.raises(ConfigurationError, match="momentum of fedavg cannot be amended"):
        expect_of_use(FEDAVG, Amendments((("hyperparameters.momentum", "0.5"),)), [(RATE, "0.5")])


def test_the_task_of_the_rules_in_force_has_the_values_in_force() -> None:
    rules = rules_of(FEDAVG, ((RATE, "0.05"), ("rounds", 9)))
    assert dict(learning_from_genesis(rules).hyperparameters)["learning_rate"] == 0.05
    assert "learning_rate" not in dict(learning_from_genesis(FEDAVG).hyperparameters)
