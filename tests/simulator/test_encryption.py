"""Simulated peers that encrypt: the same run again, also when one is killed between the phases, and when none opens."""

from collections import Counter
from dataclasses import replace

import pytest

from fedchain.crypto.hashing import Hash
from fedchain.crypto.threshold.share_proof import ShareProof, ShareStatement, is_proven
from fedchain.learning.exceptions import ConfigurationError
from fedchain.learning.worker.learner import Learner
from fedchain.simulator.disturbances import Fault, MemberChange, Traitors
from fedchain.simulator.engine.outcome import Outcome
from fedchain.simulator.run import Run, _deal, load_learner, simulate, simulated_dealing
from fedchain.simulator.scenario import ScenarioError
from tests.support.simulator.encrypted import SCENARIO, SETTINGS, run
from tests.support.simulator.encrypted import outcome as outcome


@pytest.mark.long
def test_a_run_repeats_with_keys_from_its_seed(outcome: Outcome) -> None:
    material = simulated_dealing(SCENARIO)[0].material
    _deal.cache_clear()
    again = run(SCENARIO)
    assert simulated_dealing(SCENARIO)[0].material == material
    assert (again.trace_hash, again.knowledge_root) == (outcome.trace_hash, outcome.knowledge_root)
    assert simulated_dealing(replace(SCENARIO, seed=1))[0].material != material


def test_what_the_dealer_draws_is_private() -> None:
    """The seed of learning, which the chain shows, does not give away the members' shares."""
    (config, shares), (other, others) = (simulated_dealing(replace(SCENARIO, private_seed=seed)) for seed in (0, 1))
    assert config.seed == other.seed
    assert config.material != other.material
    assert not {*shares} & {*others}


@pytest.mark.parametrize(
    "shares_checks", [pytest.param(False, marks=pytest.mark.long), pytest.param(True, marks=pytest.mark.slow)]
)
def test_a_proof_is_verified_once_by_each_node(shares_checks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    verified = Counter[tuple[Hash, ShareProof]]()

    def counting(statement: ShareStatement, proof: ShareProof) -> bool:
        verified[statement.digest, proof] += 1
        return is_proven(statement, proof)

    monkeypatch.setattr("fedchain.crypto.threshold.decryption.is_proven", counting)
    run(SCENARIO, shares_checks=shares_checks)
    nodes = 1 if shares_checks else SCENARIO.peers
    auditors = 1  # what checks a simulation reads its chain anew
    assert list(verified.values()) == [nodes + auditors] * SCENARIO.peers * SCENARIO.rounds


def test_training_takes_the_time_of_the_phase_that_trains(outcome: Outcome) -> None:
    first, second = outcome.rows
    for row in (first, second):
        assert row.training_s == pytest.approx(SCENARIO.iteration_s, abs=0.001)


def test_a_peer_that_is_killed_between_the_phases_changes_nothing(outcome: Outcome) -> None:
    faults = (Fault(at_s=4.0, kind="kill", peers=(3,)), Fault(at_s=11.0, kind="restart", peers=(3,)))
    assert (
        run(replace(SCENARIO, rounds=1, faults=faults)).knowledge_root
        == run(replace(SCENARIO, rounds=1)).knowledge_root
    )


def test_where_no_class_has_enough_holders_rounds_close_without_knowledge() -> None:
    few = replace(SCENARIO, rounds=1, partition="n-way", hyperparameters={**SETTINGS, "contributors_min": 4})
    assert Learner(few.learning_config()).histogram().astype(bool).sum(axis=0).max() < 4
    with_knowledge = run(replace(few, partition="iid", hyperparameters={**SETTINGS, "contributors_min": 4}))
    without = run(few)
    assert without.knowledge_root != with_knowledge.knowledge_root
    assert with_knowledge.not_posted == []
    assert len(without.not_posted) == few.peers
    assert all("no class has the 4 contributors" in reason for reason in without.not_posted)
    told = [(item.member, item.reason) for block in without.seen for item in block.nothing]
    assert {number for number, _ in told} == {*range(few.peers)}, "explorers show it"
    assert all("no class has the 4 contributors" in reason for _, reason in told)


def test_who_joins_later_changes_no_threshold() -> None:
    """All that ever take part would ask for seven holders of a class, and never more than five members count."""
    changes = [MemberChange(round=number, kind="join", peers=(number + 2,)) for number in range(2, 16)]
    changes += [MemberChange(round=number, kind="leave", peers=(number + 2,)) for number in range(4, 16)]
    growing = replace(SCENARIO, rounds=16, admission="quorum", changes=tuple(changes))
    for stated in ({"encryption": "threshold"}, SETTINGS):
        config, shares = simulated_dealing(replace(growing, hyperparameters=stated))
        founded = dict(config.hyperparameters)
        assert (founded["decryption_threshold"], founded["contributors_min"]) == (2, 3)
        assert len(shares) == growing.everybody == 18
    with Run(growing, load_learner(growing)):
        pass  # a genesis document of four founders was found to be sound
    few = replace(growing, hyperparameters={**SETTINGS, "contributors_min": 5})
    with pytest.raises(ConfigurationError, match="contributors_min is 5 of 4 members, it must be from 3"):
        load_learner(few)


@pytest.mark.parametrize("drawn", [1, 2])
def test_fewer_contributors_than_a_class_needs_holders_are_refused(drawn: int) -> None:
    """No class would ever be opened."""
    message = f"contributors_per_round is {drawn}, but contributors_min is 3: with fewer contributors no round leaves"
    few = replace(SCENARIO, contributors_per_round=drawn)
    with pytest.raises(ConfigurationError, match=message):
        Run(few, load_learner(few))
    change = MemberChange(round=1, kind="amend", values={"contributors_per_round": drawn})
    amended = replace(SCENARIO, rounds=6, contributors_per_round=3, changes=(change,))
    with pytest.raises(ScenarioError, match=f"amend in round 1: {message}"):
        simulate(amended, load_learner(amended))


def test_more_members_than_can_have_shares_are_refused() -> None:
    """Those that join later count, too."""
    many = tuple(MemberChange(round=2, kind="join", peers=(number,)) for number in range(4, 257))
    with pytest.raises(ConfigurationError, match="encryption threshold is for at most 256 members, not 257"):
        simulated_dealing(replace(SCENARIO, admission="quorum", changes=many))


@pytest.mark.parametrize("behaviour", ["sign-flipper", "poison-poster"])
def test_what_would_change_numbers_is_refused(behaviour: str) -> None:
    scenario = replace(SCENARIO, adversaries=(Traitors(behaviour=behaviour, peers=(2,)),))
    with pytest.raises(
        ScenarioError, match=f"behaviour {behaviour} changes numbers, which encrypted posts do not show"
    ):
        simulate(scenario, load_learner(scenario))
