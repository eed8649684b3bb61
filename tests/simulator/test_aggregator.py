"""The designated aggregator in virtual time: at work, silent, killed in the middle of its phase, away, and lying."""

from dataclasses import replace
from typing import Any

import pytest

from fedchain.chain.knowledge import EMPTY_ROOT
from fedchain.crypto.hashing import sha256
from fedchain.learning.application import Application
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.executors.last_answers import LastAnswers
from fedchain.learning.executors.processes import ProcessExecutor
from fedchain.learning.executors.remembering import Remembering
from fedchain.learning.round import Tensors
from fedchain.node.founding.consensus import Aggregator
from fedchain.simulator.disturbances import Fault, FaultKind, MemberChange, Traitors
from fedchain.simulator.engine.outcome import Outcome
from fedchain.simulator.engine.simulation import Simulation
from fedchain.simulator.founding import found_federation, simulation_keys
from fedchain.simulator.leakage.federation import Federation as WithoutChain
from fedchain.simulator.reproduction.experiment import key_of
from fedchain.simulator.run import load_learner, simulated_dealing
from fedchain.simulator.scenario import Scenario, ScenarioError, load_scenario
from tests.support.learning.federation import Federation
from tests.support.simulator.trivial import trivial_scenario, trivial_simulation

TALLY = Scenario(
    name="tally",
    method="tests.support.learning.tally:Tally",
    peers=3,
    rounds=3,
    workers=1,
    partition="iid",
    test_every=0,
    proof_function="sha256d",
    mining_attempts=4,
    phase_timeout_s=20.0,
)
EXAMPLES = 1442
"""Training examples of the digits, which all peers have together."""


def play(scenario: Scenario) -> tuple[Simulation, Outcome, Tensors]:
    """Run a scenario with real clients; what honest peers promised holds, and what the last round left."""
    scenario.validate()
    keys, (config, _) = simulation_keys(scenario), simulated_dealing(scenario)
    rules = Application(config, [key.public_key for key in keys])
    genesis = found_federation(scenario, rules, keys, config)
    learner = load_learner(scenario)
    pool = ProcessExecutor(learner.plan, scenario.workers)
    executor = Remembering(pool, LastAnswers(pool.folder))
    try:
        simulation = Simulation(scenario, genesis, keys, rules, executor)
        outcome = simulation.run()
    finally:
        executor.close()
    assert outcome.violations == []
    node = simulation.peers[0].node
    assert node is not None
    known = rules.read_knowledge(node.knowledge() or b"")
    assert known is not None
    return simulation, outcome, known


@pytest.fixture(scope="module")
def dedicated() -> tuple[Simulation, Outcome, Tensors]:
    return play(TALLY)


def test_one_more_peer_aggregates_what_those_with_data_post(dedicated: tuple[Simulation, Outcome, Tensors]) -> None:
    simulation, outcome, known = dedicated
    assert len(simulation.peers) == TALLY.members == 4
    assert (known["rounds"].tolist(), known["total"].tolist()) == ([3], [3 * EXAMPLES])
    assert load_learner(TALLY).histogram().sum(axis=1).shape == (3,)
    assert [row.posts for row in outcome.rows] == [1, 1, 1]
    federation = Federation(TALLY.learning_config())
    federation.play(3)
    assert outcome.knowledge_root == sha256(federation.knowledge).hex()


def test_bytes_are_counted_by_who_fetches_them(dedicated: tuple[Simulation, Outcome, Tensors]) -> None:
    simulation, outcome, _ = dedicated
    finals = [simulation.peers[0].storage.final(height) for height in range(1, 7)]
    blocks = [final[0] for final in finals if final is not None]
    for row in outcome.rows:
        posts = [post for block in blocks if block.header.round == row.round for post in block.transactions]
        assert len(posts) == 4
        assert row.bytes_for_all == sum(post.payload_size for post in posts)
        assert (row.bytes_for_aggregator, row.bytes_for_one) == (0, 0)
        assert row.bytes_received_aggregator > row.bytes_for_all
        assert row.bytes_received_per_peer == pytest.approx(row.bytes_sent_per_peer, rel=0.1)


@pytest.mark.parametrize("rule", ["fixed", "rotating"])
def test_with_each_rule_the_same_comes_of_it(rule: Aggregator, dedicated: tuple[Simulation, Outcome, Tensors]) -> None:
    simulation, outcome, _ = play(replace(TALLY, aggregator=rule, contribution_quorum=3))
    assert len(simulation.peers) == 3
    assert outcome.knowledge_root == dedicated[1].knowledge_root


def test_a_silent_aggregator_s_phase_closes_empty_and_the_knowledge_stays() -> None:
    traitors = (Traitors(behaviour="silent", peers=(3,)),)
    _, outcome, known = play(replace(TALLY, adversaries=traitors))
    assert [row.posts for row in outcome.rows] == [0, 0, 0]
    assert {name: value.tolist() for name, value in known.items()} == {
        "examples": [EXAMPLES],
        "rounds": [0],
        "total": [0],
    }
    assert outcome.virtual_s > 3 * TALLY.phase_timeout_s


def test_where_they_take_turns_the_next_one_goes_on_from_what_was_posted() -> None:
    traitors = (Traitors(behaviour="silent", peers=(1,)),)
    scenario = replace(TALLY, peers=4, rounds=5, aggregator="rotating", adversaries=traitors)
    _, outcome, known = play(scenario)
    of_each = load_learner(scenario).histogram().sum(axis=1)
    assert [row.posts for row in outcome.rows] == [0, 1, 1, 1, 0]
    assert known["rounds"].tolist() == [3], "rounds 1 and 5 were the silent one's"
    assert known["total"].tolist() == [3 * int(of_each.sum() - of_each[1])]


@pytest.mark.parametrize(("peers", "stays"), [(6, False), (4, True)])
def test_where_members_change_a_silent_one_is_followed(peers: int, stays: bool) -> None:
    """None of four members goes, since three bear no liar: there it loses its role alone."""
    traitors = (Traitors(behaviour="silent", peers=(0,)),)
    scenario = replace(
        TALLY, peers=peers, rounds=6, aggregator="fixed", admission="quorum", away_after=2, adversaries=traitors
    )
    simulation, outcome, known = play(scenario)
    first, second = (peer.public_key for peer in simulation.peers[:2])
    node = simulation.peers[2].node
    assert node is not None
    roster = node.head.roster
    assert (roster.is_active(first), roster.aggregator_of(6)) == (stays, second)
    counted = [row.posts for row in outcome.rows]
    assert counted == [0, 0, 1, 1, 1, 1]
    assert known["rounds"].tolist() == [4]


def test_a_dedicated_one_that_dies_is_followed_by_a_client_and_has_its_role_again_by_amendment() -> None:
    faults = (
        Fault(at_s=0.5, kind="crash", peers=(5,)),
        Fault(at_s=80.0, kind="restart", peers=(5,)),
        Fault(at_s=100.0, kind="kill", peers=(0,)),  # the one that follows comes back into its role
        Fault(at_s=103.0, kind="restart", peers=(0,)),
    )
    back = MemberChange(round=5, kind="back", peers=(5,))
    handed = MemberChange(round=8, kind="amend", values={"aggregator": 5})
    scenario = replace(TALLY, peers=5, rounds=12, away_after=2, faults=faults, changes=(back, handed))
    simulation, outcome, known = play(scenario)
    assert [row.posts for row in outcome.rows] == [0, 0, *[1] * 10]
    assert known["rounds"].tolist() == [10]
    of_each = load_learner(scenario).histogram().sum(axis=1).tolist()
    others = sum(of_each[1:])
    assert (known["total"].tolist(), of_each[0] > 0) == ([7 * others + 3 * sum(of_each)], True)
    node = simulation.peers[1].node
    assert node is not None
    assert (node.head.roster.holder, node.head.roster.active) == (simulation.peers[5].public_key, 6)


def test_beside_a_dedicated_one_a_newcomer_has_the_next_part_of_the_data() -> None:
    join = MemberChange(round=1, kind="join", peers=(4,))
    handed = MemberChange(round=3, kind="amend", values={"aggregator": 4})
    scenario = replace(TALLY, rounds=7, admission="quorum", changes=(join, handed))
    simulation, outcome, known = play(scenario)
    of_each = load_learner(scenario).histogram().sum(axis=1).tolist()
    assert (len(of_each), simulation.peers[1].node is not None) == (4, True)
    roster = simulation.peers[1].node.head.roster if simulation.peers[1].node else None
    assert roster is not None
    assert (roster.holder, roster.dataless) == (simulation.peers[4].public_key, simulation.peers[3].public_key)
    assert [row.posts for row in outcome.rows] == [1] * 7
    founders, everybody = sum(of_each[:3]), sum(of_each)
    assert known["total"].tolist() == [2 * founders + 2 * everybody + 3 * founders], "it counts from round 3 to 4"


def test_beside_a_dedicated_one_others_come_and_go_and_each_has_its_own_part_of_the_data() -> None:
    scenario = replace(TALLY, peers=7, rounds=7, churn=0.14, admission="quorum")
    simulation, outcome, known = play(scenario)
    of_each = load_learner(scenario).histogram().sum(axis=1).tolist()
    first, last = dict.fromkeys(range(7), 1), dict[int, int]()
    for row in scenario.all_changes:
        (first if row.kind == "join" else last).update(
            (peer, row.round + 1 + (row.kind == "join")) for peer in row.peers
        )
    assert sorted(first) == [*range(7), 8, 9, 10]
    counting = [[peer for peer in first if first[peer] <= number <= last.get(peer, 7)] for number in range(1, 8)]
    assert [len(peers) for peers in counting] == [7] * 7
    assert known["total"].tolist() == [sum(of_each[peer - (peer > 7)] for peers in counting for peer in peers)]
    assert [(row.members, row.posts) for row in outcome.rows] == [(8, 1)] * 7
    node = simulation.peers[0].node
    assert node is not None
    assert node.head.roster.holder == simulation.peers[7].public_key


@pytest.mark.parametrize("kind", ["crash", "kill"])
def test_killed_in_the_middle_of_its_phase_it_comes_back_and_nothing_is_lost(
    kind: FaultKind, dedicated: tuple[Simulation, Outcome, Tensors]
) -> None:
    span = dedicated[0].recorder.timeline[3, 2]
    assert span.started is not None
    assert span.trained is not None
    assert span.trained - span.started == pytest.approx(2.0), "40 steps of a twentieth of a second"
    at_s = span.started + 1.0 if kind == "crash" else span.trained - 0.001
    faults = Fault(at_s=at_s, kind=kind, peers=(3,)), Fault(at_s=at_s + 9.0, kind="restart", peers=(3,))
    simulation, outcome, _ = play(replace(TALLY, faults=faults))
    assert outcome.knowledge_root == dedicated[1].knowledge_root
    assert simulation.peers[3].up_since == pytest.approx(at_s + 9.0)


CENTRALIZED: dict[str, Any] = {"aggregator": "dedicated", "centralized": True, "phase_timeout_s": 20.0, "rounds": 5}


def test_without_its_aggregator_a_centralized_federation_closes_phases_empty_until_it_is_back() -> None:
    faults = Fault(at_s=0.5, kind="crash", peers=(4,)), Fault(at_s=95.0, kind="restart", peers=(4,))
    simulation = trivial_simulation(trivial_scenario(**CENTRALIZED, faults=faults))
    outcome = simulation.run()
    assert outcome.violations == []
    counted = [row.posts for row in outcome.rows]
    assert counted[0] == counted[1] == 0
    assert counted[-2:] == [4, 4]
    assert outcome.rows[0].virtual_s > 2 * CENTRALIZED["phase_timeout_s"]
    assert producers(simulation, outcome.rows[-1].posts) == {4}


def test_a_centralized_federation_s_aggregator_writes_every_block_while_it_is_up() -> None:
    simulation = trivial_simulation(trivial_scenario(**CENTRALIZED))
    outcome = simulation.run()
    assert (outcome.violations, [row.posts for row in outcome.rows]) == ([], [4] * 5)
    assert producers(simulation, 4) == {4}
    assert (4, 1) not in {key for key, span in simulation.recorder.timeline.items() if span.trained is not None}


def producers(simulation: Simulation, posts: int) -> set[int]:
    """Numbers of the peers that mined the final blocks with so many posts."""
    storage, index = simulation.peers[0].storage, simulation._genesis.index
    head = storage.head()
    assert head is not None
    finals = [storage.final(height) for height in range(1, head.block.header.height + 1)]
    blocks = [final[0] for final in finals if final is not None]
    return {index[block.header.miner] for block in blocks if len(block.transactions) == posts}


def test_an_aggregator_that_lies_about_the_aggregate_is_believed_by_nobody() -> None:
    traitors = (Traitors(behaviour="false-aggregator", peers=(4,)),)
    outcome = trivial_simulation(trivial_scenario(**CENTRALIZED, adversaries=traitors)).run()
    assert (outcome.violations, outcome.knowledge_root) == ([], EMPTY_ROOT.hex())
    assert [row.posts for row in outcome.rows] == [0] * 5
    others = trivial_simulation(trivial_scenario(adversaries=(Traitors(behaviour="false-aggregator", peers=(3,)),)))
    outcome = others.run()
    assert outcome.violations == []
    assert min(row.posts for row in outcome.rows) >= 3
    assert producers(others, 3) | producers(others, 4) <= {0, 1, 2}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"aggregator": "none"},
            "aggregator is none, but phase 'announce' of tests.support",
        ),
        ({"method": "fedavg", "aggregator": "dedicated"}, "aggregator is dedicated, but fedavg has no phase"),
        ({"method": "fedavg", "centralized": True}, "aggregator is none, but centralized needs one"),
    ],
)
def test_a_scenario_that_contradicts_its_method_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        load_scenario(None, {"method": TALLY.method, **values})


def test_the_aggregator_is_a_peer_that_faults_can_name() -> None:
    fault = {"at_s": 1.0, "kind": "crash", "peers": [3]}
    assert load_scenario(None, {**TALLY.to_dict(), "faults": [fault]}).members == 4
    with pytest.raises(ScenarioError, match=r"faults\[0\] peers is 3, it must be between 0 and 2"):
        load_scenario(None, {**TALLY.to_dict(), "aggregator": "fixed", "faults": [fault]})


def test_results_of_scenarios_that_said_none_are_still_found() -> None:
    assert key_of(Scenario()) == key_of(Scenario(aggregator="none"))
    assert key_of(TALLY) == key_of(replace(TALLY, aggregator="dedicated")) != key_of(replace(TALLY, aggregator="fixed"))


def test_where_most_peers_sleep_the_only_producer_is_awake() -> None:
    drawn = {"contributors_per_round": 3, "committee_size": 4, "idle_sleep": True}
    simulation = trivial_simulation(trivial_scenario(**CENTRALIZED, **drawn, peers=9, seed=1))
    outcome = simulation.run()
    assert (outcome.violations, [row.posts for row in outcome.rows]) == ([], [3] * 5)
    assert producers(simulation, 3) == {9}


@pytest.mark.parametrize("rule", ["dedicated", "fixed", "rotating"])
def test_without_a_chain_the_same_peer_aggregates(
    rule: Aggregator, dedicated: tuple[Simulation, Outcome, Tensors]
) -> None:
    *_, (number, knowledge) = WithoutChain(replace(TALLY, aggregator=rule)).play(3)
    assert (number, sha256(knowledge).hex()) == (3, dedicated[1].knowledge_root)
