"""Members come and go all the time, and a federation goes on."""

import math
from collections import Counter
from typing import Any

import pytest

import fedchain
from fedchain.chain.membership.member import Standing
from fedchain.simulator.churn import churn_in_round, churn_most, draw_churn
from fedchain.simulator.disturbances import Fault, MemberChange, Traitors
from fedchain.simulator.engine.measurement import NEW_ROUNDS
from fedchain.simulator.scenario import Scenario, ScenarioError, scenario_from_dict
from tests.support.simulator.trivial import TrivialExecutor, trivial_scenario, trivial_simulation


def churning(**fields: Any) -> Scenario:
    said: dict[str, Any] = {"peers": 8, "rounds": 12, "churn": 0.25, "admission": "quorum"}
    return trivial_scenario(**(said | fields))


def test_as_many_leave_as_the_share_says_and_as_many_join() -> None:
    changes = draw_churn(0.1, 20, 20, 30, 0)
    moved = Counter((row.round, row.kind) for row in changes for _ in row.peers)
    assert moved == {(number, kind): 2 for number in range(2, 29) for kind in ("join", "leave")}
    few = Counter(row.round for row in draw_churn(0.1, 8, 8, 30, 0) if row.kind == "leave" for _ in row.peers)
    assert set(few.values()) == {1}
    assert sum(few.values()) == int(0.1 * 8 * 27)
    assert [row.peers for row in draw_churn(0.1, 20, 20, 6, 0) if row.kind == "join"] == [(20, 21), (22, 23), (24, 25)]


def test_who_leaves_is_a_member_then_and_is_drawn_by_the_seed() -> None:
    changes = draw_churn(0.2, 20, 20, 200, 3, frozenset({0, 4}))
    joined = {peer: row.round for row in changes if row.kind == "join" for peer in row.peers}
    left = {peer: row.round for row in changes if row.kind == "leave" for peer in row.peers}
    assert sum(len(row.peers) for row in changes if row.kind == "leave") == len(left), "nobody leaves twice"
    assert not left.keys() & {0, 4}
    assert all(number > joined[peer] + 2 for peer, number in left.items() if peer in joined)
    assert left.keys() & joined.keys()
    assert changes != draw_churn(0.2, 20, 20, 200, 4, frozenset({0, 4}))


def test_a_dedicated_aggregator_stays_and_newcomers_have_the_numbers_behind_its_own() -> None:
    changes = draw_churn(0.25, 8, 9, 20, 0)
    joined = [peer for row in changes if row.kind == "join" for peer in row.peers]
    left = [peer for row in changes if row.kind == "leave" for peer in row.peers]
    assert joined == list(range(9, 9 + len(joined)))
    assert set(left) - set(joined) == set(range(8))
    without = draw_churn(0.25, 8, 8, 20, 0)
    assert [len(row.peers) for row in changes] == [len(row.peers) for row in without], "a share of those with data"


@pytest.mark.parametrize(
    ("members", "fault_model", "most"),
    [
        (4, "byzantine", 0),
        (5, "byzantine", 0),
        (6, "byzantine", 1),
        (10, "byzantine", 2),
        (4, "crash", 1),
        (100, "crash", 4),
    ],
)
def test_churn_is_bounded(members: int, fault_model: str, most: int) -> None:
    assert churn_most(members, fault_model) == most


def test_a_share_is_rounded_up_to_members() -> None:
    assert [churn_in_round(share, 30) for share in (0.1, 0.11, 0.01)] == [3, 4, 1]


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_federation_with_churn_keeps_its_size_and_counts_everybody(seed: int) -> None:
    executor, scenario = TrivialExecutor(), churning(seed=seed)
    simulation = trivial_simulation(scenario, executor=executor)
    outcome = simulation.run()
    assert outcome.violations == []
    assert [(row.members, row.quorum, row.posts) for row in outcome.rows] == [(8, 6, 8)] * 12
    changes = scenario.all_changes
    joined = {peer: row.round for row in changes if row.kind == "join" for peer in row.peers}
    left = {peer: row.round for row in changes if row.kind == "leave" for peer in row.peers}
    assert len(joined) == len(left) == 2 * 9
    for peer in range(scenario.everybody):
        asked = [number for who, number in executor.asked if who == peer]
        first, last = joined.get(peer, -1) + 2, left.get(peer, 11) + 1
        assert asked == list(range(first, last + 1)), f"peer {peer} trains in the rounds in which it counts"
    node = simulation.peers[0].node
    assert node is not None
    assert Counter(record.standing for record in node.head.records) == {Standing.ACTIVE: 8, Standing.LEFT: 18}


def test_members_of_different_age_are_measured_apart() -> None:
    """The trivial task's accuracy is number / (number + round)."""
    outcome = trivial_simulation(churning(rounds=9)).run()
    assert all(row.taa_new is None and row.taa_old is None for row in outcome.rows[:3])
    first: dict[int, int] = {}
    for item in outcome.members:
        first.setdefault(item.member, item.round)
    for row in outcome.rows[3:]:
        here = {item.member: item.accuracy for item in outcome.members if item.round == row.round}
        new = {peer for peer in here if first[peer] > 1 and row.round - first[peer] < NEW_ROUNDS}
        assert row.taa_new == pytest.approx(sum(here[peer] for peer in new) / len(new))
        assert row.taa_old == pytest.approx(sum(here[peer] for peer in here.keys() - new) / (len(here) - len(new)))


def test_crashing_and_lying_peers_stay() -> None:
    faults = (Fault(at_s=5.0, kind="crash", peers=(3,)), Fault(at_s=15.0, kind="restart", peers=(3,)))
    liars = (Traitors(behaviour="double-voter", peers=(7,)),)
    scenario = churning(faults=faults, adversaries=liars, peers=10, churn=0.2, rounds=40)
    leaving = {peer for row in scenario.all_changes if row.kind == "leave" for peer in row.peers}
    assert not leaving & {0, 3, 7}
    assert leaving >= {1, 2, 4, 5, 6, 8, 9}


@pytest.mark.parametrize("end", [8, 16])
def test_churn_lasts_to_the_end_that_amendments_leave(end: int) -> None:
    amending = MemberChange(round=3, kind="amend", values={"rounds": end})
    found = [row for row in churning(changes=(amending,)).all_changes if row.kind != "amend"]
    assert found == [*churning(rounds=end).all_changes]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"admission": "closed"}, "admission is closed"),
        ({"degree": 2}, "no degree"),
        ({"peers": 5}, "churn is 0.25: 2 of 5 members a round, at most 0 may go"),
        ({"peers": 40}, "churn is 0.25: 10 of 40 members a round, at most 4 may go"),
        ({"changes": (MemberChange(round=2, kind="leave", peers=(1,)),)}, "may only amend"),
        ({"churn": 0.3}, "churn"),
        (
            {"changes": (MemberChange(round=2, kind="amend", values={"rounds": 2**64 - 1}),)},
            f"last round that changes leave is {2**64 - 1}, it must be between 1 and 1000000",
        ),
        (
            {"changes": (MemberChange(round=2, kind="amend", values={"rounds": math.nan}),)},
            r"changes\[0\]: rounds is nan, it must be a whole number",
        ),
    ],
)
def test_what_churn_cannot_be_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        churning(**fields)


def test_a_scenario_with_churn_is_the_same_from_its_file() -> None:
    amend = MemberChange(round=2, kind="amend", values={"phase_timeout_ms": 20_000})
    scenario = churning(changes=(amend,))
    assert scenario_from_dict(scenario.to_dict()) == scenario
    assert scenario.all_changes[0] == amend
    assert "churn" not in churning(churn=0.0).to_dict()


@pytest.mark.long
def test_learning_goes_on_with_churn() -> None:
    run = fedchain.simulate(
        "fedavg",
        peers=8,
        rounds=6,
        churn=0.25,
        admission="quorum",
        keep_models=False,
        hyperparameters={"local_steps": 4},
    )
    assert run.violations == ()
    last = run.rounds[-1]
    assert last.taa is not None
    assert last.taa_new is not None
    assert (last.members, last.posts) == (8, 8)
    assert last.taa > 0.5
