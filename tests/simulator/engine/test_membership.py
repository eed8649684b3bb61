"""Members come, leave and are removed in a simulation, and the checker has nothing to say."""

from itertools import count
from typing import Any

import numpy as np
import pytest

import fedchain
from fedchain.chain.membership.amendment import amendment_of
from fedchain.chain.membership.change import Change, ChangeKind, propose_amendment, sign_change
from fedchain.chain.membership.member import Standing
from fedchain.chain.storage.store import MemoryStore
from fedchain.chain.vote import VoteKind
from fedchain.learning.round import OffChain
from fedchain.learning.worker.learner import Learner
from fedchain.network.messages import FinalMessage, VoteMessage
from fedchain.node.core.effects import Effect, Publish, Stop
from fedchain.node.core.events import Tick
from fedchain.node.core.parts import Conduct
from fedchain.node.founding.task import learning_from_genesis
from fedchain.simulator.disturbances import Fault, MemberChange, Traitors
from fedchain.simulator.engine.membership import MembershipChanges
from fedchain.simulator.engine.operators import Operators
from fedchain.simulator.engine.peer import SimulatedPeer
from fedchain.simulator.engine.simulation import Simulation
from fedchain.simulator.scenario import Scenario, ScenarioError, scenario_from_dict
from tests.support.campaigns import some
from tests.support.chain.changes import UNTIL, approved, living_genesis
from tests.support.node.stage import Stage
from tests.support.simulator.trivial import trivial_scenario, trivial_simulation

JOIN = MemberChange(round=2, kind="join", peers=(5,), reason="newcomer")
LEAVE = MemberChange(round=3, kind="leave", peers=(1,))
REMOVE = MemberChange(round=5, kind="remove", peers=(2,), reason="gone")


def living(*changes: MemberChange, **fields: Any) -> Scenario:
    said: dict[str, Any] = {"peers": 5, "rounds": 10, "admission": "quorum", "changes": changes}
    return trivial_scenario(**(said | fields))


def played(scenario: Scenario) -> Simulation:
    simulation = trivial_simulation(scenario)
    assert simulation.run().violations == []
    return simulation


def standings(simulation: Simulation) -> list[str]:
    node = simulation.peers[0].node
    assert node is not None
    return [record.standing.name.lower() for record in node.head.records]


@pytest.mark.parametrize("seed", some(range(4), first=1))
def test_a_federation_lives(seed: int) -> None:
    simulation = played(living(JOIN, LEAVE, REMOVE, seed=seed))
    assert standings(simulation) == ["active", "left", "removed", "active", "active", "active"]
    asked = simulation._executor.asked  # type: ignore[attr-defined]
    last = {client: max(number for who, number in asked if who == client) for client in range(6)}
    assert {client for client, number in last.items() if number == 10} == {0, 3, 4, 5}
    assert min(number for who, number in asked if who == 5) >= 4, "counted from the second round after"
    running = [peer.node for peer in simulation.peers if peer.node is not None]
    assert len(running) == 4
    assert len({node.head.block_hash for node in running}) == 1


def test_who_left_serves_the_last_block_that_needed_its_vote(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its vote was lost on its way to the others, and a traitor is silent: nobody else can decide that height."""
    carry_out = SimulatedPeer.carry_out

    def lose(peer: SimulatedPeer, effect: Effect) -> None:
        vote = effect.message.vote if isinstance(effect, Publish) and isinstance(effect.message, VoteMessage) else None
        is_lost = vote is not None and (vote.kind, vote.height) == (VoteKind.PRECOMMIT, LEAVE.round + 1)
        if not (is_lost and peer.number in LEAVE.peers):
            carry_out(peer, effect)

    monkeypatch.setattr(SimulatedPeer, "carry_out", lose)
    simulation = played(living(LEAVE, adversaries=(Traitors(behaviour="silent", peers=(4,)),), max_virtual_s=900.0))
    assert standings(simulation) == ["active", "left", "active", "active", "active"]
    assert simulation.peers[1].node is None


def test_who_was_removed_while_it_was_cut_off_is_not_waited_for() -> None:
    """It does not know, and nobody lets it in to be told."""
    cut = Fault(at_s=27.0, kind="partition", peers=REMOVE.peers), Fault(at_s=90.0, kind="heal")
    simulation = played(living(REMOVE, faults=cut, rounds=14, max_virtual_s=400.0))
    assert standings(simulation) == ["active", "active", "removed", "active", "active"]
    assert simulation.peers[2].node is None


def test_a_newcomer_whom_no_block_counts_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Operators, "submit", lambda *_: None)
    with pytest.raises(ScenarioError, match="peer 5 has no place yet: no block of this run has counted its join"):
        trivial_simulation(living(JOIN, max_virtual_s=400.0)).run()


def test_lost_messages_keep_nobody_out() -> None:
    simulation = played(living(JOIN, LEAVE, loss=0.2, seed=3, rounds=14))
    assert standings(simulation) == ["active", "left", "active", "active", "active", "active"]


@pytest.mark.slow
def test_two_members_that_die_one_after_the_other_do_not_stop_the_federation() -> None:
    """With six members one may fail at a time; the first that dies is away before the second does."""
    faults = (Fault(at_s=20.0, kind="crash", peers=(4,)), Fault(at_s=600.0, kind="crash", peers=(5,)))
    simulation = trivial_simulation(
        trivial_scenario(peers=6, rounds=40, away_after=3, faults=faults, phase_timeout_s=10.0, mining_s=30.0)
    )
    assert simulation.run().violations == []
    found = standings(simulation)
    assert found[4] == "away"
    assert found.count("active") in (4, 5)


def test_who_was_away_comes_back() -> None:
    faults = (Fault(at_s=20.0, kind="crash", peers=(4,)), Fault(at_s=400.0, kind="restart", peers=(4,)))
    back = MemberChange(round=16, kind="back", peers=(4,))
    simulation = played(
        trivial_scenario(
            peers=6, rounds=22, away_after=3, faults=faults, phase_timeout_s=10.0, mining_s=30.0, changes=(back,)
        )
    )
    node = simulation.peers[0].node
    assert node is not None
    assert node.head.records[4].standing is Standing.ACTIVE
    assert node.head.records[4].sequence == 1


@pytest.mark.parametrize("seed", some(range(3), first=1))
def test_keys_are_replaced_while_the_federation_goes_on(seed: int) -> None:
    rekey = MemberChange(round=2, kind="rekey", peers=(1, 2))
    recover = MemberChange(round=4, kind="recover", peers=(1, 3), reason="stolen")
    simulation = trivial_simulation(living(rekey, recover, seed=seed))
    founders = [peer.public_key for peer in simulation.peers]
    outcome = simulation.run()
    assert outcome.violations == []
    node = simulation.peers[0].node
    assert node is not None
    records = node.head.records
    assert [record.sequence for record in records] == [0, 2, 1, 1, 0]
    assert [record.key == founder for record, founder in zip(records, founders, strict=True)] == [
        True,
        *[False] * 3,
        True,
    ]
    assert [peer.public_key for peer in simulation.peers] == [record.key for record in records]
    asked = simulation._executor.asked  # type: ignore[attr-defined]
    assert {client for client, number in asked if number == 10} == set(range(5)), (
        "all train to the end, at their places"
    )


def test_a_newcomer_is_invited_by_members_of_now_whose_keys_the_founding_document_does_not_have() -> None:
    rekey = MemberChange(round=1, kind="rekey", peers=(0, 1, 2, 3, 4))
    simulation = played(living(rekey, MemberChange(round=6, kind="join", peers=(5,)), rounds=12))
    newcomer, other = simulation.peers[5].node, simulation.peers[0].node
    assert newcomer is not None
    assert other is not None
    assert newcomer.head.block_hash == other.head.block_hash
    assert standings(simulation) == ["active"] * 6


def test_a_lost_key_is_recovered_while_its_member_is_down() -> None:
    faults = (Fault(at_s=30.0, kind="crash", peers=(4,)), Fault(at_s=200.0, kind="restart", peers=(4,)))
    recover = MemberChange(round=6, kind="recover", peers=(4,), reason="lost")
    simulation = played(living(recover, rounds=30, faults=faults, peers=6, phase_timeout_s=10.0))
    node = simulation.peers[4].node
    assert node is not None
    assert node.head.roster.members[4] == simulation.peers[4].public_key


def test_a_member_says_that_it_is_away() -> None:
    away, back = MemberChange(round=2, kind="away", peers=(4,)), MemberChange(round=6, kind="back", peers=(4,))
    simulation = played(living(away, back))
    asked = simulation._executor.asked  # type: ignore[attr-defined]
    assert {number for client, number in asked if client == 4} == {1, 2, 3, 8, 9, 10}


@pytest.mark.parametrize(
    "rows",
    [
        [("away", 2), ("back", 4), ("leave", 6)],
        [("leave", 2), ("recover", 3)],
        [("away", 2), ("back", 5), ("rekey", 7), ("recover", 10)],
        [("rekey", 2), ("leave", 3)],
        [("rekey", 2), ("rekey", 5)],
        [("recover", 2), ("recover", 3)],
        [("amend", 2), ("amend", 3)],
    ],
)
def test_a_node_that_is_behind_is_asked_for_a_change_again_once_it_is_there(rows: list[tuple[Any, int]]) -> None:
    """The first node to get there proposes what the others' nodes refuse for some milliseconds more."""
    said: Any = {"values": {"omission_slack_ms": 3_000}}
    changes = [MemberChange(round=at, kind=kind, **said if kind == "amend" else {"peers": (4,)}) for kind, at in rows]
    simulation = played(living(*changes, peers=6))
    blocks = [simulation.peers[0].storage.final(height) for height in range(1, 11)]
    found = [(change.kind.name.lower(), item[0].header.round) for item in blocks if item for change in item[0].changes]
    assert found == rows


def test_a_node_that_is_silent_is_asked_for_its_approval_again() -> None:
    """Two have just begun with other keys, and listen."""
    rekey, remove = MemberChange(round=2, kind="rekey", peers=(1, 2)), MemberChange(round=3, kind="remove", peers=(3,))
    simulation = played(living(rekey, remove, peers=6))
    assert standings(simulation)[3] == "removed"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rounds": 3}, "amend in round 2: rounds is 3, an amendment begins with round 4"),
        ({"aggregator": 2}, "amend in round 2: aggregator is none, which is no member's role"),
        ({"learning_rate": -1.0}, "amend in round 2: learning_rate"),
    ],
)
def test_an_amendment_that_no_block_would_count_is_refused_before_the_first_round(
    values: dict[str, int | float], message: str
) -> None:
    with pytest.raises(ScenarioError, match=message):
        trivial_simulation(living(MemberChange(round=2, kind="amend", values=values)))


def test_parameters_change_while_the_federation_goes_on() -> None:
    slower = MemberChange(round=2, kind="amend", values={"omission_slack_ms": 3_000, "rounds": 12}, reason="slow links")
    simulation = played(living(slower, JOIN))
    node = simulation.peers[0].node
    assert node is not None
    assert (node.head.rules.omission_slack_ms, node.head.rules.rounds) == (3_000, 12)
    assert (node.genesis.rounds, len(simulation.recorder.rows)) == (10, 12)


def test_an_amended_step_size_trains_everybody_from_its_round_on() -> None:
    """As a plain loop does that takes the other step size from round 4 on."""
    slower = MemberChange(round=2, kind="amend", values={"learning_rate": 0.01}, reason="it diverges")
    said: dict[str, Any] = {"peers": 3, "rounds": 5, "admission": "quorum", "hyperparameters": {"local_steps": 2}}
    run = fedchain.simulate("fedavg", changes=(slower,), keep_models=False, **said)
    assert run.violations == ()
    config, rules = learning_from_genesis(run.chain.genesis), run.chain.rules
    members = run.chain.genesis.members
    learner, knowledge = Learner(config), b""
    for number in range(1, 6):
        learner.amend((("learning_rate", "0.01"),) if number >= 4 else ())
        posts = [(members[client], learner.contribute(client, "update", number, knowledge)) for client in range(3)]
        occasion = OffChain("update", number, members)
        knowledge = rules.aggregate(occasion, knowledge, sorted((member, made.payload) for member, made in posts))
        found, expected = run.chain.tensors(number), rules.read_knowledge(knowledge)
        assert expected is not None
        assert all(np.array_equal(found[name], expected[name]) for name in expected), f"round {number}"


def test_nodes_that_do_not_know_a_version_stop_before_its_first_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rehearsal: from round 6 on version 4 holds, which peer 4's program does not know."""
    made = count()
    monkeypatch.setattr("fedchain.chain.validation.NEWEST_VERSION", 4)
    monkeypatch.setattr(
        "fedchain.simulator.engine.peer.Conduct", lambda **said: Conduct(**said, speaks=3 if next(made) == 4 else 4)
    )
    upgrade = MemberChange(round=2, kind="amend", values={"version": 4}, reason="upgrade", begin=6)
    simulation = trivial_simulation(living(upgrade))
    (violation,) = simulation.run().violations
    assert "with round 6 begins version 4 of the protocol, this program speaks versions up to 3" in violation
    assert "stopped: peer 4" in violation
    storage = simulation.peers[0].storage
    finals = [storage.final(height) for height in range(1, 11)]
    assert [found[0].header.version for found in finals if found is not None] == [3] * 5 + [4] * 5
    assert simulation.peers[4].storage.final(5) is not None
    assert simulation.peers[4].storage.final(6) is None


def test_a_node_that_starts_in_a_round_of_an_unknown_version_stops() -> None:
    stage = Stage(living_genesis())
    change = approved(stage.chain, propose_amendment(amendment_of({"version": 4}), "upgrade", sequence=0, until=UNTIL))
    for changes in ([change], []):
        block = stage.chain.extend(changes=changes)
        effects = stage.receive(FinalMessage(block, stage.chain.certificate(block)))
    assert any(isinstance(effect, Stop) for effect in effects)
    stage.victim.node = stage.victim.new_node()
    (stop,) = [effect.reason for effect in stage.handle(Tick()) if isinstance(effect, Stop)]
    assert stop.startswith("with round 3 begins version 4 of the protocol")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"admission": "closed"}, "admission is closed"),
        ({"degree": 2}, "no degree"),
        ({"changes": (MemberChange(round=2, kind="join", peers=(6,)),)}, "between 5 and 5"),
        ({"changes": (MemberChange(round=2, kind="leave", peers=(7,)),)}, "between 0 and 4"),
        ({"changes": (MemberChange(round=2, kind="amend", peers=(1,)),)}, "amend has values"),
        ({"changes": (MemberChange(round=2, kind="amend", values={"peers": 1}),)}, "peers is none of aggregator, "),
    ],
)
def test_impossible_changes_are_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        living(JOIN, **fields)


def test_a_scenario_with_changes_survives_its_file() -> None:
    scenario = living(JOIN, LEAVE)
    assert scenario_from_dict(scenario.to_dict()) == scenario
    assert (scenario.members, scenario.newcomers, scenario.everybody) == (5, 1, 6)
    assert "changes" not in trivial_scenario().to_dict()


def test_newcomers_of_one_round_get_the_places_that_their_data_are_at() -> None:
    """The order of hashes decides the places in a block, so newcomers take names that put them in order."""
    changes = MemberChange(round=2, kind="join", peers=(8, 9)), MemberChange(round=3, kind="join", peers=(10,))
    simulation = played(living(*changes, MemberChange(round=3, kind="join", peers=(11,)), peers=8))
    node = simulation.peers[0].node
    assert node is not None
    assert [node.head.roster.seats[peer.public_key] for peer in simulation.peers] == list(range(12))
    assert node.head.roster.active == 12


@pytest.mark.parametrize(
    "fields",
    [
        {"peers": 5, "changes": (MemberChange(round=2, kind="join", peers=(5, 6)),)},
        {"peers": 8, "changes": (MemberChange(round=2, kind="join", peers=(8, 9)),), "loss": 0.25},
    ],
)
def test_newcomers_get_their_places_where_a_round_has_no_room_for_all_or_messages_are_lost(
    fields: dict[str, Any],
) -> None:
    """Members hold the joins of a round as complete at other times then; those that came first had the places."""
    simulation = played(living(**({"rounds": 6} | fields)))
    node = simulation.peers[0].node
    assert node is not None
    assert [node.head.roster.seats[peer.public_key] for peer in simulation.peers] == list(range(len(simulation.peers)))


def test_a_newcomer_at_another_place_than_its_datas_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def unordered(own: MembershipChanges, row: MemberChange, subject: SimulatedPeer, until: int) -> Change:
        chain_id = own._genesis.chain_id
        return sign_change(subject.key, chain_id, ChangeKind.JOIN, sequence=0, until=until)

    monkeypatch.setattr(MembershipChanges, "_join", unordered)
    simulation = trivial_simulation(living(MemberChange(round=2, kind="join", peers=(16, 17, 18, 19)), peers=16))
    monkeypatch.setattr(simulation._membership, "_deals_by_place", True)  # this task has no data
    with pytest.raises(ScenarioError, match=r"peer 1\d got place 1\d"):
        simulation.run()


def test_a_peer_that_was_away_for_long_comes_to_the_head_by_certificates() -> None:
    """The set changed twice meanwhile; the checker sees that it says nothing where it did not stand."""
    faults = (Fault(at_s=8.0, kind="crash", peers=(3,)), Fault(at_s=120.0, kind="restart", peers=(3,)))
    simulation = played(living(JOIN, LEAVE, faults=faults, rounds=30, away_after=0))
    back = simulation.peers[3]
    assert back.node is not None
    assert back.node.head.height == 30
    assert isinstance(back.storage, MemoryStore)
    path = back.storage._lights
    assert path
    assert max(path) > 12
    assert back.storage.base() == max(path), "the blocks below were not fetched"
