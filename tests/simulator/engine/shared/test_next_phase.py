"""All train for the next phase from the last contribution to the open one on, or as peers do that are told of it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from fedchain.chain.genesis import AggregatorRule
from fedchain.chain.knowledge import needed_contents
from fedchain.chain.post import Post
from fedchain.chain.state import State
from fedchain.learning.exceptions import OwnCodeFailed
from fedchain.learning.executors.executor import Asked, Question
from fedchain.learning.executors.inline import InlineExecutor
from fedchain.learning.executors.outcomes import Counts
from fedchain.node.core.checks import Checks
from fedchain.node.core.jobs import CheckPost, Knowledge, Recompute
from fedchain.simulator.choices import Training
from fedchain.simulator.engine.peer import SimulatedPeer
from fedchain.simulator.engine.shared.next_phase import NextPhase
from fedchain.simulator.run import Run, load_learner
from fedchain.simulator.scenario import scenario_from_dict
from tests.support.chain.builders import GLOBAL, UPDATE, ChainBuilder, double_vote, genesis, payload
from tests.support.chain.changes import handing, living
from tests.support.simulator.interruptions import SMALL, found


class Trainee:
    """Stands in for a peer, and notes what it is to train for."""

    def __init__(self) -> None:
        self.foreseen: list[tuple[State, bytes]] = []

    def foresee(self, state: State, knowledge: bytes) -> None:
        self.foreseen.append((state, knowledge))


def begin(chain: ChainBuilder) -> tuple[NextPhase, list[Trainee], Checks]:
    trainees = [Trainee() for _ in chain.state.roster.members]
    peers = cast(Sequence[SimulatedPeer], trainees)
    checks = Checks(chain.genesis, chain.rules)
    return NextPhase(chain.genesis, peers, checks), trainees, checks


def own_checks(chain: ChainBuilder, posts: Sequence[Post]) -> list[CheckPost]:
    state, contents = chain.state, chain.contents
    return [CheckPost(state, contents[state.knowledge_root], post, contents[post.payload_hash]) for post in posts]


def test_the_last_contribution_has_all_train_for_what_a_block_of_all_posts_leaves_behind() -> None:
    chain = living()
    chain.extend()
    next_phase, trainees, _ = begin(chain)
    *first, last = reversed(own_checks(chain, chain.posts()))
    for own in (*first, first[0]):  # one of them twice, as after a restart
        next_phase.on_post(own)
    assert not any(trainee.foreseen for trainee in trainees)
    next_phase.on_post(last)
    chain.extend()
    for trainee in trainees:
        ((state, knowledge),) = trainee.foreseen
        expected = chain.state
        assert (state.round, state.phase) == (expected.round, expected.phase)
        assert (state.knowledge_root, knowledge) == (expected.knowledge_root, chain.contents[expected.knowledge_root])
        assert (state.roster.contributors, state.amendments) == (expected.roster.contributors, expected.amendments)


def test_the_aggregate_is_not_computed_again_for_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = ChainBuilder(genesis())
    next_phase, _, checks = begin(chain)
    aggregate = Mock(wraps=chain.rules.aggregate)
    monkeypatch.setattr(chain.rules, "aggregate", aggregate)
    posts = chain.posts()
    for own in own_checks(chain, posts):
        next_phase.on_post(own)
    contents = {item: chain.contents[item] for item in needed_contents(chain.state, posts)}
    assert isinstance(checks.run(Recompute(chain.state, posts, contents)), Knowledge)
    aggregate.assert_called_once()


def test_an_aggregators_post_has_those_train_that_build_on_it_and_theirs_the_aggregator() -> None:
    chain = ChainBuilder(genesis(phases=(UPDATE, GLOBAL), aggregator=AggregatorRule.FIXED))
    for is_aggregators in (False, True):
        next_phase, trainees, _ = begin(chain)
        for own in own_checks(chain, chain.posts()):
            next_phase.on_post(own)
        chain.extend()
        trained = {number for number, trainee in enumerate(trainees) if trainee.foreseen}
        seats = chain.state.roster.seats
        assert trained == {seats[member] for member in chain.state.roster.contributors}
        assert (len(trained) == 1) is not is_aggregators


@pytest.mark.parametrize("why", ["drawn", "owed", "last", "behind", "slow"])
def test_where_the_next_contributors_or_their_knowledge_are_not_known_nothing_is_foreseen(
    why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields: dict[str, Any] = {
        "drawn": {"version": 3, "contributors_per_round": 3},
        "owed": {"version": 3, "late_rounds": 1},
        "last": {"rounds": 1},
    }.get(why, {})
    chain = ChainBuilder(genesis(**fields))
    if why == "owed":
        chain.extend()  # a late post needs knowledge that it was made from
        chain.extend(posts=chain.posts()[1:])
        assert chain.state.owed
    monkeypatch.setattr(chain.rules, "is_slow_to_check", lambda phase: why == "slow")
    next_phase, trainees, _ = begin(chain)
    own = own_checks(chain, chain.posts())
    if why == "behind":
        chain.extend()
        next_phase.on_post(own_checks(chain, chain.posts())[0])
    for check in own:
        next_phase.on_post(check)
    assert not any(trainee.foreseen for trainee in trainees)


def test_an_amendment_that_begins_with_the_next_round_is_foreseen() -> None:
    chain = living(aggregator=AggregatorRule.FIXED)
    chain.extend(changes=[handing(chain, 1, chain.state.round + 2)])
    next_phase, trainees, _ = begin(chain)
    for own in own_checks(chain, chain.posts()):
        next_phase.on_post(own)
    chain.extend()
    assert chain.state.amendments.in_force
    assert {state.amendments for trainee in trainees for state, _ in trainee.foreseen} == {chain.state.amendments}


def test_a_post_of_somebody_that_owes_none_counts_for_nobodys() -> None:
    chain = ChainBuilder(genesis())
    liar = chain.state.roster.members[2]
    chain.extend(evidence=[double_vote(chain.key(liar), chain.genesis, 1)])
    next_phase, trainees, _ = begin(chain)
    good = chain.posts()
    for own in own_checks(chain, [*chain.posts(members=[liar]), *good[:-1]]):
        next_phase.on_post(own)
    assert not any(trainee.foreseen for trainee in trainees)
    next_phase.on_post(own_checks(chain, good[-1:])[0])
    assert [bool(trainee.foreseen) for trainee in trainees] == [True, True, False, True]


def test_posts_that_do_not_fit_together_are_left_to_the_nodes() -> None:
    chain = ChainBuilder(genesis())
    next_phase, trainees, _ = begin(chain)
    *good, last = own_checks(chain, chain.posts())
    for own in (*good, replace(last, payload=payload(99))):  # other bytes than the post names
        next_phase.on_post(own)
    assert not any(trainee.foreseen for trainee in trainees)


@pytest.mark.parametrize("error", [OwnCodeFailed("aggregate: no"), OSError("no space left")], ids=["code", "disk"])
def test_an_aggregate_that_fails_is_left_to_the_nodes_which_may_never_need_it(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer that dies before its post is with the others, for one, makes it that of a block that nobody mines."""
    chain = ChainBuilder(genesis())
    next_phase, trainees, _ = begin(chain)
    own = own_checks(chain, chain.posts())
    monkeypatch.setattr(chain.rules, "aggregate", Mock(side_effect=error))
    for check in own:
        next_phase.on_post(check)
    assert not any(trainee.foreseen for trainee in trainees)


@pytest.mark.parametrize("shares_checks", [True, False])
def test_no_node_takes_another_step_for_it(shares_checks: bool) -> None:
    """Where peers share no checks, the last author found its post checked by the simulation, and asked less."""

    def play(*, train_ahead: bool) -> dict[str, Any]:
        scenario = scenario_from_dict({**SMALL, "method": "fedavg", "peers": 5, "train_ahead": train_ahead})
        with Run(scenario, load_learner(scenario), shares_checks=shares_checks) as run:
            return found(run.play(lambda row, witness: None))

    assert play(train_ahead=True) == play(train_ahead=False)


class Noting(InlineExecutor):
    """Notes what it is asked and what it is to foresee, in order."""

    noted: list[tuple[str, int, int]]

    def compute(self, question: Question, state: Any = None) -> Asked:
        self.noted.append(("asked", question.round, question.client))
        return super().compute(question, state)

    forecasts = Counts()

    def foresee(self, question: Question) -> None:
        self.noted.append(("foreseen", question.round, question.client))


@pytest.mark.parametrize("lies", [False, True])
def test_a_run_foresees_a_round_of_all_before_any_message_of_it_unless_somebody_lies(lies: bool) -> None:
    Noting.noted = []
    adversaries = [{"behaviour": "sign-flipper", "peers": [4]}] if lies else []
    scenario = scenario_from_dict({**SMALL, "method": "fedavg", "peers": 5, "adversaries": adversaries})
    with Run(scenario, load_learner(scenario), training=Training(executor=Noting)) as run:
        run.play(lambda row, witness: None)
    for number in range(2, scenario.rounds + 1):
        told = [(kind, client) for kind, round_number, client in Noting.noted if round_number == number]
        foreseen = [client for kind, client in told[:5] if kind == "foreseen"]
        assert (foreseen == [0, 1, 2, 3, 4]) is not lies, told
