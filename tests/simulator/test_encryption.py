"""Simulated peers that encrypt: the same run again, also when one is killed between the phases, and when none opens."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from fedchain.chain.exceptions import Refused
from fedchain.crypto.hashing import Hash
from fedchain.crypto.threshold.share_proof import ShareProof, ShareStatement, is_proven
from fedchain.learning.worker.learner import Learner
from fedchain.network.messages import PostMessage
from fedchain.node.core.checks import Checks
from fedchain.node.core.events import Contributed, Event, MessageReceived
from fedchain.node.core.jobs import Job, Result, VerifySignatures
from fedchain.simulator.adversaries.posters import InvalidPoster
from fedchain.simulator.disturbances import Fault, Traitors
from fedchain.simulator.engine.simulation import Outcome
from fedchain.simulator.run import _deal, load_learner, simulate, simulated_dealing
from fedchain.simulator.scenario import Scenario, ScenarioError

SETTINGS: dict[str, Any] = {
    "encryption": "threshold",
    "decryption_threshold": 2,
    "contributors_min": 3,
    "local_epochs": 0,
    "local_steps": 1,
}
SCENARIO = Scenario(
    peers=4,
    rounds=2,
    workers=1,
    method="tests.support.learning.small_keys:SmallKeyFedPh",
    hyperparameters=SETTINGS,
    partition="iid",
    test_every=0,
)


def run(scenario: Scenario) -> Outcome:
    outcome = simulate(scenario, load_learner(scenario))
    assert outcome.violations == []
    assert len(outcome.rows) == scenario.rounds
    return outcome


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return run(SCENARIO)


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


@pytest.mark.long
@pytest.mark.parametrize("shares_checks", [False, True])
def test_a_proof_is_verified_once_by_each_node(shares_checks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    verified = Counter[tuple[Hash, ShareProof]]()

    def counting(statement: ShareStatement, proof: ShareProof) -> bool:
        verified[statement.digest, proof] += 1
        return is_proven(statement, proof)

    monkeypatch.setattr("fedchain.crypto.threshold.decryption.is_proven", counting)
    run(replace(SCENARIO, shared_verification=shares_checks))
    nodes = 1 if shares_checks else SCENARIO.peers
    auditors = 1  # what checks a simulation reads its chain anew
    assert list(verified.values()) == [nodes + auditors] * SCENARIO.peers * SCENARIO.rounds


def test_training_takes_the_time_of_the_phase_that_trains(outcome: Outcome) -> None:
    first, second = outcome.rows
    assert second.training_s == pytest.approx(SCENARIO.iteration_s, abs=0.001)
    assert 0.0 < first.training_s < 3 * SCENARIO.iteration_s, "nobody speaks before it has heard the others"


def test_a_peer_that_is_killed_between_the_phases_changes_nothing(outcome: Outcome) -> None:
    faults = tuple(Fault(at_s=at_s, kind=kind, peers=(3,)) for at_s, kind in ((4.0, "kill"), (11.0, "restart")))
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


@pytest.mark.long
@pytest.mark.parametrize("behaviour", ["invalid-poster", "post-equivocator"])
def test_a_liar_s_posts_stop_nobody(behaviour: str) -> None:
    found = run(replace(SCENARIO, rounds=1, adversaries=(Traitors(behaviour=behaviour, peers=(2,)),)))
    assert found.rows[0].posts >= SETTINGS["decryption_threshold"], "shares that open the sums"


@pytest.mark.long
def test_forged_shares_are_looked_at_once_named_and_stop_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """One member posts well-formed shares that are none, another kind in each round."""
    liar, mine, others = 2, list[bytes](), list[bytes]()
    verified, refused = Counter[tuple[Hash, ShareProof]](), dict[int, Counter[str]]()
    run_job = Checks.run

    def forge(self: InvalidPoster, event: Event) -> Sequence[Event]:
        match event:
            case MessageReceived(_, PostMessage(post, payload)) if post.phase == 1 and payload is not None:
                others.append(payload)
            case Contributed(number, 1, payload):
                mine.append(payload)
                changed, too_large = payload[:-1] + bytes([payload[-1] ^ 1]), payload[:-90] + b"\xff" * 90
                foreign = others[0] if number > 1 else b""  # in the first round nobody else need have spoken
                self.post((changed, mine[0], foreign, too_large)[number - 1], None)
                return ()
        return (event,)

    def counting(statement: ShareStatement, proof: ShareProof) -> bool:
        verified[statement.digest, proof] += 1
        return is_proven(statement, proof)

    def noting(self: Checks, job: Job) -> Result:
        result = run_job(self, job)
        if isinstance(result, Refused) and not isinstance(job, VerifySignatures):
            refused.setdefault(job.state.round, Counter())[str(result)] += 1
        return result

    monkeypatch.setattr(InvalidPoster, "listen", forge)
    monkeypatch.setattr("fedchain.crypto.threshold.decryption.is_proven", counting)
    monkeypatch.setattr(Checks, "run", noting)
    found = run(replace(SCENARIO, rounds=4, adversaries=(Traitors(behaviour="invalid-poster", peers=(liar,)),)))
    assert [row.posts for row in found.rows] == [3] * 4, "the others opened the sums of each round"
    assert max(verified.values()) <= SCENARIO.peers + 1, "each node and the auditor, once"
    reasons = ["the proof does not hold for these ciphertexts"] * 3 + [
        "as a share, ciphertext 39 of 40 is not from 1 to"
    ]
    for number, reason in enumerate(reasons, 1):
        ((message, times),) = refused[number].items()
        assert (
            times,
            re.search(rf"decryption shares of peer {liar} \(\w+\) are refused: {reason}", message) is not None,
        ) == (SCENARIO.peers - 1, True)


@pytest.mark.parametrize("behaviour", ["sign-flipper", "poison-poster"])
def test_what_would_change_numbers_is_refused(behaviour: str) -> None:
    scenario = replace(SCENARIO, adversaries=(Traitors(behaviour=behaviour, peers=(2,)),))
    with pytest.raises(
        ScenarioError, match=f"behaviour {behaviour} changes numbers, which encrypted posts do not show"
    ):
        simulate(scenario, load_learner(scenario))
