"""Methods learn on a chain whose members change what plain loops over the members of each round learn."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

import fedchain
from fedchain.learning.application import Application
from fedchain.learning.config import LearningConfig
from fedchain.learning.payload.part_folder import PartMemory
from fedchain.learning.registry import METHODS
from fedchain.learning.round import OffChain
from fedchain.learning.worker.learner import Learner
from fedchain.learning.worker.stores import Stores
from fedchain.node.founding.task import learning_from_genesis
from fedchain.simulator.disturbances import MemberChange
from fedchain.simulator.founding import simulation_keys
from tests.support.learning.federation import SPLITTING, config
from tests.support.learning.living import JOINED, LEAVER, LEFT, NEWCOMER, ROUNDS

FOUNDERS = 4
"""Founders with data. A dedicated aggregator has the place behind theirs, and newcomers have those behind it."""


def changes(newcomer: int) -> tuple[MemberChange, ...]:
    """A member with this place joins, and another one leaves."""
    return MemberChange(round=2, kind="join", peers=(newcomer,)), MemberChange(round=4, kind="leave", peers=(LEAVER,))


SAID = ("model", "shots", "test_shots", "train_examples")
"""Fields of a task that are those of a scenario."""

IN_CI = ("fedavg", "dfpl", "scaffold")


@pytest.mark.long
@pytest.mark.parametrize(
    "method", [pytest.param(name, marks=() if name in IN_CI else pytest.mark.slow) for name in sorted(METHODS)]
)
def test_a_chain_learns_what_a_plain_loop_over_its_members_does(method: str) -> None:
    task = config(method)
    said: dict[str, Any] = {name: getattr(task, name) for name in SAID}
    places = {who: who + (method in SPLITTING and who >= FOUNDERS) for who in range(FOUNDERS + 1)}
    run = fedchain.simulate(
        method,
        changes=changes(places[NEWCOMER]),
        peers=FOUNDERS,
        rounds=ROUNDS,
        admission="quorum",
        test_every=0,
        evaluate_every=0,
        keep_models=False,
        hyperparameters=dict(task.hyperparameters),
        **said,
    )
    assert run.violations == ()
    agreed, rules = learning_from_genesis(run.chain.genesis), run.chain.rules
    keys = [key.public_key for key in simulation_keys(run.scenario)]
    parts = PartMemory()
    learner = Learner(
        agreed, members=keys, chain_id=run.chain.genesis.chain_id, stores=Stores(parts_of=lambda _: parts)
    )
    knowledge = b""
    for number in range(ROUNDS + 1):
        there = [places[who] for who in members_in(number)]
        last = max(FOUNDERS + (method in SPLITTING) - 1, *(places[who] for who in members_in(min(number + 1, ROUNDS))))
        came = keys[: last + 1]  # a place is given in the round before its member is asked
        for phase, by, _ in rules.phases if number else rules.setup_phases:
            senders = [FOUNDERS] if by == "aggregator" else there
            posts = [
                (keys[who], learner.contribute(who, phase, number, knowledge, clients_count=len(there)).payload)
                for who in senders
            ]
            occasion = OffChain(phase, number, came, len(there))
            knowledge = rules.aggregate(occasion, knowledge, sorted(posts))
        if number:
            found, expected = run.chain.tensors(number), rules.read_knowledge(knowledge)
            assert expected is not None
            assert found.keys() == expected.keys()
            assert all(np.array_equal(found[name], expected[name]) for name in expected), f"round {number}"


def test_tasks_of_the_loops_are_those_of_the_chains() -> None:
    """The fields that a task of the loops sets are those that the scenarios here are given."""
    usual = LearningConfig()
    changed = {
        item.name
        for method in METHODS
        for item in fields(LearningConfig)
        if getattr(config(method), item.name) != getattr(usual, item.name)
    }
    assert changed <= {"method", "clients", "hyperparameters", *SAID}


@pytest.mark.long
def test_encrypted_sums_are_of_the_members_of_their_round() -> None:
    """A newcomer whose place was dealt a share encrypts and opens as founders do, and so does a member with another
    key, which proves under that one; nobody misses a leaver's share."""
    settings = {"encryption": "threshold", "decryption_threshold": 3, "contributors_min": 4, "local_steps": 1}
    run = fedchain.simulate(
        "tests.support.learning.small_keys:SmallKeyDfpl",
        changes=(*changes(NEWCOMER), MemberChange(round=2, kind="rekey", peers=(1,))),
        peers=FOUNDERS,
        rounds=LEFT,
        admission="quorum",
        partition="iid",
        test_every=0,
        keep_models=False,
        hyperparameters=settings,
    )
    assert run.violations == ()
    task = replace(run.scenario.learning_config(), method="dfpl", hyperparameters={"local_steps": 1})
    rules, learner, knowledge = Application(task), Learner(task), b""
    for number in range(1, LEFT + 1):
        there = members_in(number)
        posts = [(bytes([who]), learner.contribute(who, "update", number, knowledge).payload) for who in there]
        knowledge = rules.aggregate(OffChain("update", number), knowledge, posts)
        found, expected = run.chain.tensors(number), rules.read_knowledge(knowledge)
        assert expected is not None
        assert found["holders"].tolist() == expected["holders"].tolist() == [len(there)] * 10
        np.testing.assert_allclose(found["prototypes"], expected["prototypes"], atol=1e-6)


def members_in(number: int) -> list[int]:
    """The members that count in a round; the setup is that of the founders."""
    return [who for who in range(5) if (who != LEAVER or number < LEFT) and (who != NEWCOMER or number >= JOINED)]
